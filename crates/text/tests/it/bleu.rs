//! Expected scores: sacreBLEU 2.6.0 (`testdata/bleu/README.md`,
//! `testdata/multi30k-en-de/README.md`).

use cognate_testing::{shared_multi30k, testdata};
use cognate_text::{Bleu, corpus_bleu, read_lines};
use insta::assert_snapshot;

use crate::json;

/// Absolute, on a scale of 100: `ln` and `exp` of different C libraries differ in the last bits
/// only.
const TOLERANCE: f64 = 1e-9;

#[derive(serde::Deserialize)]
struct Cases {
    signature: String,
    corpora: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    hypotheses: Vec<String>,
    references: Vec<String>,
    score: f64,
    precisions: [f64; 4],
    brevity_penalty: f64,
    sys_len: usize,
    ref_len: usize,
    display: String,
}

#[test]
fn every_part_of_the_score_is_sacrebleus() {
    let cases: Cases = json("bleu/cases.json");
    assert!(cases.corpora.len() > 70, "{} corpora", cases.corpora.len());
    let failures: Vec<String> =
        cases.corpora.iter().filter_map(|case| check(case, &cases.signature).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn check(case: &Case, signature: &str) -> Result<(), String> {
    let bleu = corpus_bleu(&case.hypotheses, &case.references).map_err(|e| e.to_string())?;
    let close = |found: f64, expected: f64| (found - expected).abs() <= TOLERANCE;
    let equal = close(bleu.score, case.score)
        && bleu.precisions.iter().zip(&case.precisions).all(|(&p, &q)| close(p, q))
        && close(bleu.brevity_penalty, case.brevity_penalty)
        && (bleu.sys_len, bleu.ref_len) == (case.sys_len, case.ref_len)
        && bleu.to_string() == case.display
        && bleu.signature == signature;
    match equal {
        true => Ok(()),
        false => Err(format!("{}: expected {}, found {bleu} ({bleu:?})", case.name, case.display)),
    }
}

#[test]
fn the_bundled_models_translations_have_their_scores() {
    let Some(text) = shared_multi30k() else { return };
    let references = read_lines(text.join("test_2016_flickr.de")).unwrap();
    let bleu = |name: &str| -> Bleu {
        let file = testdata(&format!("multi30k-en-de/reference/test_2016_flickr.{name}.de"));
        corpus_bleu(&read_lines(file).unwrap(), &references).unwrap()
    };
    assert_snapshot!(bleu("greedy"), @"BLEU = 38.57 67.9/44.3/31.8/23.1 (BP = 1.000 ratio = 1.003 hyp_len = 12147 ref_len = 12106)");
    assert_snapshot!(bleu("beam5"), @"BLEU = 39.81 69.0/45.7/33.0/24.1 (BP = 1.000 ratio = 1.001 hyp_len = 12121 ref_len = 12106)");
}

#[test]
fn sentences_without_a_counterpart_are_refused() {
    let error = |hypotheses: &[&str], references: &[&str]| {
        corpus_bleu(hypotheses, references).unwrap_err().to_string()
    };
    assert_snapshot!(error(&["a", "b"], &["a"]), @"2 hypotheses for 1 references; expected one reference per hypothesis");
    assert_snapshot!(error(&[], &[]), @"no sentences; expected at least one hypothesis and its reference");
}
