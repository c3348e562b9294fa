//! `cargo xtask miri` and `cargo xtask sanitize`: memory checks that need a nightly compiler.

use std::process::{Command, Stdio};

use anyhow::Result;

use xtask::workspace::{Workspace, call};

/// The target of the sanitizer.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Run the code that converts bytes to numbers under Miri, which detects undefined behaviour
///
/// Needs a nightly toolchain with miri:
/// `rustup toolchain install nightly --component miri,rust-src`. Skipped with a message without
/// one. Miri cannot map files; `cargo xtask sanitize` tests those.
#[derive(clap::Args)]
pub(crate) struct Miri {}

/// Run the tests of mapped files under the address sanitizer
///
/// Needs a nightly toolchain and Linux on x86-64; skipped with a message without them.
#[derive(clap::Args)]
pub(crate) struct Sanitize {}

/// Packages and tests that convert bytes to numbers and back, without files.
const INTERPRETED: [(&str, &[&str]); 2] = [("cognate-graph", &["--lib", "--test", "it"]), ("cognate-export", &["--lib"])];

/// Packages whose tests map files and need no engine.
const MAPPING: [&str; 2] = ["cognate-model", "cognate-export"];

/// `cargo` of the nightly toolchain; `None`, with a message, if `component` is missing.
pub(crate) fn cargo(workspace: &Workspace, component: &[&str]) -> Option<Command> {
    let nightly = || {
        let mut command = Command::new("rustup");
        command.args(["run", "nightly", "cargo"]).current_dir(workspace.root()).stdin(Stdio::null());
        // Variables of the toolchain that runs this program.
        for variable in ["RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS", "LD_LIBRARY_PATH"] {
            command.env_remove(variable);
        }
        command
    };
    let mut asked = nightly();
    let is_there = asked.args(component).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if is_there.is_ok_and(|status| status.success()) {
        return Some(nightly());
    }
    println!("skipped: no nightly `cargo {}`; run `rustup toolchain install nightly --component miri,rust-src`", component.join(" "));
    None
}

/// Runs `cargo xtask miri`.
pub(crate) fn miri(workspace: &Workspace, _: &Miri) -> Result<()> {
    for (package, selected) in INTERPRETED {
        let Some(mut cargo) = cargo(workspace, &["miri"]) else { return Ok(()) };
        cargo.args(["miri", "test", "--package", package]).args(selected);
        cargo.arg("--target-dir").arg(workspace.target("miri"));
        // Snapshots need the workspace's folder.
        call(cargo.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("INSTA_WORKSPACE_ROOT", workspace.root()))?;
    }
    Ok(())
}

/// Runs `cargo xtask sanitize`.
pub(crate) fn sanitize(workspace: &Workspace, _: &Sanitize) -> Result<()> {
    for package in MAPPING {
        let Some(mut cargo) = cargo(workspace, &[]) else { return Ok(()) };
        cargo.args(["test", "--package", package, "--test", "it", "--target", TARGET]);
        cargo.arg("--target-dir").arg(workspace.target("sanitize"));
        call(cargo.env("RUSTFLAGS", "-Zsanitizer=address").env("INSTA_UPDATE", "no"))?;
    }
    Ok(())
}
