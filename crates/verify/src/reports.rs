//! Rows of a report: how far outputs and hypotheses are from the reference.

use crate::compare::Total;
use crate::{Error, Measured, Result};
use cognate_folder::{DecodingReport, OutputReport, Verification};
use cognate_generate::{Hypothesis, Settings};
use cognate_model::without_layer;
use cognate_runtime::{Session, Value, Values};
use std::collections::BTreeMap;

/// Differences of the reference's logits or scores below this are ties.
const TIE: f32 = 1e-5;

/// Whether an engine is in the report: without Cognate's operators, and these do not apply.
pub(crate) fn is_known(report: &Verification, engine: &str) -> bool {
    report.runtimes.iter().any(|known| known.engine == engine)
}

pub(crate) fn run(session: &mut Box<dyn Session>, inputs: &Values) -> Result<Values> {
    session.run(inputs).map_err(|error| Error::runtime(session.engine(), error))
}

/// The distances of an engine's outputs, by graph and name: of all batches together, since a single
/// one varies. On tract the logits of one token by Whisper tiny.en have errors of 9e-7 to 1.3e-5,
/// though no node adds more than 1.1e-6.
#[derive(Default)]
pub(crate) struct Distances(BTreeMap<(&'static str, String), Total>);

impl Distances {
    /// Adds the outputs of a graph for a batch.
    pub(crate) fn add(
        &mut self,
        graph: &'static str,
        [found, expected]: [&Values; 2],
        engine: &str,
    ) -> Result<()> {
        let to_f64 = |value: &Value| value.to_f64().map_err(|error| Error::runtime(engine, error));
        for (name, expected) in expected.iter() {
            let missing = || Error::runtime(engine, format!("no output {name}"));
            let found = found.get(name).ok_or_else(missing)?;
            let total = self.0.entry((graph, name.to_owned())).or_default();
            if !total.add(&to_f64(found)?, &to_f64(expected)?) {
                let [expected, found] = [expected.shape(), found.shape()];
                let message =
                    format!("output {name}: expected shape {expected:?}, found {found:?}");
                return Err(Error::runtime(engine, message));
            }
        }
        Ok(())
    }

    /// A row for each output, with the largest distance of all layers; the encoder's first, as they
    /// are computed.
    pub(crate) fn rows(self) -> Vec<OutputReport> {
        let mut rows = BTreeMap::new();
        for ((graph, name), total) in self.0 {
            let measured = total.measured();
            let worst = rows.entry((graph, without_layer(&name))).or_insert(measured);
            *worst = worst.or_worse(measured);
        }
        let mut rows: Vec<_> = rows
            .into_iter()
            .map(|((graph, output), measured)| row(graph, output, measured))
            .collect();
        rows.sort_by_key(|row| row.graph != "encoder");
        rows
    }
}

pub(crate) fn row(graph: &str, output: String, measured: Measured) -> OutputReport {
    OutputReport {
        graph: graph.into(),
        output,
        max_absolute_error: measured.max_absolute,
        relative_l2_error: measured.relative_l2,
    }
}

pub(crate) fn agreement(
    found: &[Hypothesis],
    expected: &[Hypothesis],
    settings: &Settings,
) -> DecodingReport {
    let (mut equal, mut ties) = (0, 0);
    for (found, expected) in found.iter().zip(expected) {
        if found.tokens == expected.tokens {
            equal += 1;
        } else if margin(found, expected) < TIE {
            ties += 1;
        }
    }
    DecodingReport { method: method(settings), sentences: expected.len(), equal, ties }
}

pub(crate) fn method(settings: &Settings) -> String {
    if settings.num_beams == 1 { "greedy".into() } else { format!("beam {}", settings.num_beams) }
}

/// The reference's margin in the first step in which `found` differs. Steps before it are equal,
/// and those after it follow other tokens: neither excuses the difference.
fn margin(found: &Hypothesis, expected: &Hypothesis) -> f32 {
    let step = found
        .tokens
        .iter()
        .zip(&expected.tokens)
        .take_while(|(found, expected)| found == expected)
        .count();
    expected.margins.get(step).copied().unwrap_or(f32::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cognate_model::{Model, Preset};
    use ndarray::Array1;

    /// Batches are parts of one tensor, so that a small one does not decide; layers are not.
    #[test]
    fn batches_are_measured_together_and_layers_apart() {
        let values = |numbers: [&[f64]; 2]| -> Values {
            let names = ["present.0.key", "present.1.key"];
            let tensors = numbers.map(|numbers| Array1::from(numbers.to_vec()).into_dyn());
            names.into_iter().zip(tensors).collect()
        };
        let mut distances = Distances::default();
        for (found, expected) in [
            ([&[3.0, 4.5][..], &[1.0]], [&[3.0, 4.0][..], &[1.0]]),
            ([&[2e-9], &[0.0]], [&[1e-9], &[0.0]]),
        ] {
            distances.add("decoder", [&values(found), &values(expected)], "tract").expect("alike");
        }
        let rows = distances.rows();
        let [OutputReport { output, max_absolute_error, relative_l2_error, .. }] = &*rows else {
            panic!("{rows:?}")
        };
        assert_eq!((output.as_str(), *max_absolute_error), ("present.{l}.key", 0.5));
        assert!((relative_l2_error - 0.1).abs() < 1e-12, "{relative_l2_error}");
    }

    fn hypothesis(tokens: &[i64], margins: &[f32]) -> Hypothesis {
        let complete = margins.len() > tokens.len();
        Hypothesis {
            tokens: tokens.to_vec(),
            complete,
            score: 0.0,
            margins: margins.to_vec(),
            alignment: Vec::new(),
            observed: None,
        }
    }

    /// The reference is certain of all steps except one, whose margin is a tie.
    #[test]
    fn only_the_first_step_that_differs_may_be_a_tie() {
        const SURE: f32 = 0.5;
        let model = Model::preset(Preset::Tiny, 1).expect("a preset");
        let settings = Settings::from_json("{}", None, model.config()).expect("settings");
        let wrong: Vec<_> = [
            ("no step", &[7, 8, 9][..], [SURE, TIE / 2.0, SURE, SURE], [1, 0]),
            ("the step of the tie", &[7, 5, 4, 3], [SURE, TIE / 2.0, SURE, SURE], [0, 1]),
            ("an earlier step", &[6, 8, 9], [SURE, TIE / 2.0, SURE, SURE], [0, 0]),
            ("a later step", &[7, 8, 5], [SURE, TIE / 2.0, SURE, SURE], [0, 0]),
            ("an end too early", &[7, 8], [SURE, SURE, TIE / 2.0, SURE], [0, 1]),
            ("an end too early, after the tie", &[7, 8], [SURE, TIE / 2.0, SURE, SURE], [0, 0]),
            ("no end", &[7, 8, 9, 5], [SURE, SURE, SURE, TIE / 2.0], [0, 1]),
            ("no end, after the tie", &[7, 8, 9, 5], [SURE, TIE / 2.0, SURE, SURE], [0, 0]),
        ]
        .into_iter()
        .filter_map(|(what, found, margins, expected)| {
            let report = agreement(
                &[hypothesis(found, &[])],
                &[hypothesis(&[7, 8, 9], &margins)],
                &settings,
            );
            ([report.equal, report.ties] != expected)
                .then(|| format!("{what}: {report:?}, expected {expected:?}"))
        })
        .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn other_tokens_are_a_tie_by_the_margin_of_the_reference_alone() {
        let model = Model::preset(Preset::Tiny, 1).expect("a preset");
        let settings = Settings::from_json("{}", None, model.config()).expect("defaults");
        let hypothesis = |token, margin| hypothesis(&[token], &[margin; 2]);
        let expected = [hypothesis(5, 1e-6), hypothesis(5, 1e-6), hypothesis(5, 1.0)];
        for num_beams in [1, 4] {
            let settings = Settings { num_beams, ..settings.clone() };
            // Of the same score, too.
            let found = [hypothesis(5, 1.0), hypothesis(6, 1.0), hypothesis(6, 1e-6)];
            let DecodingReport { sentences, equal, ties, .. } =
                agreement(&found, &expected, &settings);
            assert_eq!((sentences, equal, ties), (3, 1, 1), "{num_beams} beams");
        }
    }
}
