//! `testdata/golden/decoding`: what transformers decodes, scores and attends to under many options, on every engine.

use crate::engines::everywhere;
use cognate_generate::{Batch, Decoder, Event, Hypothesis, SessionDecoder, Settings, alignment_layer, decode, score};
use cognate_model::{Attentions, Model};
use cognate_testing::{Golden, golden, testdata};
use serde_json::{Map, Value};
use std::ops::ControlFlow;

const MODELS: [&str; 8] = ["bart", "m2m100", "marian", "mbart", "mt5", "pegasus", "t5", "t5-gated"];

/// The largest difference of scores and log-probabilities to PyTorch's.
const BOUND: f32 = 1e-4;

/// A golden model with what transformers answers for it.
pub(crate) struct Subject {
    name: String,
    model: Model,
    pub(crate) sources: Vec<Vec<i64>>,
    pub(crate) answers: Value,
}

impl Subject {
    pub(crate) fn open(name: &str) -> Self {
        let path = testdata("golden/decoding").join(format!("{name}.json"));
        let answers = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let expected = Golden::open(name);
        let (ids, mask) = (expected.ids("input_ids"), expected.ids("attention_mask"));
        let rows = ids.data.chunks(ids.shape[1]).zip(mask.data.chunks(ids.shape[1]));
        let unpadded = rows.map(|(ids, mask)| ids.iter().zip(mask).filter(|(_, mask)| **mask == 1).map(|(id, _)| *id).collect());
        Self { name: name.to_owned(), model: Model::open(&golden(name)).unwrap(), sources: unpadded.collect(), answers }
    }

    /// The model's settings with some fields of `generation_config.json` changed, `null` taking one away.
    pub(crate) fn settings(&self, options: &Map<String, Value>) -> Settings {
        let text = std::fs::read_to_string(golden(&self.name).join("generation_config.json")).unwrap();
        let mut fields: Map<String, Value> = serde_json::from_str(&text).unwrap();
        fields.extend(options.clone());
        fields.remove("prefix");
        Settings::from_json(self.model.config_json(), Some(&Value::Object(fields).to_string()), self.model.config()).unwrap()
    }

    pub(crate) fn decoders(&self) -> Vec<SessionDecoder> {
        let (encoders, steps) = (everywhere(&self.model.encode().unwrap()), everywhere(&self.model.step(Attentions::Cross).unwrap()));
        let pad_token = self.settings(&Map::new()).pad_token;
        encoders.into_iter().zip(steps).map(|(encoder, step)| SessionDecoder::new(encoder, step, pad_token).unwrap()).collect()
    }
}

pub(crate) fn ids(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
}

/// What a row of the table asks for: settings, and the prefix of every target.
pub(crate) fn asked(subject: &Subject, row: &Value) -> (Settings, Vec<Vec<i64>>) {
    let options = row["options"].as_object().unwrap();
    let prefix = options.get("prefix").map(|prefix| vec![ids(prefix); subject.sources.len()]);
    (subject.settings(options), prefix.unwrap_or_default())
}

/// Why `found` is not what transformers returned, if so.
fn difference(found: &[Hypothesis], expected: &Value, settings: &Settings, prefix_len: usize) -> Option<String> {
    // Where fewer hypotheses are possible than asked for, transformers fills up with rows of this score.
    let is_real = |row: &&Value| row.get("score").is_none_or(|score| score.as_f64().unwrap() > -1e8);
    let expected: Vec<_> = expected.as_array().unwrap().iter().filter(is_real).collect();
    if found.len() != expected.len() {
        return Some(format!("{} hypotheses, expected {}", found.len(), expected.len()));
    }
    found.iter().zip(expected).enumerate().find_map(|(rank, (found, expected))| {
        let tokens = ids(&expected["tokens"]);
        if (&found.tokens, found.complete) != (&tokens, expected["complete"].as_bool().unwrap()) {
            return Some(format!("hypothesis {rank}: {:?} complete {}, expected {expected}", found.tokens, found.complete));
        }
        let score = expected.get("score")?.as_f64().unwrap() as f32;
        // A negative penalty multiplies log-probabilities, and their rounding.
        let length = (tokens.len() - prefix_len + 1) as f32;
        ((found.score - score).abs() > BOUND * length.powf(-settings.length_penalty).max(1.0))
            .then(|| format!("hypothesis {rank}: score {}, expected {score}", found.score))
    })
}

pub(crate) fn silent(_: Event) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn every_option_decodes_as_transformers() {
    let subjects = std::thread::scope(|scope| {
        let running = MODELS.map(|name| scope.spawn(move || differences(&Subject::open(name))));
        running.map(|subject| subject.join().unwrap())
    });
    let (compared, failures): (Vec<usize>, Vec<Vec<String>>) = subjects.into_iter().unzip();
    let failures = failures.concat();
    assert!(failures.is_empty(), "{} from transformers:\n{}", failures.len(), failures.join("\n"));
    // More than 40 rows of options for three sources, whatever engines there are.
    assert!(compared.iter().all(|&compared| compared > 40 * 3), "{compared:?}");
}

/// How many answers one engine was compared with, and what of any engine differs, a line each.
fn differences(subject: &Subject) -> (usize, Vec<String>) {
    let (mut compared, mut failures) = (0, Vec::new());
    let table = subject.answers["decoded"].as_object().unwrap();
    for mut decoder in subject.decoders() {
        compared = 0;
        for (name, row) in table {
            let (settings, prefixes) = asked(subject, row);
            let batch = Batch { sources: &subject.sources, prefixes: &prefixes, numbers: &[] };
            let found = decode(&mut decoder, &batch, &settings, &mut silent).unwrap();
            for (sentence, expected) in row["answers"].as_array().unwrap().iter().enumerate().filter(|(_, expected)| !expected.is_null()) {
                compared += 1;
                let prefix_len = prefixes.first().map_or(0, Vec::len);
                if let Some(difference) = difference(&found[sentence], expected, &settings, prefix_len) {
                    failures.push(format!("{} {name} source {sentence}, {}: {difference}", subject.name, decoder.engine()));
                }
            }
        }
    }
    (compared, failures)
}

#[test]
fn sentences_with_prefixes_of_their_own_do_not_depend_on_each_other() {
    let subject = Subject::open("t5-gated");
    let mut decoder = subject.decoders().remove(0);
    let prefixes = [vec![17, 5], Vec::new(), vec![30, 40, 50, 60]];
    for (name, row) in subject.answers["decoded"].as_object().unwrap() {
        let (settings, _) = asked(&subject, row);
        if prefixes.iter().any(|prefix| prefix.len() + 1 >= settings.max_length) {
            continue;
        }
        let batch = Batch { sources: &subject.sources, prefixes: &prefixes, numbers: &[] };
        let together = decode(&mut decoder, &batch, &settings, &mut silent).unwrap();
        for sentence in 0..subject.sources.len() {
            let range = sentence..=sentence;
            let batch = Batch { sources: &subject.sources[range.clone()], prefixes: &prefixes[range], numbers: &[] };
            let alone = decode(&mut decoder, &batch, &settings, &mut silent).unwrap().remove(0);
            assert!(alone.iter().all(|found| found.tokens.starts_with(&prefixes[sentence])), "{name} {sentence}");
            let tokens = |found: &[Hypothesis]| found.iter().map(|found| found.tokens.clone()).collect::<Vec<_>>();
            assert_eq!(tokens(&together[sentence]), tokens(&alone), "{name} {sentence}");
        }
    }
}

#[test]
fn targets_score_as_in_pytorch() {
    let mut failures = Vec::new();
    for subject in MODELS.map(Subject::open) {
        let settings = subject.settings(&Map::new());
        let expected = subject.answers["scored"].as_array().unwrap();
        let targets: Vec<_> = expected.iter().map(|row| ids(&row["target"])).collect();
        let prefixes: Vec<_> = targets.iter().map(|target| target[..2].to_vec()).collect();
        for mut decoder in subject.decoders() {
            let plain = score(&mut decoder, &Batch::new(&subject.sources), &targets, &settings).unwrap();
            let batch = Batch { sources: &subject.sources, prefixes: &prefixes, numbers: &[] };
            let after_prefix = score(&mut decoder, &batch, &targets, &settings).unwrap();
            for ((expected, plain), after) in expected.iter().zip(&plain).zip(&after_prefix) {
                let expected: Vec<_> =
                    expected["log_probabilities"].as_array().unwrap().iter().map(|log| log.as_f64().unwrap() as f32).collect();
                let worst = expected.iter().zip(&plain.log_probabilities).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                let total = (expected.iter().sum::<f32>() - plain.total).abs();
                if plain.log_probabilities.len() != expected.len() || worst > BOUND || total > BOUND {
                    failures.push(format!("{}, {}: {worst:e}, in all {total:e}", subject.name, decoder.engine()));
                }
                assert_eq!(after.log_probabilities, plain.log_probabilities[2..]);
            }
        }
    }
    assert!(failures.is_empty(), "from PyTorch:\n{}", failures.join("\n"));
}

#[test]
fn alignments_are_those_of_transformers_attention() {
    let (mut failures, mut compared) = (Vec::new(), 0);
    for subject in MODELS.map(Subject::open) {
        let n_layers = subject.model.config().decoder.n_layers;
        assert_eq!(alignment_layer(subject.model.config()), n_layers - 2);
        for mut decoder in subject.decoders() {
            for (name, answers) in subject.answers["aligned"].as_object().unwrap() {
                for layer_index in 0..n_layers {
                    let (mut settings, prefixes) = asked(&subject, &subject.answers["decoded"][name]);
                    settings.alignment_layer = Some(layer_index);
                    let batch = Batch { sources: &subject.sources, prefixes: &prefixes, numbers: &[] };
                    let found = decode(&mut decoder, &batch, &settings, &mut silent).unwrap();
                    let answers = answers.as_array().unwrap().iter().enumerate().filter(|(_, answer)| !answer.is_null());
                    for (sentence, answer) in answers {
                        let (expected, found) = (ids(&answer[layer_index]), &found[sentence][0]);
                        assert_eq!((found.alignment.len(), found.alignment.len()), (found.tokens.len(), expected.len()));
                        let places = found.alignment.iter().zip(expected).enumerate();
                        for (token, (&place, expected)) in places.filter(|(_, (_, expected))| *expected >= 0) {
                            compared += 1;
                            if place as i64 != expected {
                                let engine = decoder.engine();
                                failures.push(format!(
                                    "{} {name} layer {layer_index} source {sentence} token {token}, {engine}: {place}, expected {expected}",
                                    subject.name
                                ));
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {compared} from transformers:\n{}", failures.len(), failures.join("\n"));
    assert!(compared > 5000, "{compared}");
}

#[test]
fn a_decoder_without_attentions_says_how_to_get_them() {
    let subject = Subject::open("t5");
    let graphs = [subject.model.encode().unwrap(), subject.model.step(Attentions::Omit).unwrap()];
    let [encoder, step] = graphs.map(|graph| everywhere(&graph).remove(0));
    let mut decoder = SessionDecoder::new(encoder, step, 0).unwrap();
    let settings = Settings { alignment_layer: Some(0), ..subject.settings(&Map::new()) };
    let error = decode(&mut decoder, &Batch::new(&subject.sources), &settings, &mut silent).unwrap_err().to_string();
    insta::assert_snapshot!(error, @"decoder: expected an output cross_attentions.0, found none; export with --attentions");
}
