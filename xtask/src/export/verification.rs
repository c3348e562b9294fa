//! The verification report in `cognate.json`, and its tables.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::table::table;

/// The verification of `cognate export`.
#[derive(Deserialize)]
pub struct Report {
    reference: String,
    tolerance: f64,
    runtimes: Vec<Runtime>,
}

#[derive(Deserialize)]
struct Runtime {
    engine: String,
    outputs: Vec<Output>,
    decoding: Vec<Decoding>,
}

/// NaN and infinite errors are `null` in JSON.
#[derive(Deserialize)]
struct Output {
    graph: String,
    output: String,
    max_absolute_error: Option<f64>,
    relative_l2_error: Option<f64>,
}

#[derive(Deserialize)]
struct Decoding {
    method: String,
    sentences: u64,
    equal: u64,
    ties: u64,
}

/// Two tables over all models: numeric errors, and decoded sentences.
pub fn tables(reports: &[(&str, &Report)]) -> String {
    let (mut numbers, mut sentences) = (Vec::new(), Vec::new());
    let error = |error: Option<f64>| {
        error.map_or("not a number".to_owned(), |error| format!("{error:.1e}"))
    };
    for (model, report) in reports {
        for runtime in &report.runtimes {
            let start = || vec![(*model).to_owned(), runtime.engine.clone()];
            numbers.extend(runtime.outputs.iter().map(
                |Output { graph, output, max_absolute_error, relative_l2_error }| {
                    [
                        start(),
                        vec![
                            format!("{graph}: {output}"),
                            error(*max_absolute_error),
                            error(*relative_l2_error),
                        ],
                    ]
                    .concat()
                },
            ));
            sentences.extend(runtime.decoding.iter().map(
                |Decoding { method, sentences, equal, ties }| {
                    [
                        start(),
                        vec![method.clone(), format!("{equal} of {sentences}"), ties.to_string()],
                    ]
                    .concat()
                },
            ));
        }
    }
    let against = reports.iter().map(|(_, report)| {
        format!(
            "Against the {}; bound on the relative L2 error {:.0e}.\n",
            report.reference, report.tolerance
        )
    });
    let against: String = against.collect::<BTreeSet<_>>().into_iter().collect();
    let numbers =
        table(&["model", "engine", "output", "max absolute error", "relative L2 error"], &numbers);
    let text = format!("{against}\n{numbers}");
    if sentences.is_empty() {
        return text;
    }
    text + "\n" + &table(&["model", "engine", "decoding", "equal sentences", "ties"], &sentences)
}
