//! Every sentence of test_2016_flickr, greedily and with 5 beams, against transformers' translations (`testdata/multi30k-en-de/reference`).
//!
//! The text is not part of the repository; without it these tests say so and pass.

use crate::run;
use cognate_generate::{Hypothesis, SessionDecoder, Settings, generate};
use cognate_model::{Attentions, Model};
use cognate_runtime::{Device, Engine, Options, Reference, Runtime, Source};
use cognate_testing::{bundled_checkpoint, shared_multi30k};
use cognate_text::{Tokenizer, corpus_bleu, read_lines};

/// Where two next words are nearer than this in logit, either is right.
const TIE: f32 = 1e-5;

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
    let args =
        ["translate", "--engine", &engine.to_string(), "--max-new-tokens", "80", "--workers", "2", "--input", source.to_str().unwrap()];
    let translations = run(&args).ok();
    let translations: Vec<_> = translations.lines().collect();
    let expected = read_lines(bundled_checkpoint().join("reference/test_2016_flickr.greedy.de")).unwrap();
    assert_eq!((translations.len(), expected.len()), (1000, 1000));

    let differing: Vec<_> = (0..1000).filter(|&index| translations[index] != expected[index]).collect();
    let margins = margins(differing.iter().map(|&index| sentences[index].as_str()).collect());
    let mut wrong = Vec::new();
    for (&index, margin) in differing.iter().zip(margins) {
        let (number, found, expected) = (index + 1, translations[index], &expected[index]);
        let line = format!("line {number}, margin {margin:e}\n  expected {expected}\n  found    {found}");
        wrong.push(line);
    }
    assert!(wrong.is_empty(), "{engine}: {} lines differ\n{}", wrong.len(), wrong.join("\n"));

    let references = read_lines(data.join("test_2016_flickr.de")).unwrap();
    let bleu = corpus_bleu(&translations, &references).unwrap();
    assert_eq!(format!("{:.2}", bleu.score), "38.57", "{bleu}");
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

/// With 5 beams, the first `count` sentences and their scores, which tell ties apart.
fn check_beams(engine: Engine, count: usize) {
    let Some(data) = shared_multi30k() else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    let sentences = read_lines(data.join("test_2016_flickr.en")).unwrap();
    std::fs::write(&source, sentences[..count].join("\n")).unwrap();
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
    let found: Vec<(&str, f32)> =
        out.lines().map(|line| line.rsplit_once('\t').unwrap()).map(|(text, score)| (text, score.parse().unwrap())).collect();
    let reference = |name: &str| read_lines(bundled_checkpoint().join("reference").join(name)).unwrap();
    let (texts, scores) = (reference("test_2016_flickr.beam5.de"), reference("test_2016_flickr.beam5.scores.txt"));
    assert_eq!((found.len(), texts.len(), scores.len()), (count, 1000, 1000));
    let (mut wrong, mut largest) = (Vec::new(), 0.0_f32);
    for (index, ((found, score), (text, expected))) in found.into_iter().zip(texts.iter().zip(scores)).enumerate() {
        let difference = (score - expected.parse::<f32>().unwrap()).abs();
        largest = largest.max(difference);
        if found != text {
            eprintln!("{engine}: line {}: {found}, expected {text}, scores differ by {difference:e}", index + 1);
        }
        if difference > TIE {
            wrong.push(format!("line {}: {found} {score}, expected {text} {expected}", index + 1));
        }
    }
    eprintln!("{engine}: scores differ by at most {largest:e}");
    assert!(wrong.is_empty(), "{engine}: {} lines differ\n{}", wrong.len(), wrong.join("\n"));
}

/// The smallest distance between the two best next words, in f64, of each sentence.
fn margins(sentences: Vec<&str>) -> Vec<f32> {
    let folder = bundled_checkpoint();
    let (model, tokenizer) = (Model::open(&folder).unwrap(), Tokenizer::from_folder(&folder).unwrap());
    let generation = std::fs::read_to_string(folder.join("generation_config.json")).unwrap();
    let settings = Settings::from_json(model.config_json(), Some(&generation), model.config()).unwrap();
    let load = |program| Reference::F64.load(&Source::Graph(program), &Options::default()).unwrap();
    let (encoder, step) = (load(model.encode().unwrap()), load(model.step(Attentions::Omit).unwrap()));
    let mut decoder = SessionDecoder::new(encoder, step, settings.pad_token).unwrap();
    let sources: Vec<_> = sentences.iter().map(|text| tokenizer.encode(text).unwrap()).collect();
    let smallest = |Hypothesis { margins, .. }: Hypothesis| margins.into_iter().fold(f32::INFINITY, f32::min);
    generate(&mut decoder, &sources, &settings).unwrap().into_iter().map(smallest).collect()
}

#[test]
fn the_reference_decodes_with_margins() {
    let margins = margins(crate::SENTENCES.to_vec());
    assert!(margins.iter().all(|margin| *margin > TIE && margin.is_finite()), "{margins:?}");
}
