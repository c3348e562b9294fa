//! One model, one translation: the same text at every batch size, number of workers and engine,
//! with scores within 1e-5.

use crate::ties::Way;
use crate::{SENTENCES, run};
use cognate_runtime::{Device, Engine};
use cognate_testing::shared_multi30k;
use cognate_text::read_lines;
use std::fs;
use std::path::Path;
use std::thread;

/// The largest difference of scores.
const BOUND: f64 = 1e-5;

const OWN: [&str; 6] = [
    "The weather is nice today.",
    "Where is the nearest train station?",
    "A young girl in a red dress is eating an apple while her brother throws a ball to a brown dog in the garden.",
    "Dog!",
    "Three men (one of them with a hat) repair 2 cars, a bus and a 5-year-old bicycle.",
    "Children are running through a field of yellow flowers.",
];

/// Greedily, and the three best of five beams.
const WAYS: [(Way, &[&str]); 2] = [
    (Way::GREEDY, &["--beams", "1"]),
    (Way { beams: 5, n_best: 3 }, &["--beams", "5", "--n-best", "3"]),
];

/// Tokens of a batch, and workers. A batch of one token has one sentence.
const DIVISIONS: [(&str, &str); 4] = [("1", "3"), ("64", "2"), ("512", "1"), ("4096", "2")];

/// Translations, and their scores.
type Translated = (Vec<String>, Vec<f64>);

fn translated(way: &[&str], args: &[&str], input: &Path) -> Translated {
    let common = ["translate", "--scores", "--input", input.to_str().unwrap()];
    let out = run(&[&common, way, args].concat()).ok();
    let columns = out.lines().map(|line| line.rsplit_once('\t').unwrap());
    columns.map(|(text, score)| (text.to_owned(), score.parse::<f64>().unwrap())).unzip()
}

/// Translations of some sentences against which others are held.
struct Expected<'a> {
    way: Way,
    sentences: &'a [String],
    translated: Translated,
}

impl Expected<'_> {
    /// What differs, and the largest difference of scores of equal texts.
    fn compare(&self, name: &str, found: &Translated) -> (Vec<String>, f64) {
        let sentences = &self.sentences[..found.0.len() / self.way.n_best];
        let (texts, scores) = (&self.translated.0[..found.0.len()], &self.translated.1);
        let wrong = self.way.wrong(sentences, texts, &found.0);
        let mut wrong: Vec<_> = wrong.into_iter().map(|line| format!("{name}: {line}")).collect();
        let mut largest = 0_f64;
        for (index, (score, found_score)) in scores
            .iter()
            .zip(&found.1)
            .enumerate()
            .filter(|(index, _)| texts[*index] == found.0[*index])
        {
            let difference = (score - found_score).abs();
            largest = largest.max(difference);
            if difference > BOUND {
                wrong.push(format!("{name}: {} {found_score}, expected {score}", texts[index]));
            }
        }
        (wrong, largest)
    }
}

#[test]
fn translations_do_not_depend_on_batches_workers_and_engines() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines: Vec<String> =
        SENTENCES.iter().chain(&OWN).map(|&line| line.to_owned()).collect();
    if let Some(data) = shared_multi30k() {
        // From all over the text.
        lines
            .extend(read_lines(data.join("test_2016_flickr.en")).unwrap().into_iter().step_by(125));
    }
    let [all, few] = ["all", "few"].map(|name| folder.path().join(name));
    fs::write(&all, lines.join("\n")).unwrap();
    fs::write(&few, lines[..4].join("\n")).unwrap();
    let mut engines = vec!["tract"];
    match Engine::Ort.open(Device::Cpu) {
        Ok(_) => engines.push("ort"),
        Err(error) => cognate_testing::skip(&error.to_string()),
    }
    let (all, few) = (all.as_path(), few.as_path());
    for (way, options) in WAYS {
        let (first, reference) = thread::scope(|scope| {
            let reference = scope.spawn(|| translated(options, &["--engine", "reference"], few));
            (
                translated(
                    options,
                    &["--engine", "tract", "--batch-tokens", "2048", "--workers", "1"],
                    all,
                ),
                reference.join().unwrap(),
            )
        });
        assert_eq!((first.0.len(), reference.0.len()), (lines.len() * way.n_best, 4 * way.n_best));
        let expected = Expected { way, sentences: &lines, translated: first };
        let (mut wrong, mut largest) =
            expected.compare(&format!("{options:?} reference"), &reference);
        for (batch_tokens, workers) in DIVISIONS {
            let found = thread::scope(|scope| {
                let run = |&engine| {
                    let args =
                        ["--engine", engine, "--batch-tokens", batch_tokens, "--workers", workers];
                    scope.spawn(move || {
                        (format!("{options:?} {args:?}"), translated(options, &args, all))
                    })
                };
                let running: Vec<_> = engines.iter().map(run).collect();
                running.into_iter().map(|engine| engine.join().unwrap()).collect::<Vec<_>>()
            });
            for (name, found) in found {
                assert_eq!(found.0.len(), lines.len() * way.n_best, "{name}");
                let (differing, difference) = expected.compare(&name, &found);
                wrong.extend(differing);
                largest = largest.max(difference);
            }
        }
        eprintln!(
            "{options:?}: {} lines, scores differ by at most {largest:.0e}",
            lines.len() * way.n_best
        );
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
