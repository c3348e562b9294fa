//! The identity of a safetensors file, without its weights.

use crate::Result;
use crate::error::AtPath;
use cognate_model::open_file;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// The identity of a safetensors file, without its weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The file's size.
    pub bytes: u64,
    /// The time of the last modification, in seconds since 1970.
    pub modified: u64,
    /// The BLAKE3 hash of the header: names, types, shapes and offsets of all tensors.
    pub header_blake3: String,
    /// The BLAKE3 hash of the whole file after the first verification; an export in place reads no
    /// weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
}

impl Stamp {
    /// The stamp of a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(path: &Path) -> Result<Self> {
        let read = || -> io::Result<Self> {
            let (mut file, mut length) = (open_file(path)?, [0; 8]);
            let metadata = file.metadata()?;
            file.read_exact(&mut length)?;
            let mut header = Vec::new();
            // An invalid length reads at most the file.
            file.take(u64::from_le_bytes(length)).read_to_end(&mut header)?;
            let modified =
                metadata.modified()?.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            Ok(Self {
                bytes: metadata.len(),
                modified,
                header_blake3: blake3::hash(&header).to_string(),
                blake3: None,
            })
        };
        read().at(path, "read")
    }

    /// Whether the file was not modified.
    pub fn is_unchanged(&self, now: &Self) -> bool {
        self.fits(now) && self.modified == now.modified
    }

    /// Whether the graphs of one file fit the other: all tensors have the same offsets.
    pub fn fits(&self, other: &Self) -> bool {
        (self.bytes, &self.header_blake3) == (other.bytes, &other.header_blake3)
    }
}
