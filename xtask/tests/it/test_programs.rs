//! Test programs run together.

#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::test_programs::{TestProgram, run};
use xtask::workspace::Workspace;

fn program(package: &str, executable: &str, folder: &Path) -> TestProgram {
    TestProgram {
        package: package.into(),
        target: "it".into(),
        executable: executable.into(),
        folder: folder.into(),
    }
}

/// All run, in their folders and with the variables of cargo; those that fail are named.
#[test]
fn failures_are_named_and_others_run() {
    let (workspace, folder) = (Workspace::find().unwrap(), tempfile::tempdir().unwrap());
    let script = folder.path().join("script");
    std::fs::write(
        &script,
        "#!/bin/sh\necho \"$GIVEN in $CARGO_MANIFEST_DIR of $CARGO_PKG_NAME\" > \"$PWD/ran\"\n",
    )
    .unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let places: Vec<PathBuf> = ["a", "b", "c"].map(|name| folder.path().join(name)).into();
    places.iter().for_each(|place| std::fs::create_dir(place).unwrap());
    let script = script.to_str().unwrap();
    let programs = vec![
        program("first", "false", &places[0]),
        program("second", script, &places[0]),
        program("third", script, &places[1]),
        program("fourth", "/not/there", &places[0]),
        program("fifth", script, &places[2]),
    ];
    let mut like = Command::new("cargo");
    like.env("GIVEN", "a value");
    let error = run(&workspace, programs, &like).unwrap_err().to_string();
    let names = error.strip_prefix("tests failed in: ").unwrap();
    let mut names: Vec<_> = names.split(", ").collect();
    names.sort_unstable();
    assert_eq!(names, ["first it", "fourth it"]);
    for (place, package) in places.iter().zip(["second", "third", "fifth"]) {
        let found = std::fs::read_to_string(place.join("ran")).unwrap();
        assert_eq!(found, format!("a value in {} of {package}\n", place.display()));
    }
}
