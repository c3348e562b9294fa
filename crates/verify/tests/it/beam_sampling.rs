//! Beam search that draws, against transformers' (`testdata/golden/decoding`).

use crate::decoding::{Asked, Subject, ids, silent};
use cognate_generate::{Sampling, SentenceBatch, decode};
use cognate_testing::testdata;
use serde_json::Value;
use std::collections::HashMap;

/// Among probabilities this sharp the likeliest continuations are drawn, in their order: it is beam
/// search, with larger scores.
const COLD: f32 = 1e-5;

#[test]
fn cold_draws_are_those_of_beam_search() {
    let (mut failures, mut compared) = (Vec::new(), 0);
    for name in ["bart", "marian", "t5-gated"] {
        let subject = Subject::open(name);
        // ONNX Runtime, or tract.
        let mut decoder = subject.decoders().pop().unwrap();
        for (row_name, row) in subject.answers["decoded"].as_object().unwrap() {
            let mut asked = Asked::new(&subject, row);
            // What is renormalised is as large as ever.
            if asked.settings.num_beams == 1 || asked.settings.renormalize {
                continue;
            }
            asked.settings.sampling =
                Some(Sampling { temperature: COLD, top_k: 0, ..Sampling::default() });
            let found = decode(&mut decoder, &asked.batch(), &asked.settings, &mut silent).unwrap();
            for (sentence, expected) in row["answers"].as_array().unwrap().iter().enumerate() {
                let Some(expected) = expected.as_array() else { continue };
                for (rank, (found, expected)) in found[sentence].iter().zip(expected).enumerate() {
                    compared += 1;
                    let score = expected["score"].as_f64().unwrap() as f32;
                    let is_near = (found.score * COLD - score).abs() < 1e-3 * score.abs().max(1.0);
                    if found.tokens != ids(&expected["tokens"]) || !is_near {
                        let (tokens, score) = (&found.tokens, found.score * COLD);
                        failures.push(format!("{name} {row_name} source {sentence} rank {rank}: {tokens:?} {score}, expected {expected}"));
                    }
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {compared} from beam search:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(compared > 300, "{compared}");
}

/// Pearson's statistic for two samples of one distribution, over the cells of `counts` (theirs,
/// ours) and one of all that is left.
fn chi_square(counts: &[(u32, u32)], theirs: u32, ours: u32) -> f64 {
    let seen = counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    let all = counts.iter().copied().chain([(theirs - seen.0, ours - seen.1)]);
    let ratio = (f64::from(ours) / f64::from(theirs)).sqrt();
    let term = |(theirs, ours): (u32, u32)| {
        (f64::from(theirs) * ratio - f64::from(ours) / ratio).powi(2) / f64::from(theirs + ours)
    };
    all.filter(|(theirs, ours)| theirs + ours > 0).map(term).sum()
}

#[test]
fn sequences_are_as_frequent_as_in_transformers() {
    const DRAWS: u32 = 1_000;
    let text = std::fs::read_to_string(testdata("golden/decoding/beam_samples.json")).unwrap();
    let samples: Value = serde_json::from_str(&text).unwrap();
    let mut failures = Vec::new();
    for (name, table) in samples.as_object().unwrap() {
        let subject = Subject::open(name);
        // ONNX Runtime, or tract.
        let mut decoder = subject.decoders().pop().unwrap();
        for (row_name, row) in table.as_object().unwrap() {
            let mut options = row["options"].as_object().unwrap().clone();
            options.insert("do_sample".into(), true.into());
            let settings = subject.settings(&options);
            let sources = vec![subject.sources[0].clone(); 250];
            let mut counts: HashMap<(Vec<i64>, bool), u32> = HashMap::new();
            for first in (0..u64::from(DRAWS)).step_by(sources.len()) {
                let numbers: Vec<u64> = (first..).take(sources.len()).collect();
                let batch =
                    SentenceBatch { sources: (&sources).into(), prefixes: &[], numbers: &numbers };
                for found in decode(&mut decoder, &batch, &settings, &mut silent).unwrap() {
                    *counts.entry((found[0].tokens.clone(), found[0].complete)).or_default() += 1;
                }
            }
            let often = row["often"].as_array().unwrap().iter().map(|often| {
                let key = (ids(&often["tokens"]), often["complete"].as_bool().unwrap());
                (often["count"].as_u64().unwrap() as u32, counts.get(&key).copied().unwrap_or(0))
            });
            let often: Vec<_> = often.collect();
            assert!(often.len() >= 3, "{name} {row_name}");
            let statistic = chi_square(&often, row["draws"].as_u64().unwrap() as u32, DRAWS);
            // Wilson and Hilferty's quantile of 1 in 10,000.
            let freedom = often.len() as f64;
            let bound = freedom
                * (1.0 - 2.0 / (9.0 * freedom) + 3.719 * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
            eprintln!(
                "{name} {row_name}: {statistic:.1} over {} cells, at most {bound:.1}",
                often.len() + 1
            );
            if statistic > bound {
                failures
                    .push(format!("{name} {row_name}: {statistic}, at most {bound}: {often:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
