//! The tokenizer files of a folder.

use crate::{PROCESSOR, Result};
use cognate_export::Folder;
use cognate_text::Tokenizer;
use std::path::Path;

/// Whether `folder` has a tokenizer.
pub fn has_tokenizer(folder: &Path) -> bool {
    Tokenizer::is_in(folder)
}

/// The size of the tokenizer files in `folder`.
pub fn tokenizer_bytes(folder: &Path) -> u64 {
    Tokenizer::FILES
        .iter()
        .filter_map(|name| folder.join(name).metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

/// Copies the files of a checkpoint's tokenizer and processor except those in `except`.
///
/// # Errors
/// If one cannot be read or written.
pub fn copy_tokenizer(checkpoint: &Path, folder: &mut Folder, except: &[&str]) -> Result<()> {
    for name in Tokenizer::FILES.iter().chain(&PROCESSOR).filter(|name| !except.contains(name)) {
        let path = checkpoint.join(name);
        if path.is_file() {
            folder.copy(name, &path)?;
        }
    }
    Ok(())
}
