//! The files that a graph refers to: regular, inside its folder, not behind links, and unchanged
//! after the engine has read them.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// Identifies a version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    /// Device and inode, if the system has them.
    place: (u64, u64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self { bytes: metadata.len(), modified: metadata.modified().ok(), place: place(metadata) }
    }
}

#[cfg(unix)]
fn place(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn place(_metadata: &Metadata) -> (u64, u64) {
    (0, 0)
}

/// The number of hard links to a file.
#[cfg(unix)]
pub(crate) fn names(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(metadata)
}

#[cfg(not(unix))]
pub(crate) fn names(_metadata: &Metadata) -> u64 {
    1
}

/// Files that were opened, with their state at that time.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// The state of each path.
    stamps: BTreeMap<PathBuf, Stamp>,
    /// Opened weights files, by `location`.
    opened: BTreeMap<String, (File, u64)>,
}

impl Files {
    /// Records the state of the graph's file.
    pub(super) fn remember(&mut self, path: &Path, metadata: &Metadata) {
        self.stamps.insert(path.to_owned(), Stamp::of(metadata));
    }

    /// Opens the weights file at a tensor's `location` in `folder`; returns it with its size.
    pub(super) fn open(&mut self, folder: &Path, location: &str) -> Result<&(File, u64), String> {
        if !self.opened.contains_key(location) {
            let (path, file, metadata) = open(folder, location)?;
            let bytes = metadata.len();
            self.remember(&path, &metadata);
            self.opened.insert(location.to_owned(), (file, bytes));
        }
        Ok(&self.opened[location])
    }

    /// The first file that has changed.
    pub(super) fn changed(&self) -> Option<&Path> {
        let is_same = |(path, stamp): &(&PathBuf, &Stamp)| {
            fs::metadata(path).is_ok_and(|now| Stamp::of(&now) == **stamp)
        };
        self.stamps.iter().find(|entry| !is_same(entry)).map(|(path, _)| path.as_path())
    }
}

fn open(folder: &Path, location: &str) -> Result<(PathBuf, File, Metadata), String> {
    let wrong = |reason: &str| format!("location {location:?}: {reason}");
    let relative = Path::new(location);
    let is_inside = !location.is_empty()
        && relative.components().all(|component| matches!(component, Component::Normal(_)));
    // No exporter writes a star in a file name; ONNX Runtime's marks of weights in
    // memory contain one.
    if !is_inside || location.contains(['\\', ':', '*']) || location.chars().any(char::is_control) {
        return Err(wrong("expected the name of a file in the graph's folder"));
    }
    let mut path = if folder == Path::new("") { PathBuf::from(".") } else { folder.to_owned() };
    let mut seen = None;
    for component in relative.components() {
        path.push(component);
        let metadata = fs::symlink_metadata(&path)
            .map_err(|error| wrong(&format!("cannot be read: {error}")))?;
        if metadata.is_symlink() {
            return Err(wrong(
                "is behind a link, which ONNX does not allow for weights; copy the file there",
            ));
        }
        seen = Some(metadata);
    }
    let seen = seen.filter(Metadata::is_file).ok_or_else(|| wrong("is not a regular file"))?;
    if names(&seen) > 1 {
        return Err(wrong(
            "has several hard links, which ONNX does not allow for weights; copy the file there",
        ));
    }
    let file = File::open(&path).map_err(|error| wrong(&format!("cannot be opened: {error}")))?;
    let opened = file.metadata().map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    if Stamp::of(&opened) != Stamp::of(&seen) {
        return Err(wrong("changed while it was opened"));
    }
    Ok((path, file, opened))
}
