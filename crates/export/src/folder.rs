//! Folders that appear whole or not at all.
//!
//! Files are written into a hidden folder beside the destination, each brought to the disk, and the folder takes its
//! name at the end. What interrupts the work before that leaves no trace under the destination's name.

use crate::Error;
use crate::error::{Context, Problem};
use std::collections::BTreeSet;
use std::fs::{self, DirEntry, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What happens to a folder that is already at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is left alone, and that is an error.
    Refuse,
    /// It is replaced if it is empty or holds only files of the names now written, of [`Folder::replaces`], and other
    /// `.onnx`, `.onnx_data` ones.
    Replace,
}

/// A folder being written, which nobody sees until [`Folder::commit`]; dropped without that, it is removed.
#[derive(Debug)]
pub struct Folder {
    destination: PathBuf,
    existing: Existing,
    staged: TempDir,
    report: Report,
    /// Files of an earlier export that are not written now.
    former: BTreeSet<String>,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Names and sizes in bytes, in the order of writing.
    pub files: Vec<(String, u64)>,
}

impl Report {
    /// All sizes together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Folder {
    /// Prepares to write `destination`; parents that do not exist are made.
    ///
    /// # Errors
    /// If the destination exists and may not be replaced, if it is no folder, or if the system refuses.
    pub fn create(destination: &Path, existing: Existing) -> Result<Self, Error> {
        let destination = resolve(destination)?;
        if destination.exists() && existing == Existing::Refuse {
            return Err(Problem::Exists { path: destination }.into());
        }
        let parent = parent(&destination);
        fs::create_dir_all(parent).context("create the folder", parent)?;
        let staged = beside(&destination, ".partial").context("write into the folder", parent)?;
        Ok(Self { destination, existing, staged, report: Report::default(), former: BTreeSet::new() })
    }

    /// Where the files lie until the folder is committed: to look at, not to write.
    pub fn path(&self) -> &Path {
        self.staged.path()
    }

    /// Names that an earlier export may have written and this one may not: [`Existing::Replace`] lets them go too.
    pub fn replaces(&mut self, names: &[&str]) {
        self.former.extend(names.iter().map(|&name| name.to_owned()));
    }

    /// Writes a file, in the folder or in one of the subfolders that a folder may have: `onnx/encoder_model.onnx`.
    ///
    /// # Errors
    /// If `name` is taken or has a path, or if the system refuses.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.write_with(name, |file, path| file.write_all(bytes).context("write", path))?;
        read_back(&self.staged.path().join(name), &self.destination.join(name), bytes)
    }

    /// Writes a file with the contents of another, which are not held in memory.
    ///
    /// # Errors
    /// If `from` cannot be read, and as [`Folder::write`].
    pub fn copy(&mut self, name: &str, from: &Path) -> Result<(), Error> {
        let mut source = File::open(from).context("read", from)?;
        self.write_with(name, |file, path| io::copy(&mut source, file).map(drop).context("write", path))
    }

    /// Writes a file as `fill` does, piece by piece: for contents that are not held in memory.
    ///
    /// # Errors
    /// As [`Folder::write`].
    pub fn write_pieces(&mut self, name: &str, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
        self.write_with(name, |file, path| fill(file).context("write", path))
    }

    /// Writes a file as `fill` does, which is told the path under which the file will be known.
    pub(crate) fn write_with(&mut self, name: &str, fill: impl FnOnce(&mut File, &Path) -> Result<(), Error>) -> Result<(), Error> {
        write_file(self.staged.path(), &self.destination, name, &mut self.report, fill)
    }

    /// Gives the folder its name.
    ///
    /// An old folder is moved aside first and removed last, so at every moment one of the two is whole.
    ///
    /// # Errors
    /// If a folder is at the destination and may not be replaced, or if the system refuses; the old folder is then as it
    /// was.
    pub fn commit(self) -> Result<Report, Error> {
        for folder in SUBFOLDERS.map(|name| self.staged.path().join(name)).iter().filter(|folder| folder.is_dir()) {
            sync_folder(folder).context("bring to the disk", &self.destination)?;
        }
        sync_folder(self.staged.path()).context("bring to the disk", &self.destination)?;
        let old = match fs::symlink_metadata(&self.destination) {
            Err(_) => None,
            Ok(_) => {
                self.may_replace()?;
                let aside = beside(&self.destination, ".replaced").context("write into the folder", parent(&self.destination))?;
                fs::rename(&self.destination, aside.path().join("old")).context("move aside", &self.destination)?;
                Some(aside)
            }
        };
        if let Err(error) = fs::rename(self.staged.path(), &self.destination) {
            if let Some(aside) = old {
                let path = aside.path().join("old");
                if let Err(error) = fs::rename(&path, &self.destination) {
                    let _kept = aside.keep();
                    return Err(error).context("move back the replaced folder", &path);
                }
            }
            return Err(error).context("write", &self.destination);
        }
        // The staged folder has its name now: nothing is left to remove.
        let _moved = self.staged.keep();
        sync_folder(parent(&self.destination)).context("bring to the disk", parent(&self.destination))?;
        if let Some(aside) = old {
            let path = aside.path().to_owned();
            aside.close().context("remove the replaced folder", &path)?;
        }
        Ok(self.report)
    }

    /// Whether the folder at the destination may go: replacing must not remove what no export wrote.
    fn may_replace(&self) -> Result<(), Error> {
        let path = &self.destination;
        if self.existing == Existing::Refuse {
            return Err(Problem::Exists { path: path.clone() }.into());
        }
        let mut foreign = BTreeSet::new();
        for entry in entries(path)? {
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type().context("read the folder", path)?.is_dir() && SUBFOLDERS.contains(&name.as_str()) {
                for below in entries(&entry.path())? {
                    let name = format!("{name}/{}", below.file_name().to_string_lossy());
                    foreign.extend((!self.is_ours(&below, &name)?).then_some(name));
                }
            } else if !self.is_ours(&entry, &name)? {
                foreign.insert(name);
            }
        }
        if foreign.is_empty() { Ok(()) } else { Err(Problem::Foreign { path: path.clone(), names: foreign.into_iter().collect() }.into()) }
    }

    /// Whether an export wrote what is called `name` at the destination.
    fn is_ours(&self, entry: &DirEntry, name: &str) -> Result<bool, Error> {
        let is_file = entry.file_type().context("look at", &entry.path())?.is_file();
        let is_written = self.report.files.iter().any(|(written, _)| written == name);
        Ok(is_file && (is_written || self.former.contains(name) || name.ends_with(".onnx") || name.ends_with(".onnx_data")))
    }
}

/// The folders that a folder may have: where transformers.js looks for graphs.
const SUBFOLDERS: [&str; 1] = ["onnx"];

fn entries(folder: &Path) -> Result<Vec<DirEntry>, Error> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<_>>);
    entries.context("read the folder", folder)
}

/// Writes a file into the folder `staged` as `fill` does, which is told its path in `destination`; reports it.
pub(crate) fn write_file(
    staged: &Path,
    destination: &Path,
    name: &str,
    report: &mut Report,
    fill: impl FnOnce(&mut File, &Path) -> Result<(), Error>,
) -> Result<(), Error> {
    let (subfolder, plain) = match name.split_once('/') {
        Some((subfolder, plain)) => (Some(subfolder), plain),
        None => (None, name),
    };
    let is_name = Path::new(plain).file_name().is_some_and(|found| found == plain) && !plain.contains('\\');
    if !is_name || subfolder.is_some_and(|subfolder| !SUBFOLDERS.contains(&subfolder)) {
        return Err(Problem::FileName { name: name.into() }.into());
    }
    if report.files.iter().any(|(taken, _)| taken == name) {
        return Err(Problem::SameFile { name: name.into() }.into());
    }
    let path = destination.join(name);
    if let Some(subfolder) = subfolder {
        fs::create_dir_all(staged.join(subfolder)).context("create the folder", &destination.join(subfolder))?;
    }
    let mut file = File::create_new(staged.join(name)).context("create", &path)?;
    fill(&mut file, &path)?;
    file.sync_all().context("bring to the disk", &path)?;
    let bytes = file.metadata().context("look at", &path)?.len();
    report.files.push((name.into(), bytes));
    Ok(())
}

/// Whether the file that was written as `staged` holds what it was given; errors call it `path`.
pub(crate) fn read_back(staged: &Path, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let found = fs::read(staged).context("read back", path)?;
    if found == bytes { Ok(()) } else { Err(Problem::ReadBack { path: path.into() }.into()) }
}

/// The destination with links followed, so that a link's target is replaced and not the link.
fn resolve(destination: &Path) -> Result<PathBuf, Error> {
    let no_folder = |message| Error::from(Problem::NoFolder { path: destination.into(), message });
    match fs::symlink_metadata(destination) {
        Ok(_) => {
            let resolved = fs::canonicalize(destination).context("follow the link", destination)?;
            if resolved.is_dir() { Ok(resolved) } else { Err(no_folder("is a file; a folder is wanted")) }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && destination.file_name().is_some() => Ok(destination.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(no_folder("names no folder")),
        Err(error) => Err(error).context("look at", destination),
    }
}

fn parent(destination: &Path) -> &Path {
    match destination.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// A hidden folder beside `destination`, on the same file system so that renaming is one step.
fn beside(destination: &Path, suffix: &str) -> io::Result<TempDir> {
    let name = destination.file_name().unwrap_or_default().to_string_lossy();
    tempfile::Builder::new().prefix(&format!(".{name}.")).suffix(suffix).tempdir_in(parent(destination))
}

/// Brings the names in a folder to the disk, where the system lets a folder be opened.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}
