//! What a new folder and the folder of a checkpoint have in common for who writes an export.

use crate::Error;
use std::fs::File;
use std::path::Path;

/// Where an export is written: a new folder, or the folder of its checkpoint.
pub(crate) trait Destination {
    /// Writes a file.
    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error>;

    /// Writes a file as `fill` does, which is told the path under which the file will be known.
    fn write_with(&mut self, name: &str, fill: impl FnOnce(&mut File, &Path) -> Result<(), Error>) -> Result<(), Error>;

    /// Keeps the hash of the file that was written last.
    fn hashed(&mut self, hash: blake3::Hash);
}
