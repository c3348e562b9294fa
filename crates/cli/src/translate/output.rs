//! Where translations go: standard output, or a file that appears when it is whole.

use anyhow::{Context, Result, bail};
use cognate_export::PartialFile;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};

/// Where translations go.
pub(crate) enum Output<'o> {
    Standard(&'o mut dyn Write),
    /// A regular file: what is there now stays until the new one is whole.
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
    /// Prepares to write to `path`, or to `standard` if there is none or it is `-`; `read` are the files that are read meanwhile, by
    /// the options that name them.
    ///
    /// # Errors
    /// If the file could not be written, or is one of those that are read.
    pub(crate) fn open(path: Option<&Path>, read: &[(&str, Metadata)], standard: &'o mut dyn Write) -> Result<Self> {
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
            there => {
                if let Some((option, _)) = there.ok().and_then(|there| read.iter().find(|(_, read)| is_same(read, &there))) {
                    bail!("--output: {shown}: is the file of {option}; choose another file");
                }
                let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
                if !parent.is_dir() {
                    bail!("--output: {shown}: there is no folder {}; make it first", parent.display());
                }
                let Some(file) = PartialFile::create(&path).with_context(unwritable)? else {
                    bail!("--output: {shown}: another run is writing it; wait until it ends, or choose another file");
                };
                Ok(Self::File { file: BufWriter::new(file), path })
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
                let finished = file.into_inner().map_err(IntoInnerError::into_error).and_then(PartialFile::commit);
                finished.with_context(|| place(Some(&path)))
            }
        }
    }
}

/// Whether both are of one file, under whatever names.
#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Other systems do not tell which file a name stands for.
#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    false
}

/// What cannot be written.
fn place(path: Option<&Path>) -> String {
    match path {
        Some(path) => format!("--output: {}: cannot be written", path.display()),
        None => "standard output: cannot be written".into(),
    }
}
