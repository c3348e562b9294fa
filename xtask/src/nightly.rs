//! `cargo xtask miri` and `cargo xtask sanitize`: memory checks that need a nightly compiler.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::workspace::{Workspace, call, succeeds};

/// The target of the sanitizer.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Packages and tests that convert bytes to numbers and back, without files.
const INTERPRETED: [(&str, &[&str]); 2] =
    [("cognate-graph", &["--test", "it"]), ("cognate-export", &["--lib"])];

/// Packages whose tests map files and need no engine.
const MAPPING: [&str; 2] = ["cognate-model", "cognate-export"];

/// `cargo` of the nightly toolchain; `None`, with a message, if `component` is missing.
pub fn cargo(workspace: &Workspace, component: &[&str]) -> Option<Command> {
    let nightly = || {
        let mut command = Command::new("rustup");
        command
            .args(["run", "nightly", "cargo"])
            .current_dir(workspace.root())
            .stdin(Stdio::null());
        // Variables of the toolchain that runs this program.
        for variable in ["RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS", "LD_LIBRARY_PATH"] {
            command.env_remove(variable);
        }
        command
    };
    if succeeds(nightly().args(component).arg("--version")) {
        return Some(nightly());
    }
    println!(
        "skipped: no nightly `cargo {}`; run `rustup toolchain install nightly --component miri,rust-src`",
        component.join(" ")
    );
    None
}

/// Runs `cargo xtask miri`.
pub fn miri(workspace: &Workspace) -> Result<()> {
    for (package, selected) in INTERPRETED {
        let Some(mut cargo) = cargo(workspace, &["miri"]) else { return Ok(()) };
        cargo.args(["miri", "test", "--package", package]).args(selected);
        cargo.arg("--target-dir").arg(workspace.target("miri"));
        // Snapshots need the workspace's folder.
        call(
            cargo
                .env("MIRIFLAGS", "-Zmiri-disable-isolation")
                .env("INSTA_WORKSPACE_ROOT", workspace.root()),
        )?;
    }
    Ok(())
}

/// Runs `cargo xtask sanitize`.
pub fn sanitize(workspace: &Workspace) -> Result<()> {
    for package in MAPPING {
        let Some(mut cargo) = cargo(workspace, &[]) else { return Ok(()) };
        cargo.args(["test", "--package", package, "--test", "it", "--target", TARGET]);
        cargo.arg("--target-dir").arg(workspace.target("sanitize"));
        call(cargo.env("RUSTFLAGS", "-Zsanitizer=address").env("INSTA_UPDATE", "no"))?;
    }
    Ok(())
}
