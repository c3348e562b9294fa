//! BLEU, chrF and their comparison by resampling. Expected: sacreBLEU 2.6.0
//! (`testdata/bleu/README.md`).

use cognate_text::{
    BleuSettings, ChrfSettings, ErrorRateSettings, ErrorUnit, Metric, Resampling, Score, Smoothing,
    Spelling, Statistics, Words, paired_bootstrap,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use crate::json;

/// Absolute, on a scale of 100: `ln` and `exp` of different C libraries differ in the last bits
/// only.
const TOLERANCE: f64 = 1e-9;

#[derive(Deserialize)]
struct Systems {
    references: Vec<Vec<String>>,
    hypotheses: Vec<Vec<String>>,
    scores: Vec<Scored>,
    paired: Vec<Paired>,
}

#[derive(Deserialize)]
struct Scored {
    metric: String,
    options: Map<String, Value>,
    references: usize,
    signature: String,
    scores: Vec<f64>,
    lines: Vec<String>,
    sentences: Vec<f64>,
}

#[derive(Deserialize)]
struct Paired {
    samples: usize,
    seed: u64,
    references: usize,
    name: String,
    signature: String,
    options: Map<String, Value>,
    /// Score, mean, half the interval, p-value.
    results: Vec<(f64, f64, f64, Option<f64>)>,
}

/// The metric that sacreBLEU's options make.
fn metric(kind: &str, options: &Map<String, Value>) -> Metric {
    let flag = |name: &str| options.get(name).is_some_and(|value| value.as_bool().unwrap());
    let count = |name: &str, default: usize| {
        options.get(name).map_or(default, |value| value.as_u64().unwrap() as usize)
    };
    let value =
        |default: f64| options.get("smooth_value").map_or(default, |value| value.as_f64().unwrap());
    let name = |name: &str, default: &'static str| {
        options.get(name).map_or(default.to_owned(), |value| value.as_str().unwrap().to_owned())
    };
    if kind != "bleu" {
        let standard = ChrfSettings::default();
        return Metric::Chrf(ChrfSettings {
            char_order: count("char_order", standard.char_order),
            word_order: count("word_order", standard.word_order),
            beta: count("beta", standard.beta as usize) as u32,
            lowercase: flag("lowercase"),
            whitespace: flag("whitespace"),
        });
    }
    let all = [Words::V13a, Words::International, Words::Characters, Words::Given];
    let way = name("tokenize", "13a");
    Metric::Bleu(BleuSettings {
        words: all.into_iter().find(|words| words.name() == way).unwrap(),
        lowercase: flag("lowercase"),
        smoothing: match name("smooth_method", "exp").as_str() {
            "exp" => Smoothing::Exponential,
            "floor" => Smoothing::Floor(value(0.1)),
            "add-k" => Smoothing::AddK(value(1.0)),
            "none" => Smoothing::None,
            other => panic!("{other}"),
        },
        effective_order: flag("effective_order"),
    })
}

impl Systems {
    /// What each system's sentences count beside the first references.
    fn statistics(&self, metric: Metric, n_references: usize) -> Vec<Statistics> {
        let references: Vec<&[String]> =
            self.references[..n_references].iter().map(Vec::as_slice).collect();
        self.hypotheses
            .iter()
            .map(|system| metric.statistics(system, &references).unwrap())
            .collect()
    }
}

fn is_near(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= TOLERANCE
}

#[test]
fn scores_and_signatures_are_sacrebleus() {
    let systems: Systems = json("bleu/systems.json");
    let mut failures = Vec::new();
    for row in &systems.scores {
        let metric = metric(&row.metric, &row.options);
        let (name, signature) = (metric.name(), metric.signature(row.references, None));
        let mut fail = |what: String| {
            failures.push(format!(
                "{} {:?}, {} references: {what}",
                row.metric, row.options, row.references
            ))
        };
        if signature != row.signature {
            fail(format!("signature {signature}, expected {}", row.signature));
        }
        let statistics = systems.statistics(metric, row.references);
        for ((found, expected), line) in statistics.iter().zip(&row.scores).zip(&row.lines) {
            let score = found.score();
            let parts = match &score {
                Score::Bleu(bleu) => format!(" {}", bleu.parts()),
                Score::Chrf(_) | Score::ErrorRate(_) => String::new(),
            };
            let shown = format!("{name}|{signature} = {:.2}{parts}", score.value());
            if !is_near(score.value(), *expected) || shown != *line {
                fail(format!("{shown}, expected {line} ({} {expected})", score.value()));
            }
        }
        let wrong = statistics[0].sentence_scores().zip(&row.sentences).enumerate();
        for (index, (found, expected)) in
            wrong.filter(|(_, (found, expected))| !is_near(found.value(), **expected))
        {
            fail(format!("line {}: {}, expected {expected}", index + 1, found.value()));
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
    assert!(systems.scores.len() > 35, "{}", systems.scores.len());
}

#[test]
fn resampled_intervals_and_p_values_are_sacrebleus() {
    let systems: Systems = json("bleu/systems.json");
    let mut failures = Vec::new();
    for row in &systems.paired {
        let metric = metric(if row.name == "BLEU" { "bleu" } else { "chrf" }, &row.options);
        let resampling = Resampling { samples: row.samples, seed: row.seed };
        assert_eq!(metric.signature(row.references, Some(resampling)), row.signature);
        let mut statistics = systems.statistics(metric, row.references);
        // A system beside itself differs by nothing, always.
        statistics.push(statistics[0].clone());
        let found = paired_bootstrap(&statistics, resampling);
        assert_eq!(found.len(), row.results.len());
        for (index, (found, (_, mean, confidence, p_value))) in
            found.iter().zip(&row.results).enumerate()
        {
            let same_p = match (found.p_value, *p_value) {
                (None, None) => true,
                (Some(found), Some(expected)) => (found - expected).abs() < 1e-12,
                (None, Some(_)) | (Some(_), None) => false,
            };
            if !is_near(found.mean, *mean) || !is_near(found.confidence, *confidence) || !same_p {
                failures.push(format!("{} {resampling:?} system {index}: {found:?}, expected {mean} {confidence} {p_value:?}", row.name));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
    assert_eq!(systems.paired.len(), 16);
}

/// By their definition, and with Whisper's basic normaliser. Sentences in the forms of Whisper's
/// normalisers, and error rates of pairs by jiwer (`testdata/transcripts/README.md`).
#[derive(Deserialize)]
struct Transcripts {
    /// As they are, in the basic form, and in the English form.
    texts: Vec<[String; 3]>,
    /// Hypothesis and reference.
    pairs: Vec<[String; 2]>,
    rates: BTreeMap<String, Rates>,
}

#[derive(Deserialize)]
struct Rates {
    wer: f64,
    cer: f64,
    wers: Vec<f64>,
    cers: Vec<f64>,
}

#[test]
fn transcripts_are_normalised_as_whispers() {
    let transcripts: Transcripts = json("transcripts/cases.json");
    let mut failures = Vec::new();
    for [text, basic, english] in &transcripts.texts {
        for (spelling, expected) in [(Spelling::Basic, basic), (Spelling::English, english)] {
            let found = spelling.apply(text);
            if found != *expected {
                failures
                    .push(format!("{text:?}\n  {spelling:?} {found:?}\n  expected {expected:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
    assert!(transcripts.texts.len() > 400, "{}", transcripts.texts.len());
}

#[test]
fn error_rates_are_those_of_jiwer() {
    let transcripts: Transcripts = json("transcripts/cases.json");
    let [hypotheses, references] = [0, 1]
        .map(|side| transcripts.pairs.iter().map(|pair| pair[side].as_str()).collect::<Vec<_>>());
    let mut failures = Vec::new();
    for (name, spelling) in
        [("none", Spelling::Given), ("basic", Spelling::Basic), ("english", Spelling::English)]
    {
        let Rates { wer, cer, wers, cers } = &transcripts.rates[name];
        for (unit, all, each) in [(ErrorUnit::Words, wer, wers), (ErrorUnit::Characters, cer, cers)]
        {
            let metric = Metric::ErrorRate(ErrorRateSettings { unit, spelling, lowercase: false });
            let statistics = metric.statistics(&hypotheses, &[&references]).unwrap();
            let found =
                statistics.sentence_scores().chain([statistics.score()]).map(|score| score.value());
            for (index, (found, expected)) in found.zip(each.iter().chain([all])).enumerate() {
                if !is_near(found, *expected) {
                    failures.push(format!(
                        "{unit:?} {name} {index}: {found}, expected {expected}, {:?}",
                        transcripts.pairs.get(index)
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn error_rates_ignore_case_on_demand() {
    for unit in [ErrorUnit::Words, ErrorUnit::Characters] {
        let rate = |lowercase| {
            let settings = ErrorRateSettings { unit, lowercase, ..ErrorRateSettings::default() };
            let metric = Metric::ErrorRate(settings);
            metric.statistics(&["EIN HUND"], &[&["ein Hund"]]).unwrap().score().value()
        };
        assert!(rate(false) > 50.0 && rate(true) == 0.0, "{unit:?}");
    }
}

#[test]
fn error_rates_count_edits() {
    let rate = |unit, spelling, hypothesis: &str, reference: &str| {
        let metric = Metric::ErrorRate(ErrorRateSettings { unit, spelling, lowercase: false });
        format!("{:.4}", metric.statistics(&[hypothesis], &[&[reference]]).unwrap().score().value())
    };
    let (words, given) = (ErrorUnit::Words, Spelling::Given);
    assert_eq!(rate(words, given, "the cat sat", "the cat sat"), "0.0000");
    // A substitution, a deletion and an insertion of five words.
    assert_eq!(rate(words, given, "a cat on the mat", "the cat sat on mat"), "60.0000");
    assert_eq!(rate(words, given, "", "two words"), "100.0000");
    assert_eq!(rate(words, given, "three words more", "two"), "300.0000");
    assert_eq!(rate(ErrorUnit::Characters, given, "kitten", "sitting"), "42.8571");
    assert_eq!(rate(words, Spelling::Basic, "Hello, World! [music]", "hello world"), "0.0000");
    assert_eq!(rate(words, given, "Hello, World!", "hello world"), "100.0000");
}
