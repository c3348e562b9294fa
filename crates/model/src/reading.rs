//! Reads files of a model's folder safely: only regular files, up to a limit.
//!
//! Anything else is not opened: a pipe would block, a device may have no end.

use std::fs::{File, metadata};
use std::io::{Error, Read, Result};
use std::path::Path;

/// The maximum length of a configuration: 16 MiB. Those of published models have about 10 kB.
const MOST_BYTES: u64 = 16 << 20;

/// Opens a regular file.
///
/// # Errors
/// If it is not a regular file, does not exist, or cannot be opened.
pub fn open_file(path: &Path) -> Result<File> {
    let metadata = metadata(path)?;
    // A folder is opened; reading it then fails with the system's error.
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(Error::other("expected a regular file, found a pipe or device"));
    }
    File::open(path)
}

/// Reads the text of a configuration.
///
/// # Errors
/// As [`open_file`]; also if the file is longer than 16 MiB or not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let file = open_file(path)?;
    let mut text = String::new();
    // One byte beyond the limit also detects a file that is longer than its metadata says.
    if file.metadata()?.len() <= MOST_BYTES
        && file.take(MOST_BYTES + 1).read_to_string(&mut text)? as u64 <= MOST_BYTES
    {
        return Ok(text);
    }
    Err(Error::other(format!("expected at most {MOST_BYTES} bytes, found more")))
}
