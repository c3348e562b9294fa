//! The interface shared by new folders and checkpoint folders for writing exports.

use crate::Error;
use std::fs::File;
use std::path::Path;

/// The destination of an export: a new folder, or the folder of its checkpoint.
pub(crate) trait Destination {
    /// Writes a file.
    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error>;

    /// Writes a file with `fill`, which receives the final path.
    fn write_with(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut File, &Path) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Records the hash of the last file written.
    fn hashed(&mut self, hash: blake3::Hash);
}
