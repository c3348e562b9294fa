//! `cognate plot`: the curves of training runs.

use crate::whole_file;
use anyhow::{Result, bail};
use clap::ValueEnum;
use cognate_pictures::{Chart, Curve, Panel};
use cognate_train::{LogLine, read_log};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Draw the curves of training runs
///
/// Reads the logs that `cognate train` writes, also during a run: the losses of training and
/// validation, the learning rate, tokens per second, and BLEU if it was measured. Each run has one
/// colour and dash pattern in all panels. CSV has all numbers of the logs.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Folders of runs, or their log.jsonl
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// Write to FILE, which appears when it is complete; - is standard output
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Output format [default: by the ending of FILE; svg for -]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Horizontal axis
    #[arg(long, value_enum, value_name = "AXIS", default_value = "updates")]
    by: By,
    /// Names of the runs in the legend, in the order of LOG [default: their folders]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    names: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  cognate plot OUT --out curves.svg
  cognate plot OUT/*/ --out grid.csv
  cognate plot post-norm pre-norm --out curves.png --by minutes
  cognate plot a/log.jsonl b/log.jsonl --names paper,rotary --out curves.svg";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Vector graphics
    Svg,
    /// Pixels
    Png,
    /// A table of all lines of the logs
    Csv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// Updates of the weights
    Updates,
    /// Minutes of training, without validation
    Minutes,
}

/// Pixels of a PNG for each point of the drawing.
const PIXELS: f32 = 2.0;

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let format = whole_file::format(options.format, &options.out, Format::Svg)?;
    whole_file::check("--out", &options.out)?;
    if !options.names.is_empty() && options.names.len() != options.logs.len() {
        bail!(
            "--names: has {} names for {} logs; expected one for each",
            options.names.len(),
            options.logs.len()
        );
    }
    let runs = options.logs.iter().map(|log| Ok(read_log(log)?)).collect::<Result<Vec<_>>>()?;
    for (log, run) in options.logs.iter().zip(&runs) {
        if run.is_empty() {
            bail!(
                "{}: is empty; a run writes the first line after `schedule.log_every` updates",
                log.display()
            );
        }
    }
    let names = match options.names.as_slice() {
        [] => names(&options.logs),
        names => names.to_vec(),
    };
    let bytes = match format {
        Format::Svg => chart(names, &runs, options.by).draw().to_svg().into_bytes(),
        Format::Png => chart(names, &runs, options.by).draw().to_png(PIXELS)?,
        Format::Csv => table(&names, &runs)?.into_bytes(),
    };
    whole_file::write("--out", &options.out, &bytes, out)?;
    Ok(ExitCode::SUCCESS)
}

/// The folders of logs, or their paths if two folders have the same name.
fn names(logs: &[PathBuf]) -> Vec<String> {
    let names: Vec<String> = logs.iter().map(|log| name(log)).collect();
    let is_unique = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
    if names.iter().all(is_unique) {
        names
    } else {
        logs.iter().map(|log| log.display().to_string()).collect()
    }
}

/// The folder of a log.
fn name(log: &Path) -> String {
    let folder = if log.is_dir() {
        Some(log)
    } else {
        log.parent().filter(|parent| *parent != Path::new(""))
    };
    let name = folder
        .unwrap_or(log)
        .canonicalize()
        .ok()
        .and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| log.display().to_string())
}

/// A row for each line of the logs, with empty cells for what it does not have.
fn table(names: &[String], runs: &[Vec<LogLine>]) -> Result<String> {
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
            let line = serde_json::to_value(line)?;
            let cell = |column| {
                line.get(column)
                    .filter(|value| !value.is_null())
                    .map_or_else(String::new, Value::to_string)
            };
            table +=
                &format!("{name},{}\n", COLUMNS.split(',').map(cell).collect::<Vec<_>>().join(","));
        }
    }
    Ok(table)
}

fn chart(names: Vec<String>, runs: &[Vec<LogLine>], by: By) -> Chart {
    let at = |update: u64, seconds: f64| match by {
        By::Updates => update as f64,
        By::Minutes => seconds / 60.0,
    };
    let trained = |value: fn(&cognate_train::Stretch) -> f64| {
        curves(runs, false, move |line| match line {
            LogLine::Stretch(stretch) => {
                Some([at(stretch.update, stretch.seconds), value(stretch)])
            }
            LogLine::Validation(_) => None,
        })
    };
    let validated = |value: fn(&cognate_train::Validation) -> Option<f64>| {
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
        axis: match by {
            By::Updates => "updates".to_owned(),
            By::Minutes => "minutes of training".to_owned(),
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
