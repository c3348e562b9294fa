//! `cognate plot`: the curves of training runs.

use crate::whole_file;
use anyhow::{Result, bail};
use clap::ValueEnum;
use cognate::train::{ChartAxis, chart, log_table};
use cognate_train::read_log;
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
    /// Minutes of training and validation
    Minutes,
}

/// Pixels of a PNG for each point of the drawing.
const PIXELS: f32 = 2.0;

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let format = whole_file::format(options.format, &options.out, Format::Svg)?;
    let logs = options.logs.iter().map(|log| ("a log", log.as_path()));
    whole_file::check_beside("--out", &options.out, logs)?;
    if !options.names.is_empty() && options.names.len() != options.logs.len() {
        bail!(
            "--names: has {} names for {} logs; expected one for each",
            options.names.len(),
            options.logs.len()
        );
    }
    let is_repeated = |(index, name): (usize, &String)| options.names[..index].contains(name);
    if let Some((_, name)) =
        options.names.iter().enumerate().find(|(index, name)| is_repeated((*index, name)))
    {
        bail!("--names: {name} is given twice; expected a name of its own for each log");
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
    let axis = match options.by {
        By::Updates => ChartAxis::Updates,
        By::Minutes => ChartAxis::Minutes,
    };
    let bytes = match format {
        Format::Svg => chart(names, &runs, axis).draw().to_svg().into_bytes(),
        Format::Png => chart(names, &runs, axis).draw().to_png(PIXELS)?,
        Format::Csv => log_table(&names, &runs).into_bytes(),
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
