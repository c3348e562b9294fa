//! Where translations go: standard output, or a file that appears when it is whole.

use crate::account::new_file_in;
use anyhow::{Context, Result, bail};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Where translations go.
pub(crate) enum Output<'o> {
    Standard(&'o mut dyn Write),
    /// A regular file: what is there now stays until the new one is whole.
    File {
        file: BufWriter<NamedTempFile>,
        path: PathBuf,
    },
    /// A device or a pipe.
    Stream {
        file: BufWriter<File>,
        path: PathBuf,
    },
}

impl<'o> Output<'o> {
    /// Prepares to write to `path`, or to `standard` if there is none or it is `-`.
    ///
    /// # Errors
    /// If the file could not be written.
    pub(crate) fn open(path: Option<&Path>, standard: &'o mut dyn Write) -> Result<Self> {
        let Some(named) = path.filter(|path| *path != Path::new("-")) else { return Ok(Self::Standard(standard)) };
        let shown = named.display();
        let unwritable = || format!("--output: {shown}: cannot be written");
        // A link's target is replaced, not the link.
        let path = named.canonicalize().unwrap_or_else(|_| named.to_path_buf());
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => bail!("--output: {shown}: is a folder; expected a file"),
            Ok(metadata) if !metadata.is_file() => {
                let file = BufWriter::new(OpenOptions::new().write(true).open(&path).with_context(unwritable)?);
                Ok(Self::Stream { file, path })
            }
            Ok(_) | Err(_) => {
                let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
                if !parent.is_dir() {
                    bail!("--output: {shown}: there is no folder {}; make it first", parent.display());
                }
                let file = BufWriter::new(new_file_in(parent).with_context(unwritable)?);
                Ok(Self::File { file, path })
            }
        }
    }

    /// Writes lines and hands them on at once.
    pub(crate) fn write(&mut self, lines: &[String]) -> Result<()> {
        let (writer, path): (&mut dyn Write, Option<&Path>) = match self {
            Self::Standard(writer) => (writer, None),
            Self::File { file, path } => (file, Some(path)),
            Self::Stream { file, path } => (file, Some(path)),
        };
        let written = lines.iter().try_for_each(|line| writeln!(writer, "{line}")).and_then(|()| writer.flush());
        written.with_context(|| place(path))
    }

    /// Lets the file appear.
    pub(crate) fn finish(self) -> Result<()> {
        match self {
            Self::Standard(_) | Self::Stream { .. } => Ok(()),
            Self::File { file, path } => {
                let finish = || -> Result<()> {
                    let file = file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
                    file.as_file().sync_all()?;
                    file.persist(&path)?;
                    Ok(())
                };
                finish().with_context(|| place(Some(&path)))
            }
        }
    }
}

/// What cannot be written.
fn place(path: Option<&Path>) -> String {
    match path {
        Some(path) => format!("--output: {}: cannot be written", path.display()),
        None => "standard output: cannot be written".into(),
    }
}
