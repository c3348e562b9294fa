//! Finds pending snapshots and snapshots that no test reads.
//!
//! insta appends the path of every snapshot that it reads to the file
//! `INSTA_SNAPSHOT_REFERENCES_FILE`. Snapshots that are missing there after all tests have run
//! are unreferenced.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::workspace::{Workspace, files};

/// Fails with the pending and unreferenced snapshots. `references` is the file written by the
/// tests, or `None` if not all tests passed: then the used snapshots are unknown.
pub fn check(workspace: &Workspace, references: Option<&Path>) -> Result<()> {
    let present = files(workspace.root())?;
    // The file is missing if no test read a snapshot.
    let referenced =
        references.map(|path| paths_in(&fs_err::read_to_string(path).unwrap_or_default()));
    let idle = idle(&present, referenced.as_ref());
    let lines: Vec<_> =
        idle.iter().map(|(path, why)| format!("{}: {why}", workspace.readable(path))).collect();
    anyhow::ensure!(lines.is_empty(), "{}", lines.join("\n"));
    Ok(())
}

/// The snapshots in `present` that are pending or unreferenced, with what to do about each.
pub fn idle<'a>(
    present: &'a [PathBuf],
    referenced: Option<&BTreeSet<PathBuf>>,
) -> Vec<(&'a Path, &'static str)> {
    let why = |path: &'a PathBuf| {
        let name = path.file_name()?.to_str()?;
        if name.ends_with(".snap.new") || name.ends_with(".pending-snap") {
            return Some((path.as_path(), "is pending; review it, then accept or delete it"));
        }
        let unreferenced =
            name.ends_with(".snap") && referenced.is_some_and(|used| !used.contains(path));
        unreferenced.then_some((path.as_path(), "no test reads it; delete it"))
    };
    present.iter().filter_map(why).collect()
}

/// The paths written by insta, one per line, in the form of [`files`].
pub fn paths_in(references: &str) -> BTreeSet<PathBuf> {
    references
        .lines()
        .map(|line| Path::new(line).canonicalize().unwrap_or_else(|_| PathBuf::from(line)))
        .collect()
}
