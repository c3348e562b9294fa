//! Every sentence of test_2016_flickr, greedily and with 5 beams, against transformers'
//! translations (`testdata/multi30k-en-de/reference`).
//!
//! The text is not part of the repository; without it these tests say so and pass.

use crate::run;
use crate::ties::{TIE, Way};
use cognate_runtime::{Device, Engine};
use cognate_testing::{bundled_checkpoint, shared_multi30k};
use cognate_text::{corpus_bleu, read_lines};

#[test]
fn tract_gives_the_reference_translations() {
    check(Engine::Tract);
}

#[test]
fn onnx_runtime_gives_the_reference_translations() {
    match Engine::Ort.open(Device::Cpu) {
        Ok(_) => check(Engine::Ort),
        Err(error) => cognate_testing::skip(&error.to_string()),
    }
}

fn check(engine: Engine) {
    let Some(data) = shared_multi30k() else { return };
    let source = data.join("test_2016_flickr.en");
    let sentences = read_lines(&source).unwrap();
    let args = [
        "translate",
        "--engine",
        &engine.to_string(),
        "--max-new-tokens",
        "80",
        "--workers",
        "2",
        "--input",
        source.to_str().unwrap(),
    ];
    let translations: Vec<_> = run(&args).ok().lines().map(str::to_owned).collect();
    let expected = reference("greedy.de");
    assert_eq!((translations.len(), expected.len()), (1000, 1000));
    assert_same(engine, Way::GREEDY, [&sentences, &expected, &translations]);

    let references = read_lines(data.join("test_2016_flickr.de")).unwrap();
    let bleu = corpus_bleu(&translations, &references).unwrap();
    assert_eq!(format!("{:.2}", bleu.score), "38.57", "{bleu}");
}

/// The lines of a file of transformers' answers.
fn reference(name: &str) -> Vec<String> {
    read_lines(bundled_checkpoint().join(format!("reference/test_2016_flickr.{name}"))).unwrap()
}

/// Fails where the translations `found` of the sentences are others than those expected, but for
/// ties.
fn assert_same(engine: Engine, way: Way, [sentences, expected, found]: [&[String]; 3]) {
    let wrong = way.wrong(sentences, expected, found);
    let equal = expected.iter().zip(found).filter(|(expected, found)| expected == found).count();
    let ties = expected.len() - equal - wrong.len();
    eprintln!(
        "{engine}, {} beams: {equal} of {} translations equal, {ties} ties",
        way.beams,
        expected.len()
    );
    assert!(
        wrong.is_empty(),
        "{engine}: {} translations differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn tract_finds_the_reference_beams() {
    // All of them take it three minutes in a test build.
    check_beams(Engine::Tract, 200);
}

#[test]
fn onnx_runtime_finds_the_reference_beams() {
    match Engine::Ort.open(Device::Cpu) {
        Ok(_) => check_beams(Engine::Ort, 1000),
        Err(error) => cognate_testing::skip(&error.to_string()),
    }
}

/// With 5 beams, the first `count` sentences, and the scores of those whose translations are equal.
fn check_beams(engine: Engine, count: usize) {
    let Some(data) = shared_multi30k() else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    let mut sentences = read_lines(data.join("test_2016_flickr.en")).unwrap();
    sentences.truncate(count);
    std::fs::write(&source, sentences.join("\n")).unwrap();
    let out = run(&[
        "translate",
        "--engine",
        &engine.to_string(),
        "--beams",
        "5",
        "--scores",
        "--max-new-tokens",
        "80",
        "--input",
        source.to_str().unwrap(),
    ])
    .ok();
    let lines = out.lines().map(|line| line.rsplit_once('\t').unwrap());
    let (found, found_scores): (Vec<String>, Vec<f32>) =
        lines.map(|(text, score)| (text.to_owned(), score.parse::<f32>().unwrap())).unzip();
    let (mut texts, scores) = (reference("beam5.de"), reference("beam5.scores.txt"));
    assert_eq!((found.len(), texts.len(), scores.len()), (count, 1000, 1000));
    texts.truncate(count);
    assert_same(engine, Way { beams: 5, n_best: 1 }, [&sentences, &texts, &found]);

    let (mut wrong, mut largest) = (Vec::new(), 0.0_f32);
    let pairs = found_scores.iter().zip(&scores).enumerate();
    for (index, (score, expected)) in pairs.filter(|(index, _)| found[*index] == texts[*index]) {
        let difference = (score - expected.parse::<f32>().unwrap()).abs();
        largest = largest.max(difference);
        if difference > TIE {
            wrong.push(format!("line {}: {score}, expected {expected}", index + 1));
        }
    }
    eprintln!("{engine}: scores differ by at most {largest:e}");
    assert!(wrong.is_empty(), "{engine}: {} scores differ\n{}", wrong.len(), wrong.join("\n"));
}
