//! Which library of ONNX Runtime is used, and which is rejected.
//!
//! A process opens a library permanently. Wrong ones are rejected before that, so they are tested
//! in the process of the other tests; tests of the environment run in a separate process.

use crate::example::{Exported, ort};
use cognate_runtime::{Device, Engine, ErrorKind, Options, Ort};
use insta::assert_snapshot;
use std::path::Path;
use std::process::Command;

/// The error of opening `path`, without the folder's name and the system's message.
fn refused(path: &Path) -> String {
    let error = Ort::open(path).expect_err("a wrong library");
    assert_eq!(error.kind(), ErrorKind::Library);
    let folder =
        path.parent().map_or(String::new(), |folder| folder.join("").display().to_string());
    let text = error.to_string().replace(&folder, "");
    text.split_once(" loaded: ").map_or(text.clone(), |(ours, _)| format!("{ours} loaded: ..."))
}

#[test]
fn wrong_libraries_are_refused_and_harm_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = folder.path().join("text.so");
    std::fs::write(&text, "no library").expect("a file");
    assert_snapshot!(refused(&text), @"text.so: expected the library of ONNX Runtime 1.24 or newer, found a file that cannot be loaded: ...");
    assert_snapshot!(refused(&folder.path().join("missing.so")), @"missing.so: expected the library of ONNX Runtime 1.24 or newer, found nothing: No such file or directory (os error 2)");
    assert_snapshot!(refused(folder.path()).replace(&folder.path().file_name().expect("a name").display().to_string(), "FOLDER"), @"FOLDER: expected the library of ONNX Runtime 1.24 or newer, found a folder");
    if cfg!(target_os = "linux") {
        assert_snapshot!(refused(Path::new("libm.so.6")), @"libm.so.6: expected the library of ONNX Runtime 1.24 or newer, found a library without the function OrtGetApiBase");
    }
    let Some(ort) = ort() else { return };
    let exported = Exported::new();
    Engine::Ort
        .open(Device::Cpu)
        .expect("found")
        .load(&exported.source(), &Options::default())
        .expect("the right library still works");
    assert_eq!(Ort::open(ort.library()).expect("the same library").version(), ort.version());
}

#[test]
fn a_process_runs_one_library() {
    let Some(ort) = ort().filter(|ort| ort.library().is_file()) else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let other = folder.path().join("libonnxruntime.so");
    std::fs::copy(ort.library(), &other).expect("a copy");
    let text = refused(&other).replace(&ort.library().display().to_string(), "LIBRARY");
    assert_snapshot!(text, @"libonnxruntime.so: a process can load only one ONNX Runtime; LIBRARY is already loaded");
}

/// Prints the results of `Ort::find` and `--engine auto`: run by another test in a separate
/// process, and harmless otherwise.
#[test]
#[expect(clippy::print_stdout, reason = "it answers the test that started its process")]
fn in_a_process_of_its_own() {
    match Ort::find() {
        Ok(ort) => println!("ort.find: {}", ort.library().display()),
        Err(error) => println!("ort.find: {:?}: {error}", error.kind()),
    }
    match Engine::Auto.open(Device::Cpu) {
        Ok(engine) => println!("engine.auto: {}", engine.name()),
        Err(error) => println!("engine.auto: {:?}: {error}", error.kind()),
    }
}

/// Runs the test above in `folder` with `program`, and `ORT_DYLIB_PATH` set to `variable` if given.
fn told(program: &Path, folder: &Path, variable: Option<&str>) -> String {
    let mut command = Command::new(program);
    command
        .args(["--exact", "library::in_a_process_of_its_own", "--nocapture"])
        .current_dir(folder);
    command
        .env_remove("ORT_DYLIB_PATH")
        .env_remove("CARGO_TARGET_DIR")
        .envs(variable.map(|path| ("ORT_DYLIB_PATH", path)));
    let output = command.output().expect("the test binary runs");
    let text =
        String::from_utf8_lossy(&output.stdout).replace(&folder.display().to_string(), "FOLDER");
    // The test harness writes its own text at the beginning of the first line.
    let lines = text.lines().filter_map(|line| {
        line.find("ort.find: ").or(line.find("engine.auto: ")).map(|start| &line[start..])
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_wrong_variable_is_an_error_and_never_passed_over() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = std::env::current_exe().expect("a path");
    assert_snapshot!(told(&program, folder.path(), Some("missing/libonnxruntime.so")), @r"
    ort.find: Library: ORT_DYLIB_PATH: missing/libonnxruntime.so: expected the library of ONNX Runtime 1.24 or newer, found nothing: No such file or directory (os error 2)
    engine.auto: Library: ORT_DYLIB_PATH: missing/libonnxruntime.so: expected the library of ONNX Runtime 1.24 or newer, found nothing: No such file or directory (os error 2)
    ");
}

#[test]
fn without_a_library_auto_takes_tract_and_ort_tells_where_it_looked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Not near `target/onnxruntime`, which is also found from the program's folder.
    let program = folder.path().join("program");
    std::fs::copy(std::env::current_exe().expect("a path"), &program).expect("a copy");
    let text = told(&program, folder.path(), None);
    if text.starts_with("ort.find: Unavailable") {
        assert_snapshot!(text, @r"
        ort.find: Unavailable: ort: no library of ONNX Runtime 1.24 or newer: none named by ORT_DYLIB_PATH, none in a folder `target/onnxruntime` in or above the program's or the current folder, none in the system; run `cargo xtask onnxruntime`, or set ORT_DYLIB_PATH
        engine.auto: tract
        ");
    } else {
        cognate_testing::skip(&format!("the system has a library: {text}"));
    }
}

#[test]
fn the_variable_names_the_library() {
    let Some(ort) = ort().filter(|ort| ort.library().is_file()) else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = std::env::current_exe().expect("a path");
    let library = ort.library().display().to_string();
    assert_eq!(
        told(&program, folder.path(), Some(&library)),
        format!("ort.find: {library}\nengine.auto: ort")
    );
}
