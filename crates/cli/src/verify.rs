//! `cognate verify`: compares an export with the f64 reference evaluator on every available engine.

use crate::messages;
use crate::model_options::{LanguageOptions, UnusedOption};
use anyhow::{Result, bail};
use cognate::{Device, Export, Verified, VerifyOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare an exported folder with the f64 reference on every engine
///
/// Checks the hashes of graphs and weights, runs seeded random batches and sentences through the
/// f64 reference evaluator and each available engine, prints the errors of each output and the
/// number of equal translations, and stores the report in cognate.json. The exit status is 1 if an
/// error exceeds its bound or a file was changed.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Folder of an export
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Compare with this checkpoint instead of the weights in the folder
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Run the engines on this device: cpu, or an NVIDIA GPU by ONNX Runtime, such as cuda
    #[arg(long, default_value_t)]
    device: Device,
    /// Write the report as one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    languages: LanguageOptions,
    #[command(flatten)]
    unused: UnusedOption,
}

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let checkpoint = options
        .checkpoint
        .as_ref()
        .map(|folder| Export::open_for(&options.folder, folder, options.unused.ignore_unused));
    let checkpoint = checkpoint.transpose()?;
    checkpoint.iter().for_each(|checkpoint| messages::notices(checkpoint.notices()));
    let model = checkpoint.as_ref().map(Export::model);
    let print = if options.json { Print::Json } else { Print::Text };
    let (languages, device) = (options.languages.languages(), options.device);
    let compared = VerifyOptions { model, languages, device, ..VerifyOptions::default() };
    let passed = verify(&options.folder, &compared, print, out)?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The format of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Print {
    Text,
    Json,
}

/// Verifies the export in `folder` and prints the report. Returns whether every error is within its
/// bound.
pub(crate) fn verify(
    folder: &Path,
    options: &VerifyOptions<'_>,
    print: Print,
    out: &mut dyn Write,
) -> Result<bool> {
    let shows_progress = messages::shows_progress();
    let Verified { report, notices, damaged } = cognate::verify(folder, options, |stage| {
        if shows_progress {
            messages::note(format_args!("verifying: {stage}"));
        }
    })?;
    messages::notices(&notices);
    match print {
        Print::Text => write!(out, "{report}")?,
        Print::Json => writeln!(out, "{}", serde_json::to_string(&report)?)?,
    }
    if !damaged.is_empty() {
        out.flush()?;
        bail!("{}: changed since the export; export again", damaged.join(", "));
    }
    Ok(report.passed())
}
