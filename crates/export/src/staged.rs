//! Files and folders under temporary names until they are complete.
//!
//! A killed process leaves its temporary files. The next one that writes there removes them, but
//! must not touch those that another process still writes. So the writing process locks them
//! (`flock`): the system releases a lock when its process ends in any way. A process id would not
//! suffice, since another process may have it by then.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

/// Suffix of an incomplete folder, `.NAME.` and six letters or digits before it.
pub(crate) const PARTIAL: &str = ".partial";
/// Suffix of a folder that contains the replaced one as `old`, if the system cannot
/// exchange two folders.
pub(crate) const REPLACED: &str = ".replaced";
/// The folder in which [`Additions`](crate::Additions) keeps replaced files.
pub(crate) const ASIDE: &str = "replaced";
const RANDOM: usize = 6;

/// The temporary paths of this process.
static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// How often the removal of a folder is tried.
const TRIES: usize = 100;

/// Removes all temporary files of this process, for a program that is ended by a signal.
///
/// Nothing is created or renamed afterwards; a thread that tries waits for the end of the process.
pub fn abandon() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    for path in held.iter() {
        let is_folder = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
        // Other threads may still write into a folder. The next process that writes there removes
        // what is left.
        let _ = match is_folder {
            true => (0..TRIES).find(|_| fs::remove_dir_all(path).is_ok()).is_some(),
            false => fs::remove_file(path).is_ok(),
        };
    }
    std::mem::forget(held);
}

/// Removes the files that ended processes left in `folder`; with `name`, only those for
/// `folder/name`.
///
/// Files of running processes are kept; on systems without locks nothing is removed.
pub fn remove_leftovers(folder: &Path, name: Option<&OsStr>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let left = destination(&entry.file_name())
            .filter(|left| name.is_none_or(|name| name == left.as_os_str()));
        let (true, Some(left)) = (is_folder, left) else { continue };
        if let Some(Ok(_lock)) = lock(&path) {
            restore(&path, &folder.join(left));
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Returns `out` for `.out.a1B2c3.partial` and `.out.a1B2c3.replaced`.
fn destination(name: &OsStr) -> Option<OsString> {
    let name = name.to_str()?.strip_prefix('.')?;
    let name = name.strip_suffix(PARTIAL).or_else(|| name.strip_suffix(REPLACED))?;
    let (name, random) = name.rsplit_once('.')?;
    (random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        .then(|| name.into())
}

/// Completes or reverts a commit that was interrupted while a name was missing.
fn restore(left: &Path, destination: &Path) {
    let is_missing = |path: &Path| fs::symlink_metadata(path).is_err();
    if is_missing(destination) {
        // It exists if the system could not exchange two folders.
        let _ = fs::rename(left.join("old"), destination);
    }
    let aside = left.join(ASIDE);
    if aside.is_dir() {
        let names = |folder: &Path| {
            fs::read_dir(folder)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.file_name())
                .collect::<Vec<_>>()
        };
        let folder = left.parent().unwrap_or(Path::new("."));
        let new: Vec<_> = names(left).into_iter().filter(|name| name != ASIDE).collect();
        // If an old file is still where a new one belongs, old files were being moved aside: move
        // them back. Otherwise complete the renames.
        let goes_back = new.iter().any(|name| !is_missing(&folder.join(name)));
        let (from, names) = if goes_back { (aside.as_path(), names(&aside)) } else { (left, new) };
        for name in names.iter().filter(|name| is_missing(&folder.join(name))) {
            let _ = fs::rename(from.join(name), folder.join(name));
        }
    }
}

/// A folder under a temporary name, removed when dropped.
#[derive(Debug)]
pub struct Staged {
    folder: Option<TempDir>,
    path: PathBuf,
    /// The lock of the folder, kept after renaming; `None` if folders cannot be locked.
    _lock: Option<File>,
}

impl Staged {
    /// Creates a folder that will become `parent/name`, and removes what ended
    /// processes left of it.
    ///
    /// # Errors
    /// On errors of the system.
    pub fn create(parent: &Path, name: &str) -> io::Result<Self> {
        remove_leftovers(parent, Some(name.as_ref()));
        Self::with_suffix(parent, name, PARTIAL)
    }

    /// Creates a folder in the system's temporary folder for the lifetime of this value.
    ///
    /// # Errors
    /// As [`Staged::create`].
    pub fn temporary() -> io::Result<Self> {
        Self::create(&std::env::temp_dir(), "cognate-temporary")
    }

    pub(crate) fn with_suffix(parent: &Path, name: &str, suffix: &str) -> io::Result<Self> {
        loop {
            let folder = tempfile::Builder::new()
                .prefix(&format!(".{name}."))
                .suffix(suffix)
                .rand_bytes(RANDOM)
                .tempdir_in(parent)?;
            let path = folder.path().to_owned();
            hold(&path);
            // Before it was locked, another process may have removed the folder as a leftover.
            match lock(&path) {
                Some(Err(Taken)) => release(&path),
                Some(Ok(lock)) => {
                    return Ok(Self { folder: Some(folder), path, _lock: Some(lock) });
                }
                None => return Ok(Self { folder: Some(folder), path, _lock: None }),
            }
        }
    }

    /// The temporary path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `rename`, which renames or replaces the temporary path; a process ended by a
    /// signal waits for it.
    pub(crate) fn rename(&self, rename: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let _held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        rename(&self.path)
    }

    /// Keeps the temporary path.
    pub(crate) fn keep(mut self) {
        release(&self.path);
        if let Some(folder) = self.folder.take() {
            let _kept = folder.keep();
        }
    }

    /// Removes the temporary path, which may be missing.
    pub(crate) fn remove(mut self) -> io::Result<()> {
        release(&self.path);
        match self.folder.take().map_or(Ok(()), TempDir::close) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        release(&self.path);
    }
}

fn hold(path: &Path) {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
}

fn release(path: &Path) {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
}

/// Another process has locked, moved or removed it.
struct Taken;

/// Locks the folder at `path`; `None` if the system has no locks for folders.
fn lock(path: &Path) -> Option<Result<File, Taken>> {
    if !cfg!(unix) {
        return None;
    }
    let folder = match File::open(path) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(Err(Taken)),
        Err(_) => return None,
    };
    match folder.try_lock() {
        Ok(()) if is_at(&folder, path) => Some(Ok(folder)),
        Ok(()) | Err(TryLockError::WouldBlock) => Some(Err(Taken)),
        Err(TryLockError::Error(_)) => None,
    }
}

/// A file under a temporary name next to its final path, removed when dropped.
///
/// Each file has one temporary name, `.NAME.cognate-partial`: the next process overwrites the file
/// of a killed one.
#[derive(Debug)]
pub struct PartialFile {
    file: File,
    partial: PathBuf,
    path: PathBuf,
    /// Those of the file that is replaced.
    permissions: Option<fs::Permissions>,
}

impl PartialFile {
    /// Creates an empty file that will become `path`; `None` if another process writes it. A file
    /// that it replaces keeps its permissions.
    ///
    /// # Errors
    /// If the file that it replaces is write-protected, and on errors of the system.
    pub fn create(path: &Path) -> io::Result<Option<Self>> {
        Self::open(path, |file| match file.try_lock() {
            Err(TryLockError::WouldBlock) => false,
            // Some file systems have no locks: processes that write the same file are not
            // separated there.
            Ok(()) | Err(TryLockError::Error(_)) => true,
        })
    }

    /// As [`PartialFile::create`], but waits for a process that writes the same file.
    ///
    /// # Errors
    /// On errors of the system.
    pub fn wait_for(path: &Path) -> io::Result<Self> {
        let file = Self::open(path, |file| {
            let _ = file.lock();
            true
        })?;
        file.ok_or_else(|| io::Error::other("another process writes to it"))
    }

    fn open(path: &Path, lock: impl Fn(&File) -> bool) -> io::Result<Option<Self>> {
        let permissions = match OpenOptions::new().write(true).open(path) {
            Ok(replaced) => Some(replaced.metadata()?.permissions()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut name = OsString::from(".");
        name.push(
            path.file_name().ok_or_else(|| io::Error::other("expected a path with a file name"))?,
        );
        name.push(".cognate-partial");
        let partial = path.with_file_name(name);
        loop {
            // Never write through a link that others may have created.
            if fs::symlink_metadata(&partial).is_ok_and(|metadata| !metadata.is_file()) {
                return Err(io::Error::other(format!(
                    "{} is not a regular file; remove it",
                    partial.display()
                )));
            }
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&partial);
            let file = file.map_err(|error| {
                let folder = partial.parent().unwrap_or(Path::new("."));
                let message = format!("new file in {}: {error}", folder.display());
                io::Error::new(error.kind(), message)
            })?;
            if !lock(&file) {
                return Ok(None);
            }
            // The process that held the lock may have renamed or removed the file before
            // it was acquired.
            if is_at(&file, &partial) {
                hold(&partial);
                file.set_len(0)?;
                return Ok(Some(Self { file, partial, path: path.to_owned(), permissions }));
            }
        }
    }

    /// Syncs the file to disk and renames it to its final path, replacing an existing file.
    ///
    /// # Errors
    /// On errors of the system; an existing file is then unchanged.
    pub fn commit(self) -> io::Result<()> {
        if let Some(permissions) = &self.permissions {
            self.file.set_permissions(permissions.clone())?;
        }
        self.file.sync_all()?;
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        fs::rename(&self.partial, &self.path)?;
        held.remove(&self.partial);
        Ok(())
    }
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PartialFile {
    /// Removes the file before releasing the lock: another process may use the path as soon as the
    /// lock is released.
    fn drop(&mut self) {
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if held.remove(&self.partial) {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Whether `file` is the file at `path`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    fs::symlink_metadata(path)
        .is_ok_and(|there| file.metadata().is_ok_and(|here| place(here) == place(there)))
}

/// Other systems cannot identify a file.
#[cfg(not(unix))]
fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

// Miri does not support file locks and exchanging names.
#[cfg(all(test, not(miri)))]
#[allow(clippy::unwrap_used, reason = "as in the folders of tests")]
pub(crate) mod tests {
    use super::*;

    /// Sorted names of a folder's files, including hidden ones.
    pub(crate) fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn only_what_this_crate_stages_is_known_by_its_name() {
        for (name, expected) in [
            (".out.a1B2c3.partial", Some("out")),
            (".out.v2.a1B2c3.partial", Some("out.v2")),
            (".out.a1B2c3.replaced", Some("out")),
            (".out.cognate-partial", None),
            (".out.a1B2c.partial", None),
            (".out.a1-2c3.partial", None),
            ("out.a1B2c3.partial", None),
            (".out.partial", None),
        ] {
            assert_eq!(destination(name.as_ref()).as_deref(), expected.map(OsStr::new), "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_the_dead_left_goes_and_what_the_living_write_stays() {
        let folder = tempfile::tempdir().unwrap();
        let living = Staged::create(folder.path(), "out").unwrap();
        for left in [".out.aaaaaa.partial", ".out.bbbbbb.replaced", ".other.cccccc.partial"] {
            fs::create_dir(folder.path().join(left)).unwrap();
        }
        fs::write(folder.path().join(".out.dddddd.partial"), "a file is nobody's").unwrap();
        let second = Staged::create(folder.path(), "out").unwrap();
        let name =
            |staged: &Staged| staged.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected = vec![
            ".other.cccccc.partial".into(),
            ".out.dddddd.partial".into(),
            name(&living),
            name(&second),
        ];
        expected.sort();
        assert_eq!(names(folder.path()), expected);
        drop((living, second));
        remove_leftovers(folder.path(), None);
        assert_eq!(names(folder.path()), [".out.dddddd.partial"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_was_moved_aside_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(".out.aaaaaa.replaced/old/whole")).unwrap();
        remove_leftovers(folder.path(), Some("out".as_ref()));
        assert_eq!(
            (names(folder.path()), names(&folder.path().join("out"))),
            (vec!["out".into()], vec!["whole".into()])
        );
    }

    /// The files of an addition, `a` and `b`, after some of its renames: first old ones aside, then
    /// new ones into place.
    #[cfg(unix)]
    #[test]
    fn additions_that_were_cut_short_are_all_new_or_all_old() {
        for (n_moves, expected) in [(0, "old"), (1, "old"), (2, "new"), (3, "new"), (4, "new")] {
            let folder = tempfile::tempdir().unwrap();
            let staged = folder.path().join(".cognate.aaaaaa.partial");
            fs::create_dir_all(staged.join(ASIDE)).unwrap();
            for name in ["a", "b"] {
                fs::write(folder.path().join(name), "old").unwrap();
                fs::write(staged.join(name), "new").unwrap();
            }
            let aside = staged.join(ASIDE);
            let moves = [
                (folder.path(), aside.as_path(), "a"),
                (folder.path(), &aside, "b"),
                (&staged, folder.path(), "b"),
                (&staged, folder.path(), "a"),
            ];
            for (from, to, name) in &moves[..n_moves] {
                fs::rename(from.join(name), to.join(name)).unwrap();
            }
            remove_leftovers(folder.path(), Some("cognate".as_ref()));
            let found =
                ["a", "b"].map(|name| fs::read_to_string(folder.path().join(name)).unwrap());
            assert_eq!(
                (names(folder.path()), found),
                (vec!["a".into(), "b".into()], [expected; 2].map(String::from)),
                "{n_moves} moves"
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_has_one_writer_and_writes_over_what_was_left() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(folder.path().join(".text.cognate-partial"), "left by another, and longer")
            .unwrap();
        let mut file = PartialFile::create(&path).unwrap().unwrap();
        assert!(PartialFile::create(&path).unwrap().is_none(), "two write one file");
        file.write_all(b"whole").unwrap();
        assert!(!path.exists());
        file.commit().unwrap();
        assert_eq!(
            (names(folder.path()), fs::read(&path).unwrap()),
            (vec!["text".into()], b"whole".to_vec())
        );
        drop(PartialFile::create(&path).unwrap().unwrap());
        assert_eq!(names(folder.path()), ["text"]);
        // A file that is replaced keeps its permissions.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        PartialFile::create(&path).unwrap().unwrap().commit().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
