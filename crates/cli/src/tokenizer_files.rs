//! The files of a checkpoint's tokenizer: reading them, copying them, and whether they belong to the model.

use crate::messages;
use anyhow::{Result, bail};
use cognate_export::Folder;
use cognate_model::Config;
use cognate_text::Tokenizer;
use std::path::Path;

/// Those that hold pieces; where there is none, there is no tokenizer.
const PIECES: [&str; 6] = ["tokenizer.json", "source.spm", "sentencepiece.bpe.model", "spiece.model", "vocab.json", "target_vocab.json"];

/// The tokenizer in `folder`, for a model with this configuration.
///
/// # Errors
/// If there is none, or it cannot be read, or it is that of another model.
pub(crate) fn open(folder: &Path, config: &Config) -> Result<Tokenizer> {
    let tokenizer = Tokenizer::from_folder(folder)?;
    check(folder, &tokenizer, config)?;
    Ok(tokenizer)
}

/// As [`open`], where the work goes on without a tokenizer: a warning tells the consequence.
///
/// # Errors
/// If it is the tokenizer of another model.
pub(crate) fn open_if_readable(folder: &Path, config: &Config, consequence: &str) -> Result<Option<Tokenizer>> {
    match Tokenizer::from_folder(folder) {
        Ok(tokenizer) => check(folder, &tokenizer, config).map(|()| Some(tokenizer)),
        Err(error) => {
            messages::warning(format_args!("{error}; {consequence}"));
            Ok(None)
        }
    }
}

/// The sizes of those that are there, together.
pub(crate) fn bytes(folder: &Path) -> u64 {
    Tokenizer::FILES.iter().filter_map(|name| folder.join(name).metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Whether `folder` has any tokenizer.
pub(crate) fn are_there(folder: &Path) -> bool {
    PIECES.iter().any(|name| folder.join(name).exists())
}

/// Copies those that are there, save for `except`, which the caller writes.
///
/// # Errors
/// If one cannot be read or written.
pub(crate) fn copy(checkpoint: &Path, folder: &mut Folder, except: &[&str]) -> Result<()> {
    for name in Tokenizer::FILES.iter().filter(|name| !except.contains(name)) {
        let path = checkpoint.join(name);
        if path.is_file() {
            folder.copy(name, &path)?;
        }
    }
    Ok(())
}

/// Refuses a tokenizer with ids that the model has no rows for. Fewer ids than rows are common: tables are padded.
///
/// Special tokens beyond the table are let pass, as checkpoints in use have them (`facebook/bart-large-cnn`: 50,264 rows and
/// `<mask>` at 50,264; mT5's sentinels); a sentence that spells one is refused when it comes.
fn check(folder: &Path, tokenizer: &Tokenizer, config: &Config) -> Result<()> {
    let rows = config.source_vocab.max(config.vocab);
    let required = tokenizer.required_vocab();
    if required <= rows {
        return Ok(());
    }
    let around = tokenizer.encode("").unwrap_or_default();
    // Special tokens have no text.
    let is_text = |id: &i64| around.contains(id) || tokenizer.decode(&[*id]).is_ok_and(|text| !text.is_empty());
    let Some(id) = (rows as i64..required as i64).find(is_text) else { return Ok(()) };
    let there: Vec<&str> = PIECES.into_iter().filter(|name| folder.join(name).exists()).collect();
    // Beside tokenizer.json the others are not read.
    let there = if there.contains(&PIECES[0]) { &PIECES[..1] } else { &there };
    let piece = tokenizer.piece(id).unwrap_or_default();
    bail!(
        "{}: vocab_size in config.json is {rows}, but {} wants at least {required} ({piece:?} has the id {id}): \
         tokenizer and model do not belong together; take all files from one checkpoint",
        folder.display(),
        there.join(" with ")
    )
}
