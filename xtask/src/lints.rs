//! Lints, by the compiler that also builds the tests: dependencies are then compiled, and not
//! checked before as well.

use std::env::consts::EXE_SUFFIX;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

/// Lets `cargo` compile the workspace with clippy, as `cargo clippy` checks it; a warning is an
/// error.
pub fn deny_warnings(cargo: &mut Command) -> Result<()> {
    // Beside cargo, or found by its name if cargo is.
    let clippy =
        Path::new(cargo.get_program()).with_file_name(format!("clippy-driver{EXE_SUFFIX}"));
    let is_here =
        Command::new(&clippy).arg("--version").output().is_ok_and(|output| output.status.success());
    ensure!(
        is_here,
        "{}: cannot be run; install clippy (`rustup component add clippy`)",
        clippy.display()
    );
    cargo
        .env("RUSTC_WORKSPACE_WRAPPER", clippy)
        .env("CLIPPY_ARGS", ["--deny", "warnings", ""].join("__CLIPPY_HACKERY__"));
    Ok(())
}
