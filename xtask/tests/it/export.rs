//! Tests of `export`.

use std::fs;
use xtask::export::*;
use xtask::workspace::Workspace;

/// What is changed in the page alone would be lost when it is written again.
#[test]
fn the_committed_page_has_the_contracts_of_the_command() {
    let workspace = Workspace::find().unwrap();
    let read = |path: &str| fs::read_to_string(workspace.root().join(path)).unwrap();
    let (page, contracts) = (read("onnx/README.md"), read("xtask/src/export/contracts.md"));
    let first = contracts.lines().next().unwrap();
    let found = page.split_once(&format!("\n{first}\n")).unwrap().1;
    let found = found.split_once("\n## Verification\n").unwrap().0;
    assert_eq!(format!("{first}\n{found}"), contracts);
}

#[test]
fn only_what_may_not_differ_is_compared() {
    let (fresh, committed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let write = |folder: &tempfile::TempDir, name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(&fresh, "README.md", "sizes\n## Verification\n1e-7");
    write(&committed, "README.md", "sizes\n## Verification\n2e-7");
    write(&fresh, "tiny/encoder.onnx", "new");
    write(&committed, "tiny/encoder.onnx", "old");
    write(&fresh, "tiny/decoder.onnx", "new");
    write(&committed, "gone/encoder.onnx", "old");
    let others = ["INTEROP.md", "BENCHMARKS.md", "benchmarks-amd-epyc-2-cores.svg"];
    others.iter().for_each(|name| write(&committed, name, "of another command"));
    let expected = [
        "gone/encoder.onnx: unexpected",
        "tiny/decoder.onnx: missing",
        "tiny/encoder.onnx: differs",
    ];
    assert_eq!(differences(fresh.path(), committed.path()).unwrap(), expected);
    replace(fresh.path(), committed.path()).unwrap();
    assert_eq!(differences(fresh.path(), committed.path()).unwrap(), [""; 0]);
    assert!(others.iter().all(|name| committed.path().join(name).exists()));
}
