//! Builds the wheel of `crates/python`, installs it into an environment of its own, and runs the
//! tests there, which also call the server by other projects' clients.

use fs_err as fs;
use std::env::consts::EXE_SUFFIX;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::python::{self, Python};
use crate::workspace::{Workspace, call, capture};

/// Builds wheels.
pub const MATURIN: &str = "maturin==1.16.0";
/// maturin, what the tests import, and clients of the server.
const REQUIREMENTS: &[&str] = &[
    MATURIN,
    "pytest==9.2.0",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "onnxruntime==1.31.1",
    "sacrebleu==2.6.0",
    "tritonclient[grpc,http]==2.73.0",
    "libretranslatepy==2.1.4",
    "openai==3.54.0",
    "ray[data,serve]==2.60.0",
];

/// The promised maximum.
const WHEEL_BYTES: u64 = 25_000_000;

/// Runs the checks. Returns why they were skipped, if there is no Python.
pub fn check(workspace: &Workspace) -> Result<Option<String>> {
    if let Err(error) = Python::find() {
        println!("skipped: {error}");
        return Ok(Some(error.to_string()));
    }
    let program = python::environment(&workspace.target("python-wheel"), REQUIREMENTS)?;
    install(workspace, &program)?;
    translate_alone(workspace, &the_wheel(&workspace.target("wheels"))?)?;
    let command = workspace.build_served()?;
    let mut tests = Command::new(&program);
    tests.current_dir(workspace.root()).args([
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "crates/python/tests",
    ]);
    call(tests.env("COGNATE_COMMAND", command))?;
    Ok(None)
}

/// Builds the wheel with the maturin of an environment, and installs it there.
pub fn install(workspace: &Workspace, program: &Path) -> Result<()> {
    let packages = capture(
        Command::new(program)
            .args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]),
    )?;
    let packages = Path::new(packages.trim());
    let wheels = workspace.target("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let mut maturin = Command::new(packages.join(format!("bin/maturin{EXE_SUFFIX}")));
    maturin.current_dir(workspace.root()).args([
        "build",
        "--release",
        "--manifest-path",
        "crates/python/Cargo.toml",
        "--interpreter",
    ]);
    call(maturin.arg(program).arg("--out").arg(&wheels))?;
    call(
        Python::find()?
            .pip(["install", "--quiet", "--no-deps", "--upgrade", "--target"])
            .arg(packages)
            .arg(the_wheel(&wheels)?),
    )
}

/// Translates by the wheel in a new environment without any other package.
fn translate_alone(workspace: &Workspace, wheel: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = python::environment(&folder.path().join("alone"), &[&wheel.to_string_lossy()])?;
    let model = workspace.root().join("testdata/multi30k-en-de");
    let script =
        "import sys, cognate; print(cognate.Translator(sys.argv[1]).translate('Two dogs.'))";
    let mut alone = Command::new(program);
    alone.current_dir(folder.path()).env_remove("ORT_DYLIB_PATH").args(["-c", script]).arg(model);
    let found = capture(&mut alone)?;
    ensure!(
        found.trim() == "Zwei Hunde.",
        "the wheel alone: expected a translation, found {found}"
    );
    Ok(())
}

/// The only wheel in a folder; it must be small enough.
fn the_wheel(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder)?;
    let found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "whl"))
        .collect();
    let [wheel] = &found[..] else {
        anyhow::bail!("{}: expected one wheel, found {}", folder.display(), found.len())
    };
    let bytes = wheel.metadata().with_context(|| wheel.display().to_string())?.len();
    println!("{}: {bytes} bytes", wheel.display());
    ensure!(
        bytes < WHEEL_BYTES,
        "{}: {bytes} bytes, expected less than {WHEEL_BYTES}",
        wheel.display()
    );
    Ok(wheel.clone())
}
