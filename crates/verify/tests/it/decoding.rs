//! `testdata/golden/decoding`: what transformers decodes, scores and attends to under many options,
//! on every engine.

use crate::engines::everywhere;
use cognate_generate::{
    Decoder, Event, Hypothesis, SentenceBatch, SessionDecoder, Settings, alignment_layer, decode,
    score,
};
use cognate_model::{Attentions, Model};
use cognate_testing::{Golden, golden, testdata};
use serde_json::{Map, Value};
use std::ops::ControlFlow;

const MODELS: [&str; 8] = ["bart", "m2m100", "marian", "mbart", "mt5", "pegasus", "t5", "t5-gated"];

/// Rows of options for every model, each for three sources.
const N_ROWS: usize = 49;

/// The largest difference of log-probabilities to PyTorch's, and of scores relative to these.
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
        let sources = unpadded_sources(&Golden::open(name));
        Self { name: name.to_owned(), model: Model::open(&golden(name)).unwrap(), sources, answers }
    }

    /// The model's settings with some fields of `generation_config.json` changed, `null` taking one
    /// away.
    pub(crate) fn settings(&self, options: &Map<String, Value>) -> Settings {
        let text =
            std::fs::read_to_string(golden(&self.name).join("generation_config.json")).unwrap();
        let mut fields: Map<String, Value> = serde_json::from_str(&text).unwrap();
        fields.extend(options.clone());
        fields.remove("prefix");
        Settings::from_json(
            self.model.config_json(),
            Some(&Value::Object(fields).to_string()),
            self.model.config(),
        )
        .unwrap()
    }

    pub(crate) fn decoders(&self) -> Vec<SessionDecoder> {
        let (encoders, steps) = (
            everywhere(&self.model.encode().unwrap()),
            everywhere(&self.model.step(Attentions::Cross).unwrap()),
        );
        let pad_token = self.settings(&Map::new()).pad_token;
        encoders
            .into_iter()
            .zip(steps)
            .map(|(encoder, step)| SessionDecoder::new(encoder, step, pad_token).unwrap())
            .collect()
    }
}

/// The sources of a golden model, without padding.
pub(crate) fn unpadded_sources(expected: &Golden) -> Vec<Vec<i64>> {
    let (ids, mask) = (expected.ids("input_ids"), expected.ids("attention_mask"));
    let rows = ids.data.chunks(ids.shape[1]).zip(mask.data.chunks(ids.shape[1]));
    rows.map(|(ids, mask)| {
        ids.iter().zip(mask).filter(|(_, mask)| **mask == 1).map(|(id, _)| *id).collect()
    })
    .collect()
}

pub(crate) fn ids(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
}

/// What a row of the table asks for.
pub(crate) struct Asked {
    pub(crate) settings: Settings,
    sources: Vec<Vec<i64>>,
    /// What every target begins with.
    prefixes: Vec<Vec<i64>>,
}

impl Asked {
    pub(crate) fn new(subject: &Subject, row: &Value) -> Self {
        let options = row["options"].as_object().unwrap();
        let prefix = options.get("prefix").map(|prefix| vec![ids(prefix); subject.sources.len()]);
        // A source whose choices are too near to each other makes place for another.
        let others =
            row.get("sources").map(|sources| sources.as_array().unwrap().iter().map(ids).collect());
        let sources = others.unwrap_or_else(|| subject.sources.clone());
        Self { settings: subject.settings(options), sources, prefixes: prefix.unwrap_or_default() }
    }

    pub(crate) fn batch(&self) -> SentenceBatch<'_> {
        SentenceBatch { sources: (&self.sources).into(), prefixes: &self.prefixes, numbers: &[] }
    }
}

/// The largest difference of a score relative to transformers', or why `found` is not what
/// transformers returned.
fn difference(found: &[Hypothesis], expected: &Value) -> Result<f32, String> {
    // Where fewer hypotheses are possible than asked for, transformers fills up with rows of this
    // score.
    let is_real =
        |row: &&Value| row.get("score").is_none_or(|score| score.as_f64().unwrap() > -1e8);
    let expected: Vec<_> = expected.as_array().unwrap().iter().filter(is_real).collect();
    if found.len() != expected.len() {
        return Err(format!("{} hypotheses, expected {}", found.len(), expected.len()));
    }
    let mut worst = 0.0_f32;
    for (rank, (found, expected)) in found.iter().zip(expected).enumerate() {
        let tokens = ids(&expected["tokens"]);
        if (&found.tokens, found.complete) != (&tokens, expected["complete"].as_bool().unwrap()) {
            return Err(format!(
                "hypothesis {rank}: {:?} complete {}, expected {expected}",
                found.tokens, found.complete
            ));
        }
        let Some(score) = expected.get("score").map(|score| score.as_f64().unwrap() as f32) else {
            continue;
        };
        // A score of 0 has to be 0.
        let difference =
            if found.score == score { 0.0 } else { (found.score - score).abs() / score.abs() };
        if difference.is_nan() || difference > BOUND {
            return Err(format!("hypothesis {rank}: score {}, expected {score}", found.score));
        }
        worst = worst.max(difference);
    }
    Ok(worst)
}

pub(crate) fn silent(_: Event<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn every_option_decodes_as_transformers() {
    let subjects = std::thread::scope(|scope| {
        let running = MODELS.map(|name| scope.spawn(move || differences(&Subject::open(name))));
        running.map(|subject| subject.join().unwrap())
    });
    let failures: Vec<_> = subjects.iter().flat_map(|subject| &subject.failures).cloned().collect();
    assert!(failures.is_empty(), "{} from transformers:\n{}", failures.len(), failures.join("\n"));
    let (recorded, compared) = subjects
        .iter()
        .fold((0, 0), |sum, subject| (sum.0 + subject.recorded, sum.1 + subject.compared));
    let (engines, worst) =
        (subjects[0].engines, subjects.iter().map(|subject| subject.worst).fold(0.0, f32::max));
    eprintln!(
        "{compared} answers on each of {engines} engines, {} left out; scores differ by at most {worst:.1e} of theirs",
        recorded - compared
    );
    assert_eq!(
        (recorded, compared),
        (MODELS.len() * N_ROWS * 3, MODELS.len() * N_ROWS * 3),
        "answers recorded, and compared"
    );
}

/// How one model decodes on all engines.
#[derive(Default)]
struct Differences {
    engines: usize,
    /// Answers in the table, and those that each engine was compared with.
    recorded: usize,
    compared: usize,
    /// What of any engine differs, a line each.
    failures: Vec<String>,
    /// The largest relative difference of a score.
    worst: f32,
}

fn differences(subject: &Subject) -> Differences {
    let table = subject.answers["decoded"].as_object().unwrap();
    let answers = table.values().map(|row| row["answers"].as_array().unwrap());
    let mut differences =
        Differences { recorded: answers.map(Vec::len).sum(), ..Differences::default() };
    for mut decoder in subject.decoders() {
        (differences.engines, differences.compared) = (differences.engines + 1, 0);
        for (name, row) in table {
            let asked = Asked::new(subject, row);
            let found = decode(&mut decoder, &asked.batch(), &asked.settings, &mut silent).unwrap();
            let answers = row["answers"].as_array().unwrap().iter().enumerate();
            for (sentence, expected) in answers.filter(|(_, expected)| !expected.is_null()) {
                differences.compared += 1;
                match difference(&found[sentence], expected) {
                    Ok(worst) => differences.worst = differences.worst.max(worst),
                    Err(why) => {
                        let line = format!(
                            "{} {name} source {sentence}, {}: {why}",
                            subject.name,
                            decoder.engine()
                        );
                        differences.failures.push(line);
                    }
                }
            }
        }
    }
    differences
}

#[test]
fn sentences_with_prefixes_of_their_own_do_not_depend_on_each_other() {
    let subject = Subject::open("t5-gated");
    let mut decoder = subject.decoders().remove(0);
    let prefixes = [vec![17, 5], Vec::new(), vec![30, 40, 50, 60]];
    for (name, row) in subject.answers["decoded"].as_object().unwrap() {
        let settings = Asked::new(&subject, row).settings;
        if prefixes.iter().any(|prefix| prefix.len() + 1 >= settings.max_length) {
            continue;
        }
        let batch =
            SentenceBatch { sources: (&subject.sources).into(), prefixes: &prefixes, numbers: &[] };
        let together = decode(&mut decoder, &batch, &settings, &mut silent).unwrap();
        for sentence in 0..subject.sources.len() {
            let range = sentence..=sentence;
            let batch = SentenceBatch {
                sources: (&subject.sources[range.clone()]).into(),
                prefixes: &prefixes[range],
                numbers: &[],
            };
            let alone = decode(&mut decoder, &batch, &settings, &mut silent).unwrap().remove(0);
            assert!(
                alone.iter().all(|found| found.tokens.starts_with(&prefixes[sentence])),
                "{name} {sentence}"
            );
            let tokens = |found: &[Hypothesis]| {
                found.iter().map(|found| found.tokens.clone()).collect::<Vec<_>>()
            };
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
            let plain =
                score(&mut decoder, &SentenceBatch::new(&subject.sources), &targets, &settings)
                    .unwrap();
            let batch = SentenceBatch {
                sources: (&subject.sources).into(),
                prefixes: &prefixes,
                numbers: &[],
            };
            let after_prefix = score(&mut decoder, &batch, &targets, &settings).unwrap();
            for ((expected, plain), after) in expected.iter().zip(&plain).zip(&after_prefix) {
                let expected: Vec<_> = expected["log_probabilities"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|log| log.as_f64().unwrap() as f32)
                    .collect();
                let worst = expected
                    .iter()
                    .zip(&plain.log_probabilities)
                    .map(|(a, b)| (a - b).abs())
                    .fold(0.0, f32::max);
                let total = (expected.iter().sum::<f32>() - plain.total).abs();
                if plain.log_probabilities.len() != expected.len() || worst > BOUND || total > BOUND
                {
                    failures.push(format!(
                        "{}, {}: {worst:e}, in all {total:e}",
                        subject.name,
                        decoder.engine()
                    ));
                }
                assert_eq!(after.log_probabilities, plain.log_probabilities[2..]);
            }
        }
    }
    assert!(failures.is_empty(), "from PyTorch:\n{}", failures.join("\n"));
}

#[test]
fn alignments_are_those_of_transformers_attention() {
    let (mut failures, mut compared, mut recorded) = (Vec::new(), 0, 0);
    for subject in MODELS.map(Subject::open) {
        let n_layers = subject.model.config().decoder.n_layers;
        assert_eq!(alignment_layer(subject.model.config()), n_layers - 2);
        let table = subject.answers["aligned"].as_object().unwrap();
        let decoders = subject.decoders();
        let answers = table
            .values()
            .flat_map(|answers| answers.as_array().unwrap())
            .flat_map(|answer| answer.as_array().unwrap());
        recorded +=
            decoders.len() * answers.map(|layer| layer.as_array().unwrap().len()).sum::<usize>();
        for mut decoder in decoders {
            for (name, answers) in table {
                for layer_index in 0..n_layers {
                    let mut asked = Asked::new(&subject, &subject.answers["decoded"][name]);
                    asked.settings.alignment_layer = Some(layer_index);
                    let found =
                        decode(&mut decoder, &asked.batch(), &asked.settings, &mut silent).unwrap();
                    for (sentence, answer) in answers.as_array().unwrap().iter().enumerate() {
                        let (expected, found) = (ids(&answer[layer_index]), &found[sentence][0]);
                        assert_eq!(
                            (found.alignment.len(), found.alignment.len()),
                            (found.tokens.len(), expected.len())
                        );
                        for (token, (&place, expected)) in
                            found.alignment.iter().zip(expected).enumerate()
                        {
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
    assert!(
        failures.is_empty(),
        "{} of {compared} from transformers:\n{}",
        failures.len(),
        failures.join("\n")
    );
    eprintln!("{compared} aligned tokens on all engines, {} left out", recorded - compared);
    assert!(compared == recorded && compared > 4000, "{compared} of {recorded}");
}

#[test]
fn a_decoder_without_attentions_says_how_to_get_them() {
    let subject = Subject::open("t5");
    let graphs = [subject.model.encode().unwrap(), subject.model.step(Attentions::Omit).unwrap()];
    let [encoder, step] = graphs.map(|graph| everywhere(&graph).remove(0));
    let mut decoder = SessionDecoder::new(encoder, step, 0).unwrap();
    let settings = Settings { alignment_layer: Some(0), ..subject.settings(&Map::new()) };
    let error = decode(&mut decoder, &SentenceBatch::new(&subject.sources), &settings, &mut silent)
        .unwrap_err()
        .to_string();
    insta::assert_snapshot!(error, @"decoder: expected an output cross_attentions.0, found none; export with --attentions");
}
