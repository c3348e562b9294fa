//! The output of translations: standard output, or a file that appears when it is complete.

use crate::messages;
use crate::whole_file;
use anyhow::{Context, Result, bail};
use cognate_export::PartialFile;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};

/// The output of translations.
pub(crate) enum Output<'o> {
    Standard(&'o mut dyn Write),
    /// A regular file; an existing one is kept until the new one is complete.
    File {
        file: BufWriter<PartialFile>,
        path: PathBuf,
    },
    /// A device or a pipe.
    Stream {
        file: BufWriter<File>,
        path: PathBuf,
    },
}

impl<'o> Output<'o> {
    /// Prepares to write to `path`, or to `standard` if there is none or it is `-`. `inputs` are
    /// the input files, by the options that name them.
    ///
    /// # Errors
    /// If the file cannot be written, or is an input file.
    pub(crate) fn open(
        path: Option<&Path>,
        inputs: &[(&str, Metadata)],
        standard: &'o mut dyn Write,
    ) -> Result<Self> {
        let Some(named) = path.filter(|path| !whole_file::is_standard(path)) else {
            return Ok(Self::Standard(standard));
        };
        let shown = named.display();
        let unwritable = || format!("--output: {shown}: cannot be written");
        let path = whole_file::target(named);
        whole_file::check("--output", named)?;
        match fs::metadata(&path) {
            Ok(metadata) if !metadata.is_file() => {
                let file = BufWriter::new(
                    OpenOptions::new().write(true).open(&path).with_context(unwritable)?,
                );
                Ok(Self::Stream { file, path })
            }
            existing => {
                if let Ok(existing) = existing {
                    let inputs = inputs.iter().map(|(option, input)| (*option, input));
                    whole_file::check_differs(("--output", named), &existing, inputs)?;
                }
                let Some(file) = PartialFile::create(&path).with_context(unwritable)? else {
                    bail!(
                        "--output: {shown}: another run is writing it; wait until it ends, or choose another file"
                    );
                };
                Ok(Self::File { file: BufWriter::new(file), path })
            }
        }
    }

    /// Writes and flushes lines.
    pub(crate) fn write(&mut self, lines: &[String]) -> Result<()> {
        let (writer, path): (&mut dyn Write, Option<&Path>) = match self {
            Self::Standard(writer) => (writer, None),
            Self::File { file, path } => (file, Some(path)),
            Self::Stream { file, path } => (file, Some(path)),
        };
        let written = lines
            .iter()
            .try_for_each(|line| writeln!(writer, "{line}"))
            .and_then(|()| writer.flush());
        written.with_context(|| place(path))
    }

    /// Moves the complete file to its name.
    pub(crate) fn finish(self) -> Result<()> {
        match self {
            Self::Standard(_) | Self::Stream { .. } => Ok(()),
            Self::File { file, path } => {
                let finished = file
                    .into_inner()
                    .map_err(IntoInnerError::into_error)
                    .and_then(PartialFile::commit);
                finished.with_context(|| place(Some(&path)))
            }
        }
    }
}

/// The context of an error.
fn place(path: Option<&Path>) -> String {
    match path {
        Some(path) => format!("--output: {}: cannot be written", path.display()),
        None => messages::UNWRITTEN.into(),
    }
}
