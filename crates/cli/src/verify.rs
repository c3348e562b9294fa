//! `cognate verify`: an exported folder, on every runtime that is there, against the reference evaluator in f64.
//!
//! The reference reads the weights that the runtimes read, so it cannot tell that they were damaged: their hashes can.

use crate::account::{Account, Origin, hash};
use crate::export::Precision;
use crate::languages::Languages;
use crate::source::ModelSource;
use crate::unused::Unused;
use crate::{layout, messages, tokenizer_files};
use anyhow::{Context, Result, bail};
use cognate_generate::Settings;
use cognate_model::{Config, Layout, Model};
use cognate_pipeline::decode_into;
use cognate_runtime::{Device, Options as Load, available};
use cognate_verify::{FileReport, Report, Subject, open_exported};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare an exported folder with the f64 reference on every runtime
///
/// Runs seeded random batches and sentences through the reference evaluator in f64 and through each runtime that is there, prints
/// the errors of each output and how many translations are equal, and stores the report in cognate.json. Before that, the hashes of
/// graphs and weights are compared with those of the export. Ends with status 1 when a bound is broken or a file is another.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The folder of an export
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Compare with this checkpoint instead of the weights in the folder
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    #[command(flatten)]
    languages: Languages,
    #[command(flatten)]
    unused: Unused,
}

/// What is translated in a verification, where the folder has a tokenizer.
pub(crate) const SENTENCES: [&str; 4] = [
    "A man is riding a bicycle.",
    "Two dogs are playing in the snow.",
    "A group of people are standing in front of a large building while a woman takes a picture of them.",
    "Hello!",
];

/// By what an export of less precision is tuned; never a part of what a verification or a measurement reports on.
pub(crate) const TUNING: [&str; 4] = [
    "The weather is nice today.",
    "A young girl in a red dress is eating an apple.",
    "Where is the nearest train station?",
    "She bought three books and a pen for twelve euros.",
];

/// The seed of the random batches.
pub(crate) const SEED: u64 = 1;

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    match ModelSource::find(&options.folder)? {
        ModelSource::Exported(_) => {}
        other => bail!("{other}: expected the folder of an export; `cognate export` makes one and verifies it"),
    }
    let model =
        options.checkpoint.as_deref().map(|folder| ModelSource::find(folder)?.into_checkpoint().open(0, options.unused)).transpose()?;
    let passed = verify_with(&options.folder, model.as_ref(), &options.languages, out)?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Verifies the exported `folder` against `source`, or against the weights in the folder; prints the report and stores it in
/// `cognate.json`. Returns whether every runtime stayed within the bounds.
pub(crate) fn verify(folder: &Path, source: Option<&Model>, out: &mut dyn Write) -> Result<bool> {
    verify_with(folder, source, &Languages::default(), out)
}

/// As [`verify`], with sentences of one language that are translated into another.
fn verify_with(folder: &Path, source: Option<&Model>, languages: &Languages, out: &mut dyn Write) -> Result<bool> {
    Account::check(folder)?;
    let layout = layout::of_own(folder)?;
    let mut account = Account::read(folder)?;
    let precision = account.as_ref().and_then(|account| Precision::named(&account.precision)).unwrap_or_default();
    let files = account.as_ref().map_or(Ok(Vec::new()), |account| files(folder, account))?;
    if !files.iter().all(FileReport::passed) {
        let report = Report::of_damage(files, precision.tolerance(), SEED);
        write!(out, "{report}")?;
        let damaged: Vec<_> =
            report.files.iter().filter(|file| !file.passed()).map(|file| folder.join(&file.file).display().to_string()).collect();
        keep(account.as_mut(), report, folder)?;
        bail!("{}: changed since the export, which no other check can tell; export again", damaged.join(", "));
    }
    let read_back;
    let model = match source {
        Some(model) => model,
        None if layout == Layout::SharedCache || precision.is_quantised() => bail!(
            "{}: its weights are joined or rounded, and say nothing about the model; pass --checkpoint with what it was exported from",
            folder.display()
        ),
        None => {
            read_back = open_exported(folder, layout)?;
            &read_back
        }
    };
    let generation = layout::read_if_there(&folder.join(layout::GENERATION))?;
    let mut settings = Settings::from_json(model.config_json(), generation.as_deref(), model.config())?;
    let [sentences, _] = sentences(folder, model.config(), languages, &mut settings)?;
    let tolerance = precision.tolerance();
    let subject = Subject { folder, layout, model, settings, sentences, seed: SEED, tolerance };
    let runtimes = available(Device::Cpu)?.into_iter().filter(|runtime| layout != Layout::SharedCache || runtime.name() == "ort");
    let mut runtimes: Vec<_> = runtimes.map(|runtime| (runtime, Load::default())).collect();
    if layout == Layout::SharedCache {
        // Once as other programs run it.
        let plain = available(Device::Cpu)?.into_iter().filter(|runtime| runtime.name() == "ort");
        runtimes.extend(plain.map(|runtime| (runtime, Load { plain: true, ..Load::default() })));
    }
    if runtimes.is_empty() {
        bail!(
            "{}: only ONNX Runtime runs this layout, and its library is not found; `cargo xtask onnxruntime` brings it",
            folder.display()
        );
    }
    let is_watched = io::stderr().is_terminal();
    let mut report = cognate_verify::verify(&subject, &runtimes, |stage| {
        if is_watched {
            messages::note(format_args!("verifying: {stage}"));
        }
    })?;
    report.files = files;
    write!(out, "{report}")?;
    keep(account.as_mut(), report, folder)
}

/// The graphs and weights of an export, by their hashes. A checkpoint to which graphs in place point has one since its first
/// verification.
fn files(folder: &Path, account: &Account) -> Result<Vec<FileReport>> {
    let mut exported: Vec<_> = account.files.iter().map(|(file, account)| (file, account.bytes, Some(&account.blake3))).collect();
    if let Origin::CheckpointInPlace { files, .. } = &account.source {
        exported.extend(files.iter().map(|(file, stamp)| (file, stamp.bytes, stamp.blake3.as_ref())));
    }
    let report = |(file, bytes, exported): (&String, u64, Option<&String>)| {
        let path = folder.join(file);
        let size = path.metadata().with_context(|| format!("{}: cannot be looked at", path.display()))?.len();
        // A file that is far too long is not read to its end.
        let found = if size == bytes { hash(&path)? } else { format!("{size} bytes in place of {bytes}") };
        Ok(FileReport { file: file.clone(), exported: exported.cloned(), found })
    };
    exported.into_iter().map(report).collect()
}

/// Keeps the report in `cognate.json`, if there is one, and what it says of files that were read for the first time.
fn keep(account: Option<&mut Account>, report: Report, folder: &Path) -> Result<bool> {
    let passed = report.passed();
    if let Some(account) = account {
        if let (true, Origin::CheckpointInPlace { files, .. }) = (passed, &mut account.source) {
            for found in &report.files {
                if let Some(stamp) = files.get_mut(&found.file) {
                    stamp.blake3 = Some(found.found.clone());
                }
            }
        }
        account.verification = Some(report);
        account.write(folder)?;
    }
    Ok(passed)
}

/// Of [`SENTENCES`] and of [`TUNING`] those that a model with a tokenizer in `folder` can read, as ids, and in `settings` the
/// language into which they are translated; none without a tokenizer.
pub(crate) fn sentences(folder: &Path, config: &Config, languages: &Languages, settings: &mut Settings) -> Result<[Vec<Vec<i64>>; 2]> {
    let tokenizer = match tokenizer_files::are_there(folder) {
        true => tokenizer_files::open_if_readable(folder, config, "no sentences are compared")?,
        false => None,
    };
    let Some(tokenizer) = tokenizer else {
        if languages.is_chosen() {
            bail!("{}: has no tokenizer to choose languages of", folder.display());
        }
        return Ok([Vec::new(), Vec::new()]);
    };
    let tokenizer = languages.choose(tokenizer, config)?;
    decode_into(&tokenizer, settings);
    let encoded = |texts: [&str; 4]| {
        let sources = texts.into_iter().map(|text| tokenizer.encode(text)).collect::<cognate_text::Result<Vec<_>>>()?;
        Ok::<_, anyhow::Error>(sources.into_iter().filter(|ids| fits(config, ids)).collect())
    };
    Ok([encoded(SENTENCES)?, encoded(TUNING)?])
}

/// Whether the model can read a source.
fn fits(config: &Config, ids: &[i64]) -> bool {
    let is_token = |id: &i64| usize::try_from(*id).is_ok_and(|id| id < config.source_vocab);
    !ids.is_empty() && config.max_positions.is_none_or(|limit| ids.len() <= limit) && ids.iter().all(is_token)
}
