//! Files added to an existing folder, which may contain other files.

use crate::destination::Destination;
use crate::error::{Context, Problem};
use crate::folder::{read_back, sync_folder, write_file};
use crate::staged::{ASIDE, Staged};
use crate::{Error, Existing, Hashed, Report};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Files being written to a folder. They become visible with [`Additions::commit`] and are removed
/// if dropped before.
///
/// Write the file that describes the others last: new files are renamed in the opposite order, old
/// ones removed in the order of writing, so that at every moment this file exists if any of the
/// others does. If a process is killed while it commits, the next one that prepares to write to the
/// folder completes or reverts it: all new files are in place, or all old ones.
#[derive(Debug)]
pub struct Additions {
    destination: PathBuf,
    existing: Existing,
    /// Inside the folder, on the same file system, so that renaming is atomic.
    staged: Staged,
    report: Report,
    /// Files of an earlier export that are not written again.
    former: Vec<String>,
}

/// Source and target of a rename, to be undone if a later step fails.
type Moved = (PathBuf, PathBuf);

impl Destination for Additions {
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

impl Additions {
    /// Prepares to write to `destination`.
    ///
    /// # Errors
    /// If the destination is not a folder, or on errors of the system.
    pub fn create(destination: &Path, existing: Existing) -> Result<Self, Error> {
        let staged =
            Staged::create(destination, "cognate").context("write into the folder", destination)?;
        Ok(Self {
            destination: destination.into(),
            existing,
            staged,
            report: Report::default(),
            former: Vec::new(),
        })
    }

    /// The folder of the files until they are committed, for reading only.
    pub fn path(&self) -> &Path {
        self.staged.path()
    }

    /// The destination.
    pub fn destination(&self) -> &Path {
        &self.destination
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

    /// Writes a file.
    ///
    /// # Errors
    /// If `name` is used or contains a path, if it exists in the folder and may not be replaced, or
    /// on errors of the system.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.write_with(name, |file, path| file.write_all(bytes).context("write", path))?;
        read_back(&self.staged.path().join(name), &self.destination.join(name), bytes)
    }

    /// Writes a file with `fill`, which receives the final path.
    pub(crate) fn write_with(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut File, &Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.is_taken(name)?;
        write_file(self.staged.path(), &self.destination, name, &mut self.report, fill)
    }

    /// Renames the files to their final names.
    ///
    /// # Errors
    /// If a file may not be replaced, or on errors of the system; the folder is then unchanged.
    pub fn commit(self) -> Result<Report, Error> {
        let mut moved = Vec::new();
        // A process ended by a signal in this block ends when all files are renamed, or none.
        let (mut exchanged, mut stuck) = (Ok(()), None);
        let done = self.staged.rename(|_| {
            exchanged = self.exchange(&mut moved);
            if exchanged.is_err() {
                stuck = moved
                    .iter()
                    .rev()
                    .find_map(|(from, to)| Some((fs::rename(to, from).err()?, to.clone())));
            }
            Ok(())
        });
        done.and_then(|()| sync_folder(&self.destination)).context("sync", &self.destination)?;
        if let Some((error, path)) = stuck {
            self.staged.keep();
            return Err(error).context("move back", &path);
        }
        exchanged?;
        let path = self.staged.path().to_owned();
        self.staged.remove().context("remove the replaced files", &path)?;
        Ok(self.report)
    }

    fn exchange(&self, moved: &mut Vec<Moved>) -> Result<(), Error> {
        let aside = self.staged.path().join(ASIDE);
        fs::create_dir(&aside).context("write into the folder", &self.destination)?;
        let mut rename = |from: PathBuf, to: PathBuf| {
            fs::rename(&from, &to).context("move", &from)?;
            moved.push((from, to));
            Ok::<_, Error>(())
        };
        let written: Vec<_> = self.report.files.iter().map(|(name, _)| name).collect();
        let former = self.former.iter().filter(|name| !written.contains(name));
        for name in former.chain(written.iter().copied()) {
            if self.is_taken(name)? {
                rename(self.destination.join(name), aside.join(name))?;
            }
        }
        written
            .iter()
            .rev()
            .try_for_each(|name| rename(self.staged.path().join(name), self.destination.join(name)))
    }

    /// Whether the folder contains this name, for a file that may be replaced.
    fn is_taken(&self, name: &str) -> Result<bool, Error> {
        let path = self.destination.join(name);
        match (fs::symlink_metadata(&path), self.existing) {
            (Err(error), _) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            (Err(error), _) => Err(error).context("read", &path),
            (Ok(_), Existing::Refuse) => Err(Problem::Exists { path }.into()),
            (Ok(metadata), Existing::Replace) if metadata.is_file() => Ok(true),
            (Ok(_), Existing::Replace) => Err(Problem::NoFile { path }.into()),
        }
    }
}
