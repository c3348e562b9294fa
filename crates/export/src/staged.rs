//! Files and folders under temporary names, until they are whole.
//!
//! A process that is killed leaves what it staged. The next one that writes there removes it, and must not touch what another still
//! writes. So everything staged is locked (`flock`) by the process that writes it: the system lets go of a lock when its process
//! ends, in whatever way. A process id would not do: another process may have it by then.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

/// What a folder is called that is not whole yet: `.NAME.` and six letters or digits before it.
pub(crate) const PARTIAL: &str = ".partial";
/// The same of a folder that holds what is being replaced, as `old`, where the system cannot exchange two folders.
pub(crate) const REPLACED: &str = ".replaced";
/// What [`Additions`](crate::Additions) calls the folder in which it keeps the files that it replaces.
pub(crate) const ASIDE: &str = "replaced";
const RANDOM: usize = 6;

/// What this process has staged and not yet given its name.
static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Removes all that this process has staged: for a program that a signal ends at once.
///
/// Nothing is staged or takes its name afterwards; a thread that tries waits for the end of the process.
pub fn abandon() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    for path in held.iter() {
        let is_folder = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
        // What stays is removed by the next process that writes there.
        let _ = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
    std::mem::forget(held);
}

/// Removes what dead processes left in `folder`; with `name`, only what was to become `folder/name`.
///
/// What a living process writes stays, and so does everything where the system has no locks.
pub fn remove_leftovers(folder: &Path, name: Option<&OsStr>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let left = destination(&entry.file_name()).filter(|left| name.is_none_or(|name| name == left.as_os_str()));
        let (true, Some(left)) = (is_folder, left) else { continue };
        if let Some(Ok(_lock)) = lock(&path) {
            restore(&path, &folder.join(left));
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// `out` for `.out.a1B2c3.partial` and `.out.a1B2c3.replaced`.
fn destination(name: &OsStr) -> Option<OsString> {
    let name = name.to_str()?.strip_prefix('.')?;
    let name = name.strip_suffix(PARTIAL).or_else(|| name.strip_suffix(REPLACED))?;
    let (name, random) = name.rsplit_once('.')?;
    (random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())).then(|| name.into())
}

/// Brings to an end what a process was killed in the midst of: a moment at which a name stood for nothing.
fn restore(left: &Path, destination: &Path) {
    let is_missing = |path: &Path| fs::symlink_metadata(path).is_err();
    if is_missing(destination) {
        // There is one where the system could not exchange two folders.
        let _ = fs::rename(left.join("old"), destination);
    }
    let aside = left.join(ASIDE);
    if aside.is_dir() {
        let names = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect::<Vec<_>>();
        let folder = left.parent().unwrap_or(Path::new("."));
        let new: Vec<_> = names(left).into_iter().filter(|name| name != ASIDE).collect();
        // Old files were still being moved aside if one is there for a new one: they come back. Else the new ones take their names.
        let goes_back = new.iter().any(|name| !is_missing(&folder.join(name)));
        let (from, names) = if goes_back { (aside.as_path(), names(&aside)) } else { (left, new) };
        for name in names.iter().filter(|name| is_missing(&folder.join(name))) {
            let _ = fs::rename(from.join(name), folder.join(name));
        }
    }
}

/// A folder under a temporary name, which is removed when it is dropped.
#[derive(Debug)]
pub struct Staged {
    folder: Option<TempDir>,
    path: PathBuf,
    /// Of the folder itself, which keeps the lock under its later name; nothing where folders cannot be locked.
    _lock: Option<File>,
}

impl Staged {
    /// A folder that shall become `parent/name`. What dead processes left of it is removed.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn create(parent: &Path, name: &str) -> io::Result<Self> {
        remove_leftovers(parent, Some(name.as_ref()));
        Self::with_suffix(parent, name, PARTIAL)
    }

    /// A folder for what this process needs as long as it runs, where the system keeps such.
    ///
    /// # Errors
    /// As [`Staged::create`].
    pub fn temporary() -> io::Result<Self> {
        Self::create(&std::env::temp_dir(), "cognate-temporary")
    }

    pub(crate) fn with_suffix(parent: &Path, name: &str, suffix: &str) -> io::Result<Self> {
        loop {
            let folder = tempfile::Builder::new().prefix(&format!(".{name}.")).suffix(suffix).rand_bytes(RANDOM).tempdir_in(parent)?;
            let path = folder.path().to_owned();
            hold(&path);
            // Before it was locked, another process may have taken the folder for one that was left.
            match lock(&path) {
                Some(Err(Taken)) => release(&path),
                Some(Ok(lock)) => return Ok(Self { folder: Some(folder), path, _lock: Some(lock) }),
                None => return Ok(Self { folder: Some(folder), path, _lock: None }),
            }
        }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Does what gives it its name, or leaves something else under the temporary one; a program that is ended meanwhile waits.
    pub(crate) fn rename(&self, rename: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let _held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        rename(&self.path)
    }

    /// Leaves what is under the temporary name there.
    pub(crate) fn keep(mut self) {
        release(&self.path);
        if let Some(folder) = self.folder.take() {
            let _kept = folder.keep();
        }
    }

    /// Removes what is under the temporary name, which may be nothing.
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

/// Another process holds it, or has moved or removed it.
struct Taken;

/// The lock of a folder that is at `path`; `None` where the system has no locks for folders.
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

/// A file under a temporary name beside its later one, which is removed when it is dropped.
///
/// Each file has one such name, `.NAME.cognate-partial`: what a killed process left is written over by the next.
#[derive(Debug)]
pub struct PartialFile {
    file: File,
    partial: PathBuf,
    path: PathBuf,
}

impl PartialFile {
    /// The empty file that shall become the one at `path`; `None` if another process writes it.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn create(path: &Path) -> io::Result<Option<Self>> {
        Self::open(path, |file| match file.try_lock() {
            Err(TryLockError::WouldBlock) => false,
            // Some file systems have no locks: then processes that write one file are not kept apart.
            Ok(()) | Err(TryLockError::Error(_)) => true,
        })
    }

    /// As [`PartialFile::create`]; waits for a process that writes the same file.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn wait_for(path: &Path) -> io::Result<Self> {
        let file = Self::open(path, |file| {
            // As above.
            let _ = file.lock();
            true
        })?;
        file.ok_or_else(|| io::Error::other("another process writes it"))
    }

    fn open(path: &Path, lock: impl Fn(&File) -> bool) -> io::Result<Option<Self>> {
        let mut name = OsString::from(".");
        name.push(path.file_name().ok_or_else(|| io::Error::other("it has no name"))?);
        name.push(".cognate-partial");
        let partial = path.with_file_name(name);
        loop {
            // What others may have put there is not written through.
            if fs::symlink_metadata(&partial).is_ok_and(|metadata| !metadata.is_file()) {
                return Err(io::Error::other(format!("{} is no regular file; remove it", partial.display())));
            }
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&partial)?;
            if !lock(&file) {
                return Ok(None);
            }
            // The process that held it may have given it its name, or removed it, before the lock was ours.
            if is_at(&file, &partial) {
                hold(&partial);
                file.set_len(0)?;
                return Ok(Some(Self { file, partial, path: path.to_owned() }));
            }
        }
    }

    /// Brings the file to the disk and gives it its name, in place of what was there.
    ///
    /// # Errors
    /// If the system refuses; what was there is there still.
    pub fn commit(self) -> io::Result<()> {
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
    /// The name goes before the lock: another process may take it as soon as the lock is gone.
    fn drop(&mut self) {
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if held.remove(&self.partial) {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Whether `file` is what `path` names.
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

// Miri knows no locks of files, and no exchange of names.
#[cfg(all(test, not(miri)))]
#[allow(clippy::unwrap_used, reason = "as in the folders of tests")]
pub(crate) mod tests {
    use super::*;

    /// What is in a folder, hidden files too, in order.
    pub(crate) fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
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
        let name = |staged: &Staged| staged.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected = vec![".other.cccccc.partial".into(), ".out.dddddd.partial".into(), name(&living), name(&second)];
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
        assert_eq!((names(folder.path()), names(&folder.path().join("out"))), (vec!["out".into()], vec!["whole".into()]));
    }

    /// The files of an addition, `a` and `b`, after so many of its moves: old ones aside, then new ones in their places.
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
            let found = ["a", "b"].map(|name| fs::read_to_string(folder.path().join(name)).unwrap());
            assert_eq!((names(folder.path()), found), (vec!["a".into(), "b".into()], [expected; 2].map(String::from)), "{n_moves} moves");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_has_one_writer_and_writes_over_what_was_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(folder.path().join(".text.cognate-partial"), "left by another, and longer").unwrap();
        let mut file = PartialFile::create(&path).unwrap().unwrap();
        assert!(PartialFile::create(&path).unwrap().is_none(), "two write one file");
        file.write_all(b"whole").unwrap();
        assert!(!path.exists());
        file.commit().unwrap();
        assert_eq!((names(folder.path()), fs::read(&path).unwrap()), (vec!["text".into()], b"whole".to_vec()));
        drop(PartialFile::create(&path).unwrap().unwrap());
        assert_eq!(names(folder.path()), ["text"]);
    }
}
