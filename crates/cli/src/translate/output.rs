//! Where translations go: standard output, or a file that appears when it is whole.

use anyhow::{Context, Result, bail};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Where translations go.
pub(crate) enum Output<'o> {
    Standard(&'o mut dyn Write),
    /// A regular file: what is there now stays until the new one is whole.
    File {
        /// Dropped first: another run may take the name as soon as the lock is gone.
        partial: Partial,
        file: BufWriter<File>,
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
                let Some((file, partial)) = Partial::open(&path).with_context(unwritable)? else {
                    bail!("--output: {shown}: another run is writing it; wait until it ends, or choose another file");
                };
                Ok(Self::File { partial, file: BufWriter::new(file), path })
            }
        }
    }

    /// Writes lines and hands them on at once.
    pub(crate) fn write(&mut self, lines: &[String]) -> Result<()> {
        let (writer, path): (&mut dyn Write, Option<&Path>) = match self {
            Self::Standard(writer) => (writer, None),
            Self::File { file, path, .. } => (file, Some(path)),
            Self::Stream { file, path } => (file, Some(path)),
        };
        let written = lines.iter().try_for_each(|line| writeln!(writer, "{line}")).and_then(|()| writer.flush());
        written.with_context(|| place(path))
    }

    /// Lets the file appear.
    pub(crate) fn finish(self) -> Result<()> {
        match self {
            Self::Standard(_) | Self::Stream { .. } => Ok(()),
            Self::File { partial, mut file, path } => {
                // The name goes, one way or the other, before the lock.
                let finished = file.flush().and_then(|()| file.get_ref().sync_all()).and_then(|()| partial.persist(&path));
                finished.with_context(|| place(Some(&path)))
            }
        }
    }
}

/// The name of a file that is not whole yet; it is removed if it never is.
///
/// Each output has one such name, so that runs that are killed leave one file at most.
pub(crate) struct Partial(Option<PathBuf>);

impl Partial {
    /// The empty file that shall become the one at `path`, locked against other runs; `None` if one of them holds it.
    fn open(path: &Path) -> io::Result<Option<(File, Self)>> {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().ok_or_else(|| io::Error::other("it has no name"))?);
        name.push(".cognate-partial");
        let partial = path.with_file_name(name);
        loop {
            // What others may have put there is not written through.
            if fs::symlink_metadata(&partial).is_ok_and(|metadata| !metadata.is_file()) {
                return Err(io::Error::other(format!("{} is no regular file; remove it", partial.display())));
            }
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&partial)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Ok(None),
                // Some file systems have no locks: then runs with one output are not kept apart.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
            // The run that held it may have let it appear, or removed it, before the lock was ours.
            if is_at(&file, &partial) {
                file.set_len(0)?;
                return Ok(Some((file, Self(Some(partial)))));
            }
        }
    }

    /// Gives it the name of the whole file.
    fn persist(mut self, path: &Path) -> io::Result<()> {
        let Some(partial) = &self.0 else { return Ok(()) };
        fs::rename(partial, path)?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(partial) = &self.0 {
            let _ = fs::remove_file(partial);
        }
    }
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    fs::symlink_metadata(path).is_ok_and(|there| file.metadata().is_ok_and(|here| place(here) == place(there)))
}

/// Other systems do not tell which file a name stands for.
#[cfg(not(unix))]
fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

/// What cannot be written.
fn place(path: Option<&Path>) -> String {
    match path {
        Some(path) => format!("--output: {}: cannot be written", path.display()),
        None => "standard output: cannot be written".into(),
    }
}
