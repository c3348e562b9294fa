//! Snapshots that nobody looks at: those pending a review, and those that no test compares with any more.
//!
//! insta appends the path of every snapshot file it compares with to the file that `INSTA_SNAPSHOT_REFERENCES_FILE`
//! names. What lies in the repository and is not in that file after all tests ran is unreferenced.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use xtask::workspace::{Workspace, files};

/// Fails with the pending and unreferenced snapshots. `references` is the file that the tests' run left, or `None`
/// where not all tests passed: then it is not known which snapshots are used.
pub(crate) fn check(workspace: &Workspace, references: Option<&Path>) -> Result<()> {
    let present = files(workspace.root())?;
    // Without the file no test compared with any.
    let referenced = references.map(|path| paths_in(&std::fs::read_to_string(path).unwrap_or_default()));
    let idle = idle(&present, referenced.as_ref());
    let lines: Vec<_> = idle.iter().map(|(path, why)| format!("{}: {why}", workspace.readable(path))).collect();
    anyhow::ensure!(lines.is_empty(), "{}", lines.join("\n"));
    Ok(())
}

/// The files among `present` that are snapshots which nobody looks at, with what to do about each.
fn idle<'a>(present: &'a [PathBuf], referenced: Option<&BTreeSet<PathBuf>>) -> Vec<(&'a Path, &'static str)> {
    let why = |path: &'a PathBuf| {
        let name = path.file_name()?.to_str()?;
        if name.ends_with(".snap.new") || name.ends_with(".pending-snap") {
            return Some((path.as_path(), "is pending; review it, then accept or delete it"));
        }
        let unreferenced = name.ends_with(".snap") && referenced.is_some_and(|used| !used.contains(path));
        unreferenced.then_some((path.as_path(), "no test compares with it; delete it"))
    };
    present.iter().filter_map(why).collect()
}

/// The paths that insta wrote, a line each, in the form in which [`files`] finds them.
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
