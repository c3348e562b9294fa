//! The curves of training runs, as a chart and as CSV.

use cognate_pictures::{Chart, Curve, Panel};
use cognate_train::{LogLine, Stretch, Validation};
use serde_json::Value;

/// The horizontal axis of a chart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChartAxis {
    /// Updates of the weights.
    #[default]
    Updates,
    /// Minutes of training and validation.
    Minutes,
}

/// The losses, BLEU, learning rates and speeds of runs with these names and logs, one for each.
pub fn chart(names: Vec<String>, runs: &[Vec<LogLine>], axis: ChartAxis) -> Chart {
    let at = |update: u64, seconds: f64| match axis {
        ChartAxis::Updates => update as f64,
        ChartAxis::Minutes => seconds / 60.0,
    };
    let trained = |value: fn(&Stretch) -> f64| {
        curves(runs, false, move |line| match line {
            LogLine::Stretch(stretch) => {
                Some([at(stretch.update, stretch.seconds), value(stretch)])
            }
            LogLine::Validation(_) => None,
        })
    };
    let validated = |value: fn(&Validation) -> Option<f64>| {
        curves(runs, true, move |line| match line {
            LogLine::Validation(validation) => {
                Some([at(validation.update, validation.seconds), value(validation)?])
            }
            LogLine::Stretch(_) => None,
        })
    };
    let losses = trained(|stretch| stretch.nll)
        .into_iter()
        .chain(validated(|validation| Some(validation.valid_nll)))
        .collect();
    let panel = |title: &str, curves| Panel { title: title.to_owned(), curves };
    Chart {
        title: format!("Training: {}", names.join(", ")),
        axis: match axis {
            ChartAxis::Updates => "updates".to_owned(),
            ChartAxis::Minutes => "minutes of training".to_owned(),
        },
        runs: names,
        panels: vec![
            panel("Loss per token (nats); marked: validation", losses),
            panel("BLEU of validation", validated(|validation| validation.bleu)),
            panel("Learning rate", trained(|stretch| stretch.learning_rate)),
            panel("Target tokens per second", trained(|stretch| stretch.tokens_per_second)),
        ],
    }
}

/// A curve for each run that has points.
fn curves(
    runs: &[Vec<LogLine>],
    is_marked: bool,
    point: impl Fn(&LogLine) -> Option<[f64; 2]>,
) -> Vec<Curve> {
    let curve = |(run, lines): (usize, &Vec<LogLine>)| Curve {
        run,
        is_marked,
        points: lines.iter().filter_map(&point).collect(),
    };
    runs.iter().enumerate().map(curve).filter(|curve| !curve.points.is_empty()).collect()
}

/// The logs as CSV: a row for each line, with empty cells for the fields of other lines.
pub fn log_table(names: &[String], runs: &[Vec<LogLine>]) -> String {
    const COLUMNS: &str = "update,epoch,seconds,loss,nll,learning_rate,gradient_norm,tokens_per_second,engine_share,valid_loss,\
                           valid_nll,perplexity,bleu,best";
    let mut table = format!("run,{COLUMNS}\n");
    for (name, run) in names.iter().zip(runs) {
        let name = if name.contains([',', '"', '\n']) {
            format!("\"{}\"", name.replace('"', "\"\""))
        } else {
            name.clone()
        };
        for line in run {
            let line = serde_json::to_value(line).expect("numbers are JSON");
            let cell = |column| {
                line.get(column)
                    .filter(|value| !value.is_null())
                    .map_or_else(String::new, Value::to_string)
            };
            table +=
                &format!("{name},{}\n", COLUMNS.split(',').map(cell).collect::<Vec<_>>().join(","));
        }
    }
    table
}
