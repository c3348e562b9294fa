//! `cargo xtask miri` and `cargo xtask sanitize`: what only a nightly compiler tells about memory.

use std::process::{Command, Stdio};

use anyhow::Result;

use xtask::workspace::{Workspace, call};

/// Where sanitizers are linked.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Interpret the code that makes numbers of bytes, looking for undefined behaviour
///
/// Needs a nightly toolchain with miri: `rustup toolchain install nightly --component miri,rust-src`. Without one the command says so
/// and does nothing. Files that are mapped are beyond it: `cargo xtask sanitize` sees to those.
#[derive(clap::Args)]
pub(crate) struct Miri {}

/// Run the tests of files that are mapped under the address sanitizer
///
/// Needs a nightly toolchain and Linux on x86-64. Without them the command says so and does nothing.
#[derive(clap::Args)]
pub(crate) struct Sanitize {}

/// Packages and tests that turn bytes into numbers and back, without files.
const INTERPRETED: [(&str, &[&str]); 2] = [("cognate-graph", &["--lib", "--test", "it"]), ("cognate-export", &["--lib"])];

/// Packages whose tests map files. None of them reaches an engine.
const MAPPING: [&str; 2] = ["cognate-model", "cognate-export"];

/// `cargo` of the nightly toolchain; `None`, with a message, where `component` is not there.
pub(crate) fn cargo(workspace: &Workspace, component: &[&str]) -> Option<Command> {
    let nightly = || {
        let mut command = Command::new("rustup");
        command.args(["run", "nightly", "cargo"]).current_dir(workspace.root()).stdin(Stdio::null());
        // Those of the toolchain that runs this program.
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
    println!("skipped: no nightly `cargo {}`; `rustup toolchain install nightly --component miri,rust-src` brings it", component.join(" "));
    None
}

/// Runs `cargo xtask miri`.
pub(crate) fn miri(workspace: &Workspace, _: &Miri) -> Result<()> {
    for (package, selected) in INTERPRETED {
        let Some(mut cargo) = cargo(workspace, &["miri"]) else { return Ok(()) };
        cargo.args(["miri", "test", "--package", package]).args(selected);
        cargo.arg("--target-dir").arg(workspace.target("miri"));
        // Snapshots ask for the workspace's folder.
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
