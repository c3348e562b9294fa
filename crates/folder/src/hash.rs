//! BLAKE3 hashes of files.

use crate::Result;
use crate::error::AtPath;
use cognate_model::open_file;
use std::io::{self, Read};
use std::path::Path;

/// The BLAKE3 hash of a file, as `b3sum` prints it.
///
/// # Errors
/// If it cannot be read.
pub fn hash_file(path: &Path) -> Result<String> {
    let read = || -> io::Result<String> {
        let (mut file, mut hasher) = (open_file(path)?, blake3::Hasher::new());
        let mut buffer = vec![0; 256 << 10];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hasher.finalize().to_string()),
                bytes => hasher.update(&buffer[..bytes]),
            };
        }
    };
    read().at(path, "read")
}
