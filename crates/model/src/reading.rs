//! The files of a model's folder, as they may come from anybody: regular files, and no longer than they have a reason to be.
//!
//! What is neither a file nor a folder is not opened: a pipe would be waited for, a device need not end.

use std::fs::{File, metadata};
use std::io::{Error, Read, Result};
use std::path::Path;

/// The longest configuration that is read: 16 MiB. Those of published models have some 10 kB.
const MOST_BYTES: u64 = 16 << 20;

/// Opens a file, if it is a regular one.
///
/// # Errors
/// If it is not, is not there, or cannot be opened.
pub fn open_file(path: &Path) -> Result<File> {
    let metadata = metadata(path)?;
    // A folder is opened, and reading it then is the system's own error.
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(Error::other("is no regular file; put the file itself there"));
    }
    File::open(path)
}

/// The text of a configuration.
///
/// # Errors
/// As [`open_file`]; and if it is longer than 16 MiB, or not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let file = open_file(path)?;
    let mut text = String::new();
    // One byte past the limit tells a file that is longer, also than it said.
    if file.metadata()?.len() <= MOST_BYTES && file.take(MOST_BYTES + 1).read_to_string(&mut text)? as u64 <= MOST_BYTES {
        return Ok(text);
    }
    Err(Error::other(format!("is longer than the {MOST_BYTES} bytes that are read of a configuration")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_texts_are_read_and_longer_ones_refused() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "{}").expect("written");
        assert_eq!(read_text(file.path()).expect("a text"), "{}");
        file.as_file().set_len(MOST_BYTES).expect("a hole");
        assert_eq!(read_text(file.path()).expect("a text").len() as u64, MOST_BYTES);
        file.as_file().set_len(MOST_BYTES + 1).expect("a hole");
        let refused = read_text(file.path()).expect_err("too long").to_string();
        assert_eq!(refused, "is longer than the 16777216 bytes that are read of a configuration");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn devices_are_not_opened() {
        let refused = read_text(Path::new("/dev/zero")).expect_err("a device").to_string();
        assert_eq!(refused, "is no regular file; put the file itself there");
    }
}
