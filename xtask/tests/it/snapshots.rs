//! Tests of `snapshots`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use xtask::snapshots::*;
#[test]
fn pending_and_unreferenced_snapshots_are_found() {
    let present: Vec<PathBuf> =
        ["/a/used.snap", "/a/idle.snap", "/a/new.snap.new", "/a/.lib.rs.pending-snap", "/a/lib.rs"]
            .map(PathBuf::from)
            .into();
    let referenced = paths_in("/a/used.snap\n/a/used.snap\n");
    let names = |found: Vec<(&Path, &str)>| -> Vec<String> {
        found.iter().map(|(path, _)| path.display().to_string()).collect()
    };
    assert_eq!(
        names(idle(&present, Some(&referenced))),
        ["/a/idle.snap", "/a/new.snap.new", "/a/.lib.rs.pending-snap"]
    );
    assert_eq!(names(idle(&present, None)), ["/a/new.snap.new", "/a/.lib.rs.pending-snap"]);
    assert_eq!(names(idle(&present[..1], Some(&BTreeSet::new()))), ["/a/used.snap"]);
}
