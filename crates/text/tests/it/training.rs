//! Tokenizers that are trained here (`testdata/trained-tokenizers/README.md`), against another
//! build of the trainers and transformers.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use cognate_testing::{python, shared_multi30k, testdata};
use cognate_text::{
    Algorithm, ErrorKind, Result, Tokenizer, TokenizerTrainer, TrainedTokenizer, TrainingSettings,
    read_lines,
};
use insta::assert_snapshot;
use serde::Deserialize;
use serde_json::Value;

use crate::json;

const ALGORITHMS: [Algorithm; 2] = [Algorithm::Unigram, Algorithm::Bpe];

#[derive(Deserialize)]
struct Expected {
    vocab_size: usize,
    texts: Vec<String>,
    bpe: Merges,
    unigram: Scores,
}

#[derive(Deserialize)]
struct Merges {
    merges: Vec<[String; 2]>,
    ids: Vec<Vec<i64>>,
}

#[derive(Deserialize)]
struct Scores {
    scores: BTreeMap<String, f64>,
    pieces: Vec<Vec<String>>,
}

fn settings(algorithm: Algorithm, vocab_size: usize) -> TrainingSettings {
    TrainingSettings { algorithm, vocab_size, coverage: 1.0, ..Default::default() }
}

fn train<'l>(
    settings: TrainingSettings,
    lines: impl IntoIterator<Item = &'l str>,
) -> Result<TrainedTokenizer> {
    let mut trainer = TokenizerTrainer::new(settings)?;
    lines.into_iter().try_for_each(|line| trainer.add(line))?;
    trainer.train()
}

fn text() -> Vec<String> {
    read_lines(testdata("trained-tokenizers/text.txt")).unwrap()
}

fn model(trained: &TrainedTokenizer) -> Value {
    serde_json::from_str::<Value>(trained.json()).unwrap()["model"].take()
}

#[test]
fn merges_are_those_of_another_build() {
    let (expected, lines) = (json::<Expected>("trained-tokenizers/expected.json"), text());
    let trained =
        train(settings(Algorithm::Bpe, expected.vocab_size), lines.iter().map(String::as_str))
            .unwrap();
    let merges: Vec<[String; 2]> =
        serde_json::from_value(model(&trained)["merges"].take()).unwrap();
    assert_eq!(merges, expected.bpe.merges);
    for (text, ids) in expected.texts.iter().zip(&expected.bpe.ids) {
        assert_eq!(trained.tokenizer().encode_target(text).unwrap(), *ids, "{text:?}");
    }
}

#[test]
fn unigram_pieces_and_scores_are_those_of_another_build() {
    let (expected, lines) = (json::<Expected>("trained-tokenizers/expected.json"), text());
    let trained =
        train(settings(Algorithm::Unigram, expected.vocab_size), lines.iter().map(String::as_str))
            .unwrap();
    let found: Vec<(String, f64)> =
        serde_json::from_value(model(&trained)["vocab"].take()).unwrap();
    assert_eq!(found.len(), expected.unigram.scores.len());
    for (piece, score) in &found {
        let expected =
            expected.unigram.scores.get(piece).unwrap_or_else(|| panic!("{piece} is not expected"));
        assert!((score - expected).abs() < 1e-6, "{piece}: {score}, expected {expected}");
    }
    let tokenizer = trained.tokenizer();
    for (text, pieces) in expected.texts.iter().zip(&expected.unigram.pieces) {
        let ids = tokenizer.encode_target(text).unwrap();
        let found: Vec<String> = ids.into_iter().map(|id| tokenizer.piece(id).unwrap()).collect();
        assert_eq!(found, *pieces, "{text:?}");
    }
}

/// Hash maps are seeded anew each time, so an order that shows in the result changes between these.
#[test]
fn the_same_text_gives_the_same_bytes() {
    let mut lines = text();
    lines.extend(["日本語 😀 Ωμέγα", "αβγδεζηθ", "ÀÈÌÒÙ ñ ø å"].map(str::to_owned));
    let threads = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for algorithm in ALGORITHMS {
        let first = train(settings(algorithm, 200), lines.iter().map(String::as_str)).unwrap();
        for attempt in 0..5 {
            let again =
                || train(settings(algorithm, 200), lines.iter().rev().map(String::as_str)).unwrap();
            let again = if attempt % 2 == 0 { again() } else { threads.install(again) };
            let differing = first
                .json()
                .lines()
                .zip(again.json().lines())
                .find(|(first, again)| first != again);
            assert_eq!(differing, None, "{algorithm:?}");
            assert!(first.json() == again.json(), "{algorithm:?}");
        }
    }
}

#[test]
fn special_tokens_have_marians_ids_and_are_never_learnt() {
    let spelt = ["a</s>b a</s>b a</s>b", "＜/s＞ ＜pad＞ <mask> <unk><mask>", "abc abd abe"];
    for algorithm in ALGORITHMS {
        let additional_special_tokens = vec!["<mask>".to_owned()];
        let trained =
            train(TrainingSettings { additional_special_tokens, ..settings(algorithm, 16) }, spelt)
                .unwrap();
        let tokenizer = trained.tokenizer();
        let ids = ["</s>", "<unk>", "<pad>", "<mask>"].map(|token| tokenizer.id(token));
        assert_eq!(ids, [0, 1, 2, 3].map(Some), "{algorithm:?}");
        let pieces: Vec<String> =
            (0..tokenizer.vocab_size() as i64).map(|id| tokenizer.piece(id).unwrap()).collect();
        assert!(
            pieces.iter().skip(4).all(|piece| !piece.contains(['<', '/', '>', 'p', 's'])),
            "{pieces:?}"
        );
        assert_eq!(tokenizer.encode("<mask></s>").unwrap(), [3, 0, 0], "{algorithm:?}");
        assert!(tokenizer.vocab_size() <= 16);
    }
}

#[test]
fn saved_tokenizers_read_back() {
    let (expected, lines) = (json::<Expected>("trained-tokenizers/expected.json"), text());
    for algorithm in ALGORITHMS {
        let trained = train(settings(algorithm, 200), lines.iter().map(String::as_str)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        trained.save(folder.path(), None, 256).unwrap();
        let read = Tokenizer::from_folder(folder.path()).unwrap();
        for text in &expected.texts {
            let ids = read.encode(text).unwrap();
            assert_eq!(trained.tokenizer().encode(text).unwrap(), ids, "{text:?}");
            assert_eq!(ids.last(), Some(&0), "{text:?}");
        }
        for line in lines.iter().filter(|line| !line.contains("  ")) {
            assert_eq!(read.decode(&read.encode(line).unwrap()).unwrap(), *line);
        }
    }
}

#[test]
fn separate_vocabularies_read_back_as_one_tokenizer() {
    let upper = "A man. A dog. A woman and a man. A dog and a dog.";
    let lower = "ein mann. ein hund. eine frau und ein mann. ein hund und ein hund.";
    let [source, target] =
        [upper, lower].map(|text| train(settings(Algorithm::Bpe, 30), [text]).unwrap());
    let folder = tempfile::tempdir().unwrap();
    source.save(folder.path(), Some(&target), 256).unwrap();
    let read = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!(read.encode(upper).unwrap(), source.tokenizer().encode(upper).unwrap());
    let ids = read.encode_target(lower).unwrap();
    assert_eq!(ids, target.tokenizer().encode_target(lower).unwrap());
    assert_ne!(ids, source.tokenizer().encode_target(lower).unwrap());
    assert_eq!(read.decode(&ids).unwrap(), lower);
    assert_eq!(read.piece(ids[0]), target.tokenizer().piece(ids[0]));
    let sizes = [source.tokenizer(), target.tokenizer()].map(Tokenizer::required_vocab);
    assert_eq!(read.required_vocab(), sizes[0].max(sizes[1]));
    assert_eq!((read.source_vocab(), read.target_vocab()), (sizes[0], sizes[1]));
    fs::write(folder.path().join("target_tokenizer.json"), "{}").unwrap();
    let error = Tokenizer::from_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("target_tokenizer.json: is JSON, but not"), "{error}");
}

#[test]
fn training_that_cannot_be_is_refused() {
    let error = |settings: TrainingSettings, lines: &[&str]| {
        let error = train(settings, lines.iter().copied()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        error.to_string()
    };
    assert_snapshot!(error(settings(Algorithm::Bpe, 8), &["abc", "a d"]), @"vocab_size is 8, expected at least 9: the text has 5 characters, and there are 3 special tokens; raise it, or lower the character coverage");
    assert_snapshot!(error(settings(Algorithm::Unigram, 100), &["", "  ", "</s>"]), @"no text to train a tokenizer on: it contains no words");
    let coverage = |coverage| TrainingSettings { coverage, ..settings(Algorithm::Bpe, 8) };
    assert_snapshot!(error(coverage(f64::NAN), &["a"]), @"coverage is NaN; a tokenizer's training expects a share above 0 and at most 1");
    let additional = TrainingSettings {
        additional_special_tokens: vec!["<pad>".to_owned()],
        ..Default::default()
    };
    assert_snapshot!(error(additional, &["a"]), @r#"additional_special_tokens is "<pad>"; a tokenizer's training expects tokens that are not empty and differ from all others"#);
}

/// Text that is hard to cut is no harder to train on.
#[test]
fn hostile_text_trains() {
    let expected: Expected = json("trained-tokenizers/expected.json");
    let long = "x".repeat(100_000);
    let texts: Vec<&str> = expected
        .texts
        .iter()
        .map(String::as_str)
        .chain([long.as_str(), "\0\0 \0a", "\u{202e}\u{feff}"])
        .collect();
    for algorithm in ALGORITHMS {
        let trained = train(
            TrainingSettings { coverage: 0.99, ..settings(algorithm, 1_000) },
            texts.iter().copied(),
        )
        .unwrap();
        for text in &texts {
            trained.tokenizer().encode(text).unwrap();
        }
    }
}

/// In the order of the alphabet, the words of each make the library's suffix array run past its
/// end.
#[test]
fn texts_that_break_the_suffix_array_train() {
    for text in [
        "cacacdc cc ccaddba",
        "bbbbaba bbbb acac",
        "aab baaaaabb ab b abab aabbbb a",
        "c caacb b accacbcb bcbab",
    ] {
        let trained = train(settings(Algorithm::Unigram, 60), [text]).unwrap();
        let tokenizer = trained.tokenizer();
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()).unwrap(), text);
    }
}

/// Ids and texts of `AutoTokenizer` for the saved folder.
#[test]
fn transformers_reads_what_is_saved() {
    let Some(python) = python() else { return };
    let (expected, mut lines) = (json::<Expected>("trained-tokenizers/expected.json"), text());
    if let Some(folder) = shared_multi30k() {
        lines = ["train.en", "train.de"]
            .iter()
            .flat_map(|name| read_lines(folder.join(name)).unwrap().into_iter().take(200))
            .collect();
    }
    let texts: Vec<&String> = expected.texts.iter().chain(&lines).collect();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("texts"), serde_json::to_string(&texts).unwrap()).unwrap();
    let names = ["unigram", "bpe"];
    for (algorithm, name) in ALGORITHMS.into_iter().zip(names) {
        let additional_special_tokens = vec![">>deu<<".to_owned()];
        let trained = TrainingSettings { additional_special_tokens, ..settings(algorithm, 600) };
        let trained = train(trained, lines.iter().map(String::as_str)).unwrap();
        fs::create_dir(folder.path().join(name)).unwrap();
        trained.save(folder.path().join(name), Some(&trained), 256).unwrap();
    }
    let script = "
import json, pathlib, sys
from transformers import AutoTokenizer, PreTrainedTokenizerFast
folder = pathlib.Path(sys.argv[1])
texts = json.loads((folder / 'texts').read_text(encoding='utf-8'))
answers = []
for name in sys.argv[2:]:
    tokenizer = AutoTokenizer.from_pretrained(folder / name)
    assert (tokenizer.eos_token_id, tokenizer.unk_token_id, tokenizer.pad_token_id) == (0, 1, 2)
    assert tokenizer.additional_special_tokens == ['>>deu<<'] and tokenizer.model_max_length == 256
    ids = [tokenizer(text).input_ids for text in texts]
    target = PreTrainedTokenizerFast(tokenizer_file=str(folder / name / 'target_tokenizer.json'))
    assert ids == [target(text).input_ids for text in texts]
    answers.append([ids, [tokenizer.decode(i, skip_special_tokens=True) for i in ids]])
print(json.dumps(answers))
";
    let output =
        Command::new(&python).args(["-c", script]).arg(folder.path()).args(names).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers: Vec<(Vec<Vec<i64>>, Vec<String>)> =
        serde_json::from_slice(&output.stdout).unwrap();
    for ((ids, decoded), name) in answers.iter().zip(names) {
        let tokenizer = Tokenizer::from_folder(folder.path().join(name)).unwrap();
        assert_eq!(ids.len(), texts.len());
        for ((text, ids), decoded) in texts.iter().zip(ids).zip(decoded) {
            assert_eq!(tokenizer.encode(text).unwrap(), *ids, "{name}: {text:?}");
            assert_eq!(tokenizer.decode(ids).unwrap(), *decoded, "{name}: {text:?}");
        }
    }
}
