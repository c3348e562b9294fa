//! `cognate export --in-place`: graphs beside the checkpoint, which point into its weights.
//!
//! Of the weights only the headers are read, so time and memory do not grow with them.

use super::{Options, attentions, existing, graph_accounts, name, sizes, tokenizer};
use crate::account::{self, Account, FileAccount, Origin, Stamp};
use crate::source::ModelSource;
use crate::{amounts, layout, tokenizer_files};
use anyhow::{Result, bail};
use cognate_export::Additions;
use cognate_model::{Layout, Model};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

/// All that such an export writes.
const FILES: [&str; 4] = ["encoder.onnx", "decoder.onnx", layout::GENERATED, account::FILE];

/// Tokenizers of up to so many bytes are looked at: reading one with 250,000 pieces takes longer than all the rest, and
/// `cognate verify` reads it too.
const QUICKLY_READ: u64 = 2_000_000;

/// Runs the command.
pub(super) fn run(options: &Options, source: &ModelSource, start: Instant, out: &mut dyn Write) -> Result<ExitCode> {
    let ModelSource::Checkpoint(checkpoint) = source else {
        bail!("--in-place: {source} has no weights file for graphs to point into; leave it out and name a folder to write");
    };
    if options.layout()? != Layout::Cognate {
        bail!(
            "--in-place: writes the Cognate layout only, because graphs and weights have to lie in one folder; leave out --layout and --target"
        );
    }
    if options.languages.is_chosen() {
        bail!("--in-place: the checkpoint's files stay as they are; give languages to `cognate translate`");
    }
    let model = options.unused.open(checkpoint)?;
    if options.force {
        refuse_foreign(checkpoint)?;
    }
    let mut folder = Additions::create(checkpoint, existing(options))?;
    folder.replaces(&FILES);
    thread::scope(|scope| {
        let is_quick = tokenizer_files::bytes(checkpoint) <= QUICKLY_READ;
        let check = is_quick.then(|| scope.spawn(|| tokenizer::check(source, &model, &options.languages)));
        layout::write_graphs_in_place(&model, attentions(options), &name(source), &mut folder)?;
        match check.map(thread::ScopedJoinHandle::join) {
            Some(Ok(checked)) => checked.map(drop),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    })?;
    let files = stamps(&model)?;
    let origin = Origin::CheckpointInPlace { name: name(source), files: files.clone() };
    let mut account = Account::new(origin, model.parameters(), Layout::Cognate, graph_accounts(folder.path(), Layout::Cognate)?);
    account.files = FileAccount::of(folder.hashes());
    folder.write(account::FILE, account.to_json()?.as_bytes())?;
    let report = folder.commit()?;

    let elapsed = amounts::duration(start.elapsed());
    writeln!(out, "{source} in place in {elapsed}\n{}", sizes(&report))?;
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    let bytes = amounts::bytes(files.values().map(|stamp| stamp.bytes).sum());
    let (weights, stay) = match names.as_slice() {
        [one] => ((*one).to_owned(), "stays"),
        several => (format!("{} files", several.len()), "stay"),
    };
    writeln!(out, "{weights}, {bytes}, {stay} where the graphs find the weights; they were neither looked at nor verified:")?;
    writeln!(out, "`cognate verify {}` does both", checkpoint.display())?;
    Ok(ExitCode::SUCCESS)
}

/// Fails if a file of a name that would be replaced was not written by an export in place, which always leaves an account.
fn refuse_foreign(checkpoint: &Path) -> Result<()> {
    let Some(taken) = FILES.iter().map(|file| checkpoint.join(file)).find(|path| path.symlink_metadata().is_ok()) else { return Ok(()) };
    if Account::is_in_place(checkpoint)? {
        return Ok(());
    }
    bail!("{}: no export in place wrote this; move it away, or export to a folder of its own", taken.display())
}

/// What the files of the weights are like, by name.
fn stamps(model: &Model) -> Result<BTreeMap<String, Stamp>> {
    let files = super::weights_files(model).into_iter();
    files.map(|path| Ok((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), Stamp::of(&path)?))).collect()
}
