//! The files of a checkpoint's tokenizer: reading them, copying them, and whether they belong to the model.

use crate::messages;
use anyhow::Result;
use cognate_export::Folder;
use cognate_model::Config;
use cognate_pipeline::check_tokenizer;
use cognate_text::Tokenizer;
use std::path::Path;

/// The tokenizer in `folder`, where the work goes on without one: a warning tells the consequence.
///
/// # Errors
/// If it is the tokenizer of another model.
pub(crate) fn open_if_readable(folder: &Path, config: &Config, consequence: &str) -> Result<Option<Tokenizer>> {
    match Tokenizer::from_folder(folder) {
        Ok(tokenizer) => {
            check_tokenizer(folder, &tokenizer, config)?;
            Ok(Some(tokenizer))
        }
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
    Tokenizer::PIECES.iter().any(|name| folder.join(name).exists())
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
