//! Finds pending snapshots and snapshots that no test reads.
//!
//! insta appends the path of every snapshot that it reads to the file
//! `INSTA_SNAPSHOT_REFERENCES_FILE`. Snapshots that are missing there after all tests have run
//! are unreferenced.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use xtask::workspace::{Workspace, files};

/// Fails with the pending and unreferenced snapshots. `references` is the file written by the
/// tests, or `None` if not all tests passed: then the used snapshots are unknown.
pub(crate) fn check(workspace: &Workspace, references: Option<&Path>) -> Result<()> {
    let present = files(workspace.root())?;
    // The file is missing if no test read a snapshot.
    let referenced = references.map(|path| paths_in(&std::fs::read_to_string(path).unwrap_or_default()));
    let idle = idle(&present, referenced.as_ref());
    let lines: Vec<_> = idle.iter().map(|(path, why)| format!("{}: {why}", workspace.readable(path))).collect();
    anyhow::ensure!(lines.is_empty(), "{}", lines.join("\n"));
    Ok(())
}

/// The snapshots in `present` that are pending or unreferenced, with what to do about each.
fn idle<'a>(present: &'a [PathBuf], referenced: Option<&BTreeSet<PathBuf>>) -> Vec<(&'a Path, &'static str)> {
    let why = |path: &'a PathBuf| {
        let name = path.file_name()?.to_str()?;
        if name.ends_with(".snap.new") || name.ends_with(".pending-snap") {
            return Some((path.as_path(), "is pending; review it, then accept or delete it"));
        }
        let unreferenced = name.ends_with(".snap") && referenced.is_some_and(|used| !used.contains(path));
        unreferenced.then_some((path.as_path(), "no test reads it; delete it"))
    };
    present.iter().filter_map(why).collect()
}

/// The paths written by insta, one per line, in the form of [`files`].
fn paths_in(references: &str) -> BTreeSet<PathBuf> {
    references.lines().map(|line| Path::new(line).canonicalize().unwrap_or_else(|_| PathBuf::from(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_and_unreferenced_snapshots_are_found() {
        let present: Vec<PathBuf> =
            ["/a/used.snap", "/a/idle.snap", "/a/new.snap.new", "/a/.lib.rs.pending-snap", "/a/lib.rs"].map(PathBuf::from).into();
        let referenced = paths_in("/a/used.snap\n/a/used.snap\n");
        let names = |found: Vec<(&Path, &str)>| -> Vec<String> { found.iter().map(|(path, _)| path.display().to_string()).collect() };
        assert_eq!(names(idle(&present, Some(&referenced))), ["/a/idle.snap", "/a/new.snap.new", "/a/.lib.rs.pending-snap"]);
        assert_eq!(names(idle(&present, None)), ["/a/new.snap.new", "/a/.lib.rs.pending-snap"]);
        assert_eq!(names(idle(&present[..1], Some(&BTreeSet::new()))), ["/a/used.snap"]);
    }
}
