//! A file that appears when it is whole, or not at all.

use anyhow::{Context, Result, bail};
use cognate_export::PartialFile;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Refuses, before any work is done, a file that could not be written; `option` named it.
pub(crate) fn check(option: &str, path: &Path) -> Result<()> {
    if path == Path::new("-") {
        return Ok(());
    }
    let shown = path.display();
    if path.is_dir() {
        bail!("{option}: {shown}: is a folder; expected a file");
    }
    let parent = parent(path);
    if !parent.is_dir() {
        bail!("{option}: {shown}: there is no folder {}; make it first", parent.display());
    }
    Ok(())
}

/// Writes the file, or `standard` if it is `-`. What was there before stays until the new one is whole.
pub(crate) fn write(option: &str, path: &Path, bytes: &[u8], standard: &mut dyn Write) -> Result<()> {
    if path == Path::new("-") {
        return standard.write_all(bytes).and_then(|()| standard.flush()).context("standard output: cannot be written");
    }
    // A link's target is replaced, not the link.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let is_device = fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file());
    let written = if is_device { into_device(&target, bytes) } else { replace(&target, bytes) };
    written.with_context(|| format!("{option}: {}: cannot be written", path.display()))
}

fn into_device(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(bytes)
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = PartialFile::wait_for(path)?;
    file.write_all(bytes)?;
    file.commit()
}

fn parent(path: &Path) -> PathBuf {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")).to_path_buf()
}
