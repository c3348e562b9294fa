//! Compares exported files in ONNX's checker, its reference evaluator and ONNX Runtime with
//! numpy's results.
//!
//! Runs if `COGNATE_PYTHON` is a Python with `onnx`; uses ONNX Runtime too if it is installed.

use crate::graphs;
use cognate_export::{Existing, Export, Metadata, write_folder};
use std::process::Command;

#[test]
fn other_programs_read_the_files_and_agree_with_numpy() {
    let Some(python) = cognate_testing::python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("out");
    let programs = graphs::all();
    let files: Vec<_> = programs.iter().map(|(name, _)| format!("{name}.onnx")).collect();
    let graphs: Vec<_> =
        files.iter().zip(&programs).map(|(file, (_, program))| (file.as_str(), program)).collect();
    let metadata = Metadata::default();
    let export = Export::new(&graphs, "weights.onnx_data", &metadata);
    write_folder(&destination, &export, &[], Existing::Refuse).unwrap();

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/oracle.py");
    let output = Command::new(&python).arg(script).arg(&destination).output().unwrap();
    let text = [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)]
        .join("\n");
    assert!(output.status.success(), "{text}");
    eprintln!("{text}");
}
