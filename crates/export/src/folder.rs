//! Folders that are complete or absent.
//!
//! Files are written to a hidden folder next to the destination, each synced to disk, and the
//! folder is renamed at the end, in one step. An interruption before that leaves nothing at the
//! destination; the next write to the same destination removes the hidden folder.

use crate::Error;
use crate::destination::Destination;
use crate::error::{Context, Problem};
use crate::staged::{REPLACED, Staged, remove_leftovers};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What to do if the destination exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Fail, and keep it.
    Refuse,
    /// Replace it if it is empty or contains only files with the names now written, those of
    /// [`Folder::replaces`], and other `.onnx` and `.onnx_data` files. Graphs replace only a folder
    /// with graphs.
    Replace,
}

/// A folder being written. It becomes visible with [`Folder::commit`] and is removed if
/// dropped before.
#[derive(Debug)]
pub struct Folder {
    destination: PathBuf,
    existing: Existing,
    staged: Staged,
    report: Report,
    /// Files of an earlier export that are not written again.
    former: BTreeSet<String>,
}

/// The files written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Names and sizes in bytes, in the order of writing.
    pub files: Vec<(String, u64)>,
    /// Graphs and weights, by name.
    pub hashes: BTreeMap<String, Hashed>,
}

/// Size and hash of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashed {
    /// Size in bytes.
    pub bytes: u64,
    /// Its BLAKE3 hash, as `b3sum` prints it.
    pub blake3: String,
}

impl Report {
    /// Records the hash of the last file written.
    pub(crate) fn hashed(&mut self, hash: blake3::Hash) {
        let hashed = self.files.last().map(|(name, bytes)| {
            (name.clone(), Hashed { bytes: *bytes, blake3: hash.to_string() })
        });
        self.hashes.extend(hashed);
    }

    /// The sum of all sizes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Destination for Folder {
    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.write(name, bytes)
    }

    fn write_with(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut File, &Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.write_with(name, fill)
    }

    fn hashed(&mut self, hash: blake3::Hash) {
        self.report.hashed(hash);
    }
}

impl Folder {
    /// Prepares to write `destination`; creates missing parents.
    ///
    /// # Errors
    /// If the destination exists and may not be replaced, if it is not a folder, or on errors
    /// of the system.
    pub fn create(destination: &Path, existing: Existing) -> Result<Self, Error> {
        let destination = resolve(destination)?;
        let (parent, name) = (parent(&destination), name(&destination));
        // A killed process may have left the old folder under another name.
        remove_leftovers(parent, Some(name.as_ref()));
        if destination.exists() && existing == Existing::Refuse {
            return Err(Problem::Exists { path: destination }.into());
        }
        fs::create_dir_all(parent).context("create the folder", parent)?;
        let staged = Staged::create(parent, &name).context("write into the folder", parent)?;
        Ok(Self {
            destination,
            existing,
            staged,
            report: Report::default(),
            former: BTreeSet::new(),
        })
    }

    /// The temporary path of the folder until it is committed, for reading only.
    pub fn path(&self) -> &Path {
        self.staged.path()
    }

    /// The graphs and weights written so far, by name.
    pub fn hashes(&self) -> &BTreeMap<String, Hashed> {
        &self.report.hashes
    }

    /// Names of earlier exports that this one may not write: [`Existing::Replace`]
    /// removes them too.
    pub fn replaces(&mut self, names: &[&str]) {
        self.former.extend(names.iter().map(|&name| name.to_owned()));
    }

    /// Writes a file in the folder or in an allowed subfolder: `onnx/encoder_model.onnx`.
    ///
    /// # Errors
    /// If `name` is used or contains another path, or on errors of the system.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.write_with(name, |file, path| file.write_all(bytes).context("write", path))?;
        read_back(&self.staged.path().join(name), &self.destination.join(name), bytes)
    }

    /// Copies a file without loading it into memory.
    ///
    /// # Errors
    /// If `from` cannot be read, and as [`Folder::write`].
    pub fn copy(&mut self, name: &str, from: &Path) -> Result<(), Error> {
        let mut source = File::open(from).context("read", from)?;
        self.write_with(name, |file, path| {
            io::copy(&mut source, file).map(drop).context("write", path)
        })
    }

    /// Writes a file with `fill`, piece by piece, for contents that are not in memory.
    ///
    /// # Errors
    /// As [`Folder::write`].
    pub fn write_pieces(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Error> {
        self.write_with(name, |file, path| fill(file).context("write", path))
    }

    /// Writes a file with `fill`, which receives the final path.
    pub(crate) fn write_with(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut File, &Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        write_file(self.staged.path(), &self.destination, name, &mut self.report, fill)
    }

    /// Renames the folder to its final name.
    ///
    /// An old folder and the new one are exchanged in one step, and the old one is removed. If
    /// the system does not support this, the old one is moved aside first. At every moment one of
    /// them is complete.
    ///
    /// # Errors
    /// If the destination is a folder that may not be replaced, or on errors of the system; the old
    /// folder is then unchanged.
    pub fn commit(self) -> Result<Report, Error> {
        self.commit_by(exchange)
    }

    /// As [`Folder::commit`]; `exchange` swaps two paths, or returns `false` if the system cannot.
    fn commit_by(
        self,
        exchange: impl FnOnce(&Path, &Path) -> io::Result<bool>,
    ) -> Result<Report, Error> {
        for folder in SUBFOLDERS
            .map(|name| self.staged.path().join(name))
            .iter()
            .filter(|folder| folder.is_dir())
        {
            sync_folder(folder).context("sync", &self.destination)?;
        }
        sync_folder(self.staged.path()).context("sync", &self.destination)?;
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
            // The staged path now contains the old folder.
            (_, true) => Some(staged),
            (true, false) => Some(move_aside(staged, &destination)?),
            (false, false) => {
                staged
                    .rename(|staged| fs::rename(staged, &destination))
                    .context("write", &destination)?;
                staged.keep();
                None
            }
        };
        sync_folder(folder).context("sync", folder)?;
        if let Some(old) = old {
            let path = old.path().to_owned();
            old.remove().context("remove the replaced folder", &path)?;
        }
        Ok(report)
    }

    /// Checks that the folder at the destination contains only files of an export.
    fn may_replace(&self) -> Result<(), Error> {
        let path = &self.destination;
        if self.existing == Existing::Refuse {
            return Err(Problem::Exists { path: path.clone() }.into());
        }
        let is_graph = |name: &str| name.ends_with(".onnx");
        let (mut foreign, mut ours) = (BTreeSet::new(), BTreeSet::new());
        for folder in [""].into_iter().chain(SUBFOLDERS).filter(|folder| path.join(folder).is_dir())
        {
            for entry in entries(&path.join(folder))? {
                let name = entry.file_name().to_string_lossy().into_owned();
                let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let is_subfolder = entry.file_type().context("read the folder", path)?.is_dir()
                    && SUBFOLDERS.contains(&name.as_str());
                if is_subfolder {
                    continue;
                }
                let names = if self.is_ours(&entry, &name)? { &mut ours } else { &mut foreign };
                names.insert(name);
            }
        }
        // A tokenizer and a configuration alone are somebody's own.
        let writes_graphs = self.report.files.iter().any(|(name, _)| is_graph(name));
        if writes_graphs && !ours.iter().any(|name| is_graph(name)) {
            foreign.append(&mut ours);
        }
        if foreign.is_empty() {
            Ok(())
        } else {
            Err(Problem::Foreign { path: path.clone(), names: foreign.into_iter().collect() }
                .into())
        }
    }

    /// Whether `name` at the destination is a file of an export.
    fn is_ours(&self, entry: &DirEntry, name: &str) -> Result<bool, Error> {
        let is_file = entry.file_type().context("read", &entry.path())?.is_file();
        let is_written = self.report.files.iter().any(|(written, _)| written == name);
        Ok(is_file
            && (is_written
                || self.former.contains(name)
                || name.ends_with(".onnx")
                || name.ends_with(".onnx_data")))
    }
}

/// Allowed subfolders: where transformers.js searches for graphs, sentence-transformers for
/// settings, and Triton for models and their versions.
const SUBFOLDERS: [&str; 10] = [
    "onnx",
    "1_Pooling",
    "encoder",
    "encoder/1",
    "decoder",
    "decoder/1",
    "model",
    "model/1",
    "translate",
    "translate/1",
];

fn entries(folder: &Path) -> Result<Vec<DirEntry>, Error> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<_>>);
    entries.context("read the folder", folder)
}

/// Writes a file to the folder `staged` with `fill`, which receives its path in `destination`; adds
/// it to the report.
pub(crate) fn write_file(
    staged: &Path,
    destination: &Path,
    name: &str,
    report: &mut Report,
    fill: impl FnOnce(&mut File, &Path) -> Result<(), Error>,
) -> Result<(), Error> {
    let (subfolder, plain) = match name.rsplit_once('/') {
        Some((subfolder, plain)) => (Some(subfolder), plain),
        None => (None, name),
    };
    let is_name =
        Path::new(plain).file_name().is_some_and(|found| found == plain) && !plain.contains('\\');
    if !is_name || subfolder.is_some_and(|subfolder| !SUBFOLDERS.contains(&subfolder)) {
        return Err(Problem::FileName { name: name.into() }.into());
    }
    if report.files.iter().any(|(taken, _)| taken == name) {
        return Err(Problem::SameFile { name: name.into() }.into());
    }
    let path = destination.join(name);
    if let Some(subfolder) = subfolder {
        fs::create_dir_all(staged.join(subfolder))
            .context("create the folder", &destination.join(subfolder))?;
    }
    let mut file = File::create_new(staged.join(name)).context("create", &path)?;
    fill(&mut file, &path)?;
    file.sync_all().context("sync", &path)?;
    let bytes = file.metadata().context("read", &path)?.len();
    report.files.push((name.into(), bytes));
    Ok(())
}

/// Checks that the file at `staged` contains `bytes`; errors name it `path`.
pub(crate) fn read_back(staged: &Path, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let found = fs::read(staged).context("read back", path)?;
    if found == bytes { Ok(()) } else { Err(Problem::ReadBack { path: path.into() }.into()) }
}

/// The destination with links resolved, so that a link's target is replaced and not the link.
fn resolve(destination: &Path) -> Result<PathBuf, Error> {
    let no_folder = |message| Error::from(Problem::NoFolder { path: destination.into(), message });
    match fs::symlink_metadata(destination) {
        Ok(_) => {
            let resolved = fs::canonicalize(destination).context("follow the link", destination)?;
            if resolved.is_dir() {
                Ok(resolved)
            } else {
                Err(no_folder("expected a folder, found a file"))
            }
        }
        Err(error)
            if error.kind() == io::ErrorKind::NotFound && destination.file_name().is_some() =>
        {
            Ok(destination.into())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(no_folder("expected the path of a folder"))
        }
        Err(error) => Err(error).context("read", destination),
    }
}

fn parent(destination: &Path) -> &Path {
    match destination.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Swaps two folders in one step; returns `false` if the system cannot.
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

/// Renames `staged` to `destination` in two steps; returns the folder that now
/// contains the old one.
fn move_aside(staged: Staged, destination: &Path) -> Result<Staged, Error> {
    let folder = parent(destination);
    let aside = Staged::with_suffix(folder, &name(destination), REPLACED)
        .context("write into the folder", folder)?;
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

/// The last component of the destination, used in the names of hidden folders.
fn name(destination: &Path) -> String {
    destination.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Syncs the entries of a folder, if the system can open folders.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

// Miri does not support file locks and exchanging names.
#[cfg(all(test, not(miri)))]
#[allow(clippy::unwrap_used, reason = "as in the folders of tests")]
mod tests {
    use super::*;
    use crate::staged::tests::names;

    /// In one step, and on systems without that.
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
            assert_eq!(
                (names(parent.path()), names(&out)),
                (vec!["out".into()], vec!["new.onnx".into()])
            );
        }
    }

    /// After other errors of the exchange the folder is unchanged.
    #[test]
    fn a_refused_exchange_leaves_the_old_folder() {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("out");
        fs::create_dir(&out).unwrap();
        let mut folder = Folder::create(&out, Existing::Replace).unwrap();
        folder.write("new.onnx", b"new").unwrap();
        let error =
            folder.commit_by(|_, _| Err(io::ErrorKind::PermissionDenied.into())).unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error}");
        assert_eq!((names(parent.path()), names(&out)), (vec!["out".into()], Vec::<String>::new()));
        // Nor do graphs replace a folder without graphs, whatever its files are called.
        fs::write(out.join("config.json"), "{}").unwrap();
        let mut folder = Folder::create(&out, Existing::Replace).unwrap();
        folder.write("new.onnx", b"new").unwrap();
        folder.write("config.json", b"{}").unwrap();
        let error = folder.commit().unwrap_err().to_string();
        assert!(error.contains("contains config.json"), "{error}");
        assert_eq!(names(&out), ["config.json"]);
    }
}
