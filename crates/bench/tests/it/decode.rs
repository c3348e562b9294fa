//! Unit tests of `decode`.

use cognate_bench::decode::*;
use xtask::workspace::Workspace;

#[test]
fn every_package_is_pinned_and_every_script_is_there() {
    let loose: Vec<_> = REQUIREMENTS.lines().filter(|line| !line.contains("==")).collect();
    assert!(loose.is_empty(), "without a version: {loose:?}");
    let scripts = Workspace::find().unwrap().root().join("crates/bench/python");
    for script in ["convert.py", "serve.py", "limits.py", "words.py", "train.py", "harness.py"] {
        assert!(scripts.join(script).is_file(), "{script}");
    }
}
