//! Folders that appear whole or not at all.
//!
//! Files are written into a hidden folder beside the destination, each brought to the disk, and the folder takes its
//! name at the end, in one step. What interrupts the work before that leaves no trace under the destination's name; what it
//! leaves beside it, the next write to the same destination removes.

use crate::Error;
use crate::destination::Destination;
use crate::error::{Context, Problem};
use crate::staged::{REPLACED, Staged, remove_leftovers};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
    staged: Staged,
    report: Report,
    /// Files of an earlier export that are not written now.
    former: BTreeSet<String>,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Names and sizes in bytes, in the order of writing.
    pub files: Vec<(String, u64)>,
    /// Graphs and their weights, by name.
    pub hashes: BTreeMap<String, Hashed>,
}

/// What a file is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashed {
    /// Its size.
    pub bytes: u64,
    /// Its BLAKE3 hash, as `b3sum` prints it.
    pub blake3: String,
}

impl Report {
    /// Keeps the hash of the file that was written last.
    pub(crate) fn hashed(&mut self, hash: blake3::Hash) {
        let hashed = self.files.last().map(|(name, bytes)| (name.clone(), Hashed { bytes: *bytes, blake3: hash.to_string() }));
        self.hashes.extend(hashed);
    }

    /// All sizes together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Destination for Folder {
    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.write(name, bytes)
    }

    fn write_with(&mut self, name: &str, fill: impl FnOnce(&mut File, &Path) -> Result<(), Error>) -> Result<(), Error> {
        self.write_with(name, fill)
    }

    fn hashed(&mut self, hash: blake3::Hash) {
        self.report.hashed(hash);
    }
}

impl Folder {
    /// Prepares to write `destination`; parents that do not exist are made.
    ///
    /// # Errors
    /// If the destination exists and may not be replaced, if it is no folder, or if the system refuses.
    pub fn create(destination: &Path, existing: Existing) -> Result<Self, Error> {
        let destination = resolve(destination)?;
        let (parent, name) = (parent(&destination), name(&destination));
        // A process that was killed may have left the old folder under another name.
        remove_leftovers(parent, Some(name.as_ref()));
        if destination.exists() && existing == Existing::Refuse {
            return Err(Problem::Exists { path: destination }.into());
        }
        fs::create_dir_all(parent).context("create the folder", parent)?;
        let staged = Staged::create(parent, &name).context("write into the folder", parent)?;
        Ok(Self { destination, existing, staged, report: Report::default(), former: BTreeSet::new() })
    }

    /// Where the files lie until the folder is committed: to look at, not to write.
    pub fn path(&self) -> &Path {
        self.staged.path()
    }

    /// The graphs and weights written so far, by name.
    pub fn hashes(&self) -> &BTreeMap<String, Hashed> {
        &self.report.hashes
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
    /// An old folder and the new one change names in one step and the old one is removed afterwards. Where the system cannot do
    /// that, the old one is moved aside first, so at every moment one of the two is whole.
    ///
    /// # Errors
    /// If a folder is at the destination and may not be replaced, or if the system refuses; the old folder is then as it
    /// was.
    pub fn commit(self) -> Result<Report, Error> {
        self.commit_by(exchange)
    }

    /// As [`Folder::commit`]; `exchange` gives two paths each other's names, or says that the system cannot.
    fn commit_by(self, exchange: impl FnOnce(&Path, &Path) -> io::Result<bool>) -> Result<Report, Error> {
        for folder in SUBFOLDERS.map(|name| self.staged.path().join(name)).iter().filter(|folder| folder.is_dir()) {
            sync_folder(folder).context("bring to the disk", &self.destination)?;
        }
        sync_folder(self.staged.path()).context("bring to the disk", &self.destination)?;
        let replaces = fs::symlink_metadata(&self.destination).is_ok();
        if replaces {
            self.may_replace()?;
        }
        let Self { destination, staged, report, .. } = self;
        let folder = parent(&destination);
        let mut is_exchanged = false;
        if replaces {
            staged
                .rename(|staged| {
                    is_exchanged = exchange(staged, &destination)?;
                    Ok(())
                })
                .context("write", &destination)?;
        }
        let old = match (replaces, is_exchanged) {
            // The old folder has the staged one's name.
            (_, true) => Some(staged),
            (true, false) => Some(move_aside(staged, &destination)?),
            (false, false) => {
                staged.rename(|staged| fs::rename(staged, &destination)).context("write", &destination)?;
                staged.keep();
                None
            }
        };
        sync_folder(folder).context("bring to the disk", folder)?;
        if let Some(old) = old {
            let path = old.path().to_owned();
            old.remove().context("remove the replaced folder", &path)?;
        }
        Ok(report)
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

/// Lets two folders change names in one step; `false` where the system cannot.
#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::NOSYS | Errno::INVAL | Errno::XDEV) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> io::Result<bool> {
    Ok(false)
}

/// Gives `staged` the name `destination`, in two steps; returns the folder in which the old one is now.
fn move_aside(staged: Staged, destination: &Path) -> Result<Staged, Error> {
    let folder = parent(destination);
    let aside = Staged::with_suffix(folder, &name(destination), REPLACED).context("write into the folder", folder)?;
    let old = aside.path().join("old");
    let moved = staged.rename(|staged| {
        fs::rename(destination, &old)?;
        fs::rename(staged, destination).inspect_err(|_| {
            // If this fails too, the old folder is kept where it is.
            let _ = fs::rename(&old, destination);
        })
    });
    match moved {
        Ok(()) => {
            staged.keep();
            Ok(aside)
        }
        Err(error) if old.exists() => {
            aside.keep();
            Err(error).context("move back the replaced folder", &old)
        }
        Err(error) => Err(error).context("write", destination),
    }
}

/// The destination's own name, as hidden folders beside it have it.
fn name(destination: &Path) -> String {
    destination.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Brings the names in a folder to the disk, where the system lets a folder be opened.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

// Miri knows no locks of files, and no exchange of names.
#[cfg(all(test, not(miri)))]
#[allow(clippy::unwrap_used, reason = "as in the folders of tests")]
mod tests {
    use super::*;
    use crate::staged::tests::names;

    /// In one step, and where the system knows no such step.
    #[test]
    fn a_folder_is_replaced_and_nothing_is_left() {
        let ways: [fn(&Path, &Path) -> io::Result<bool>; 2] = [exchange, |_, _| Ok(false)];
        for way in ways {
            let parent = tempfile::tempdir().unwrap();
            let out = parent.path().join("out");
            for (file, content) in [("old.onnx", "old"), ("new.onnx", "new")] {
                let mut folder = Folder::create(&out, Existing::Replace).unwrap();
                folder.write(file, content.as_bytes()).unwrap();
                folder.commit_by(way).unwrap();
            }
            assert_eq!((names(parent.path()), names(&out)), (vec!["out".into()], vec!["new.onnx".into()]));
        }
    }

    /// What cannot be exchanged for another reason stays as it was.
    #[test]
    fn a_refused_exchange_leaves_the_old_folder() {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("out");
        fs::create_dir(&out).unwrap();
        let mut folder = Folder::create(&out, Existing::Replace).unwrap();
        folder.write("new.onnx", b"new").unwrap();
        let error = folder.commit_by(|_, _| Err(io::ErrorKind::PermissionDenied.into())).unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error}");
        assert_eq!((names(parent.path()), names(&out)), (vec!["out".into()], Vec::<String>::new()));
    }
}
