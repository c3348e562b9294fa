//! One model, one translation: the same tokens at every batch size, number of workers and engine, with scores within 1e-5.

use crate::{SENTENCES, run};
use cognate_runtime::{Device, Engine};
use cognate_testing::shared_multi30k;
use cognate_text::read_lines;
use std::fs;
use std::path::Path;
use std::thread;

/// The largest difference of scores; of translations whose scores are nearer, either may come first.
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
const WAYS: [&[&str]; 2] = [&["--beams", "1"], &["--beams", "5", "--n-best", "3"]];

/// Tokens of a batch, and workers. A batch of one token has one sentence.
const DIVISIONS: [(&str, &str); 4] = [("1", "3"), ("64", "2"), ("512", "1"), ("4096", "2")];

/// The sentences' numbers, translations and scores.
fn translated(way: &[&str], args: &[&str], input: &Path) -> Vec<(String, f64)> {
    let common = ["translate", "--scores", "--input", input.to_str().unwrap()];
    let out = run(&[&common, way, args].concat()).ok();
    let columns = out.lines().map(|line| line.rsplit_once('\t').unwrap());
    columns.map(|(text, score)| (text.to_owned(), score.parse().unwrap())).collect()
}

/// Compares, tells of ties, and returns what differs, and the largest difference of scores.
fn compare(name: &str, expected: &[(String, f64)], found: &[(String, f64)]) -> (Vec<String>, f64) {
    let (mut wrong, mut largest) = (Vec::new(), 0_f64);
    if expected.len() != found.len() {
        wrong.push(format!("{name}: {} lines, expected {}", found.len(), expected.len()));
    }
    for ((expected, score), (text, found)) in expected.iter().zip(found) {
        let difference = (score - found).abs();
        largest = largest.max(difference);
        if difference > BOUND {
            wrong.push(format!("{name}: {text} {found}, expected {expected} {score}"));
        } else if expected != text {
            eprintln!("{name}: a tie: {text} {found}, expected {expected} {score}");
        }
    }
    (wrong, largest)
}

#[test]
fn translations_do_not_depend_on_batches_workers_and_engines() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines: Vec<String> = SENTENCES.iter().chain(&OWN).map(|&line| line.to_owned()).collect();
    if let Some(data) = shared_multi30k() {
        // From all over the text.
        lines.extend(read_lines(data.join("test_2016_flickr.en")).unwrap().into_iter().step_by(125));
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
    for way in WAYS {
        let (expected, reference) = thread::scope(|scope| {
            let reference = scope.spawn(|| translated(way, &["--engine", "reference"], few));
            (translated(way, &["--engine", "tract", "--batch-tokens", "2048", "--workers", "1"], all), reference.join().unwrap())
        });
        let (mut wrong, mut largest) = compare(&format!("{way:?} reference"), &expected[..reference.len()], &reference);
        for (batch_tokens, workers) in DIVISIONS {
            let found = thread::scope(|scope| {
                let run = |&engine| {
                    let args = ["--engine", engine, "--batch-tokens", batch_tokens, "--workers", workers];
                    scope.spawn(move || (format!("{way:?} {args:?}"), translated(way, &args, all)))
                };
                let running: Vec<_> = engines.iter().map(run).collect();
                running.into_iter().map(|engine| engine.join().unwrap()).collect::<Vec<_>>()
            });
            for (name, found) in found {
                let (differing, difference) = compare(&name, &expected, &found);
                wrong.extend(differing);
                largest = largest.max(difference);
            }
        }
        eprintln!("{way:?}: {} lines, scores differ by at most {largest:.0e}", expected.len());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
