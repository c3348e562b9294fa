//! Tokenizers of every family, read from their own files (`testdata/tokenizers/README.md`), against
//! transformers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;

use cognate_testing::{shared_multi30k, testdata};
use cognate_text::{StreamingText, TargetLanguage, Tokenizer, read_lines};
use serde::Deserialize;
use serde_json::Value;

use crate::json;

#[derive(Deserialize)]
pub(crate) struct Cases {
    hard: Vec<String>,
    pub(crate) cases: Vec<Case>,
}

#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// Parts of files, which lie in `models/`, by the files' names in the folder.
    files: BTreeMap<String, Vec<String>>,
    json: BTreeMap<String, Value>,
    languages: Option<(Option<String>, Option<String>)>,
}

/// Ids and their text.
type Answer = (Vec<i64>, String);

#[derive(Deserialize)]
struct Expected {
    largest_id: usize,
    target: Option<(String, i64)>,
    hard: Vec<Answer>,
    decoded: Vec<Answer>,
    multi30k: Vec<String>,
}

impl Case {
    /// Puts the folder together.
    pub(crate) fn write(&self, folder: &Path) {
        for (name, parts) in &self.files {
            let parts = parts
                .iter()
                .map(|part| fs::read(testdata("tokenizers/models").join(part)).unwrap());
            fs::write(folder.join(name), parts.collect::<Vec<_>>().concat()).unwrap();
        }
        for (name, value) in &self.json {
            fs::write(folder.join(name), value.to_string()).unwrap();
        }
    }

    fn tokenizer(&self) -> Tokenizer {
        let folder = tempfile::tempdir().unwrap();
        self.write(folder.path());
        let tokenizer = Tokenizer::from_folder(folder.path())
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let (source, target) = self.languages.clone().unwrap_or_default();
        tokenizer
            .with_languages(source.as_deref(), target.as_deref())
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

pub(crate) fn cases() -> Cases {
    json("tokenizers/cases.json")
}

/// Calls `check` with every case, on two threads; it gives its failures.
fn check_all(check: impl Fn(&Tokenizer, &Expected, &Cases) -> Vec<String> + Sync) {
    let cases = cases();
    let expected: BTreeMap<String, Expected> = json("tokenizers/expected.json");
    assert_eq!(cases.cases.len(), expected.len());
    let check_some = |some: &[Case]| {
        let failures = some.iter().flat_map(|case| {
            let found = check(&case.tokenizer(), &expected[&case.name], &cases);
            found.into_iter().map(|failure| format!("{}: {failure}", case.name)).collect::<Vec<_>>()
        });
        failures.collect::<Vec<_>>()
    };
    let (first, second) = cases.cases.split_at(cases.cases.len() / 2);
    let mut failures = thread::scope(|scope| {
        let first = scope.spawn(|| check_some(first));
        let second = check_some(second);
        [first.join().unwrap(), second].concat()
    });
    let n_failures = failures.len();
    failures.truncate(200);
    assert!(failures.is_empty(), "{n_failures} failures\n{}", failures.join("\n"));
}

#[test]
fn hard_texts_have_the_ids_of_transformers() {
    check_all(|tokenizer, expected, cases| {
        assert_eq!(cases.hard.len(), expected.hard.len());
        let pairs = cases.hard.iter().zip(&expected.hard);
        let found = pairs.map(|(text, (ids, _))| (text, ids, tokenizer.encode(text).unwrap()));
        let wrong = found.filter(|(_, ids, found)| *ids != found);
        wrong
            .map(|(text, ids, found)| format!("{text:?}: expected {ids:?}, found {found:?}"))
            .collect()
    });
}

#[test]
fn ids_have_the_texts_of_transformers() {
    check_all(|tokenizer, expected, _| {
        let answers = expected.hard.iter().chain(&expected.decoded);
        let found = answers.map(|(ids, text)| (ids, text, tokenizer.decode(ids).unwrap()));
        let wrong = found.filter(|(_, text, found)| *text != found);
        wrong
            .map(|(ids, text, found)| format!("{ids:?}: expected {text:?}, found {found:?}"))
            .collect()
    });
}

/// Told piece by piece, in the end they are whole: hard texts, and ids in an order that no text
/// has.
#[test]
fn growing_texts_are_the_texts_of_transformers() {
    check_all(|tokenizer, expected, _| {
        let answers = expected.hard.iter().chain(&expected.decoded);
        let told = answers.map(|(ids, text)| {
            let mut growing = StreamingText::new(tokenizer);
            let told: String = ids.iter().map(|id| growing.push(*id).unwrap()).collect();
            (ids, text, told + &growing.finish().unwrap())
        });
        let wrong = told.filter(|(_, text, told)| *text != told);
        wrong
            .map(|(ids, text, told)| format!("{ids:?}: expected {text:?}, told {told:?}"))
            .collect()
    });
}

#[test]
fn languages_and_sizes_are_those_of_transformers() {
    check_all(|tokenizer, expected, _| {
        let target = tokenizer.target_language().map(|target| match target {
            TargetLanguage::Forced(id) => ("forced".to_owned(), id),
            TargetLanguage::Start(id) => ("start".to_owned(), id),
        });
        let found = (target, tokenizer.required_vocab());
        let expected = (expected.target.clone(), expected.largest_id + 1);
        if found == expected {
            Vec::new()
        } else {
            vec![format!("expected {expected:?}, found {found:?}")]
        }
    });
}

#[test]
fn ten_thousand_lines_have_the_ids_and_texts_of_transformers() {
    let Some(folder) = shared_multi30k() else { return };
    let mut lines = Vec::new();
    for (language, count) in [("en", 4000), ("de", 3000), ("fr", 3000)] {
        lines.extend(
            read_lines(folder.join(format!("train.{language}"))).unwrap().into_iter().take(count),
        );
    }
    assert_eq!(lines.len(), 10_000);
    check_all(|tokenizer, expected, _| {
        assert_eq!(expected.multi30k.len(), 100);
        let found = lines.chunks(100).map(|lines| {
            let answers = lines.iter().map(|line| {
                let ids = tokenizer.encode(line).unwrap();
                let words: Vec<String> = ids.iter().map(i64::to_string).collect();
                format!("{}\t{}\n", words.join(" "), tokenizer.decode(&ids).unwrap())
            });
            format!("{:016x}", fnv(&answers.collect::<String>()))
        });
        let wrong = found
            .zip(&expected.multi30k)
            .enumerate()
            .filter(|(_, (found, expected))| found != *expected);
        wrong
            .map(|(index, _)| {
                format!("a line from {} to {} differs", 100 * index + 1, 100 * index + 100)
            })
            .collect()
    });
}

/// FNV-1a, 64 bits: as generate.py computes it.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// transformers 5 saves additional tokens under another name; it gives each of these cases the ids
/// of transformers 4 (checked with 5.24.0).
#[test]
fn special_tokens_have_their_newer_name() {
    let cases = cases();
    let expected: BTreeMap<String, Expected> = json("tokenizers/expected.json");
    let mut n_renamed = 0;
    for mut case in cases.cases {
        for settings in case.json.values_mut().filter_map(Value::as_object_mut) {
            if let Some(tokens) = settings.remove("additional_special_tokens") {
                settings.insert("extra_special_tokens".into(), tokens);
                n_renamed += 1;
            }
        }
        // The older files have no such name.
        if case.json.contains_key("special_tokens_map.json") {
            continue;
        }
        let tokenizer = case.tokenizer();
        for (text, (ids, _)) in cases.hard.iter().zip(&expected[&case.name].hard) {
            assert_eq!(&tokenizer.encode(text).unwrap(), ids, "{}: {text:?}", case.name);
        }
    }
    assert!(n_renamed > 8);
}

#[test]
fn targets_have_the_ids_of_transformers() {
    // `tokenizer(text_target=TEXT, add_special_tokens=False)`; only Marian cuts its two languages
    // differently.
    const TEXT: &str = "Zwei Männer, ein Hund & größere Häuser 😀";
    let expected: [(&str, &[i64]); 5] = [
        (
            "marian",
            &[
                508, 176, 489, 319, 374, 282, 499, 390, 390, 437, 4, 407, 508, 278, 483, 316, 508,
                109, 367, 432, 504, 497, 437, 319, 508, 278, 499, 483, 458, 437, 508, 26, 260, 148,
                19,
            ],
        ),
        (
            "marian-separate",
            &[
                806, 184, 764, 341, 473, 294, 784, 510, 510, 619, 6, 554, 806, 290, 752, 2, 806,
                117, 457, 612, 796, 780, 619, 341, 806, 290, 784, 752, 666, 619, 806, 34, 268, 156,
                27,
            ],
        ),
        (
            "plbart",
            &[
                6, 3, 250, 10, 79, 55, 50, 15, 15, 17, 19, 52, 6, 230, 13, 214, 6, 3, 197, 11, 124,
                157, 17, 10, 6, 230, 50, 13, 9, 17, 6, 3,
            ],
        ),
        (
            "t5",
            &[
                3, 2, 247, 7, 76, 52, 47, 12, 12, 14, 16, 49, 3, 227, 10, 211, 3, 2, 194, 8, 121,
                154, 14, 7, 3, 227, 47, 10, 6, 14, 3, 2,
            ],
        ),
        (
            "bart",
            &[
                62, 91, 73, 77, 225, 49, 132, 102, 82, 82, 274, 16, 225, 73, 261, 225, 44, 272, 72,
                225, 10, 297, 86, 132, 119, 132, 258, 274, 73, 225, 44, 132, 102, 89, 87, 274, 225,
                177, 258, 251, 227,
            ],
        ),
    ];
    let cases = cases().cases;
    for (name, ids) in expected {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        assert_eq!(case.tokenizer().encode_target(TEXT).unwrap(), ids, "{name}");
    }
}

/// A model of two models of text without a tokenizer's class has that of its encoder.
#[test]
fn a_pair_of_models_has_the_tokenizer_of_its_encoder() {
    let folder = tempfile::tempdir().unwrap();
    let vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog", "##s"].join("\n");
    fs::write(folder.path().join("vocab.txt"), vocabulary).unwrap();
    for (config, expected) in [
        (r#"{"model_type": "encoder-decoder", "encoder": {"model_type": "bert"}}"#, true),
        (r#"{"model_type": "bert"}"#, true),
        (r#"{"model_type": "encoder-decoder", "encoder": {"model_type": "gpt2"}}"#, false),
    ] {
        fs::write(folder.path().join("config.json"), config).unwrap();
        let ids = Tokenizer::from_folder(folder.path()).ok().map(|it| it.encode("dogs").unwrap());
        assert_eq!(ids, expected.then(|| vec![2, 5, 6, 3]), "{config}");
    }
}
