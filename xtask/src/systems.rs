//! Checks that the workspace compiles for other systems. Nothing is linked or run, so no compiler
//! or library of these systems is needed. Kernels for ARM are run by an emulator.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::workspace::{Workspace, call, capture};

/// A target for Windows and one for macOS, which also covers ARM.
const TARGETS: [&str; 2] = ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"];

/// ARM, for programs that need no libraries.
const EMULATED: &str = "aarch64-unknown-linux-musl";

/// Names of the emulator.
const EMULATORS: [&str; 2] = ["qemu-aarch64-static", "qemu-aarch64"];

/// Runs the tests of kernels on an emulated ARM processor; returns why they were skipped.
pub fn emulate(workspace: &Workspace) -> Result<Option<String>> {
    if cfg!(target_arch = "aarch64") {
        return Ok(None);
    }
    let runs = |emulator: &&str| capture(Command::new(emulator).arg("--version")).is_ok();
    let Some(emulator) = EMULATORS.iter().copied().find(runs) else {
        return Ok(Some(format!("{} is not installed", EMULATORS.join(" or "))));
    };
    if !is_installed(EMULATED) {
        return Ok(Some(not_installed(EMULATED)));
    }
    let mut cargo = workspace.cargo();
    cargo.args(["test", "--package", "cognate-kernels", "--quiet", "--target", EMULATED]);
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld");
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER", emulator);
    call(&mut cargo).map(|()| None)
}

fn not_installed(target: &str) -> String {
    format!("the target {target} is not installed; run `rustup target add {target}`")
}

/// Checks `packages` (arguments of cargo) for every installed target; returns why the
/// others were skipped.
pub fn check(workspace: &Workspace, packages: &[&str]) -> Result<Vec<String>> {
    let (mut skipped, mut failed) = (Vec::new(), Vec::new());
    for target in TARGETS {
        if !is_installed(target) {
            let reason = not_installed(target);
            println!("skipped: {reason}");
            skipped.push(reason);
        } else if call(&mut command(workspace, packages, target)).is_ok() {
            println!("{target}: passed");
        } else {
            failed.push(target);
        }
    }
    match failed.is_empty() {
        true => Ok(skipped),
        false => bail!("does not compile for {}", failed.join(", ")),
    }
}

fn command(workspace: &Workspace, packages: &[&str], target: &str) -> Command {
    let mut cargo = workspace.cargo();
    cargo.arg("check").args(packages).args(["--quiet", "--target", target]);
    // Build scripts compile C for the target. Nothing is linked, so the compilers need not
    // produce anything.
    let name = target.replace('-', "_");
    ["CC", "CXX", "AR", "RANLIB"].iter().for_each(|tool| {
        cargo.env(format!("{tool}_{name}"), "true");
    });
    cargo
}

/// Whether the standard library of the target is installed.
pub fn is_installed(target: &str) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let folder = capture(
        Command::new(rustc)
            .args(["--print", "target-libdir", "--target", target])
            .stderr(Stdio::null()),
    );
    folder.is_ok_and(|folder| Path::new(folder.trim()).is_dir())
}
