//! Files that appear in a folder that is there already, beside files that are not ours.

use crate::destination::Destination;
use crate::error::{Context, Problem};
use crate::folder::{read_back, sync_folder, write_file};
use crate::staged::{ASIDE, Staged};
use crate::{Error, Existing, Hashed, Report};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Files being written for a folder, which nobody sees until [`Additions::commit`]; dropped without that, they are removed.
///
/// Write what says what the others are last: files appear in the opposite order, and old ones go in the order of writing.
/// So at every moment that file is there if any of the others is. What a process was killed in the midst of is brought to an end
/// when the next one prepares to write into the folder: all of its files take their names, or all old ones are back.
#[derive(Debug)]
pub struct Additions {
    destination: PathBuf,
    existing: Existing,
    /// On the same file system, so that renaming is one step: inside the folder.
    staged: Staged,
    report: Report,
    /// Files of an earlier export that are not written now.
    former: Vec<String>,
}

/// A name that was moved, to be moved back should a later step fail.
type Moved = (PathBuf, PathBuf);

impl Destination for Additions {
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

impl Additions {
    /// Prepares to write into `destination`.
    ///
    /// # Errors
    /// If the destination is no folder, or the system refuses.
    pub fn create(destination: &Path, existing: Existing) -> Result<Self, Error> {
        let staged = Staged::create(destination, "cognate").context("write into the folder", destination)?;
        Ok(Self { destination: destination.into(), existing, staged, report: Report::default(), former: Vec::new() })
    }

    /// Where the files lie until they are committed: to look at, not to write.
    pub fn path(&self) -> &Path {
        self.staged.path()
    }

    /// The folder for which they are.
    pub fn destination(&self) -> &Path {
        &self.destination
    }

    /// The graphs and weights written so far, by name.
    pub fn hashes(&self) -> &BTreeMap<String, Hashed> {
        &self.report.hashes
    }

    /// Names that an earlier export may have written and this one may not: [`Existing::Replace`] lets them go too.
    pub fn replaces(&mut self, names: &[&str]) {
        self.former.extend(names.iter().map(|&name| name.to_owned()));
    }

    /// Writes a file.
    ///
    /// # Errors
    /// If `name` is taken or has a path, if it is in the folder and may not be replaced, or if the system refuses.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.write_with(name, |file, path| file.write_all(bytes).context("write", path))?;
        read_back(&self.staged.path().join(name), &self.destination.join(name), bytes)
    }

    /// Writes a file as `fill` does, which is told the path under which the file will be known.
    pub(crate) fn write_with(&mut self, name: &str, fill: impl FnOnce(&mut File, &Path) -> Result<(), Error>) -> Result<(), Error> {
        self.is_taken(name)?;
        write_file(self.staged.path(), &self.destination, name, &mut self.report, fill)
    }

    /// Gives the files their names.
    ///
    /// # Errors
    /// If a file may not be replaced, or if the system refuses; the folder is then as it was.
    pub fn commit(self) -> Result<Report, Error> {
        let mut moved = Vec::new();
        // A program that is ended meanwhile ends when all files have their names, or none.
        let (mut exchanged, mut stuck) = (Ok(()), None);
        let done = self.staged.rename(|_| {
            exchanged = self.exchange(&mut moved);
            if exchanged.is_err() {
                stuck = moved.iter().rev().find_map(|(from, to)| Some((fs::rename(to, from).err()?, to.clone())));
            }
            Ok(())
        });
        done.and_then(|()| sync_folder(&self.destination)).context("bring to the disk", &self.destination)?;
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
        written.iter().rev().try_for_each(|name| rename(self.staged.path().join(name), self.destination.join(name)))
    }

    /// Whether the folder has this name already, for a file that may be replaced.
    fn is_taken(&self, name: &str) -> Result<bool, Error> {
        let path = self.destination.join(name);
        match (fs::symlink_metadata(&path), self.existing) {
            (Err(error), _) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            (Err(error), _) => Err(error).context("look at", &path),
            (Ok(_), Existing::Refuse) => Err(Problem::Exists { path }.into()),
            (Ok(metadata), Existing::Replace) if metadata.is_file() => Ok(true),
            (Ok(_), Existing::Replace) => Err(Problem::NoFile { path }.into()),
        }
    }
}
