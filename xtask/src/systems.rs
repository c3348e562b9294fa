//! Whether the workspace compiles for systems other than this one. Nothing is linked or run: a check needs no compiler and no library
//! of the other system.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use xtask::workspace::{Workspace, call, capture};

/// Of each system one: Windows and macOS, and with it the processors of ARM.
const TARGETS: [&str; 2] = ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"];

/// Checks `packages` (arguments of cargo) for every target whose standard library is installed; gives the reasons of the others.
pub(crate) fn check(workspace: &Workspace, packages: &[&str]) -> Result<Vec<String>> {
    let (mut skipped, mut failed) = (Vec::new(), Vec::new());
    for target in TARGETS {
        if !is_installed(target) {
            let reason = format!("the target {target} is not installed; `rustup target add {target}` brings it");
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
    // Build scripts compile C for the target. A check links nothing, so that nothing needs to come of it.
    let name = target.replace('-', "_");
    ["CC", "CXX", "AR", "RANLIB"].iter().for_each(|tool| {
        cargo.env(format!("{tool}_{name}"), "true");
    });
    cargo
}

/// Whether Rust's own library is here for the target.
fn is_installed(target: &str) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let folder = capture(Command::new(rustc).args(["--print", "target-libdir", "--target", target]).stderr(Stdio::null()));
    folder.is_ok_and(|folder| Path::new(folder.trim()).is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_targets_are_told_apart() {
        let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        assert!(!cfg!(target_os = "linux") || !cfg!(target_env = "gnu") || is_installed(&host));
        assert!(!is_installed("klingon-unknown-none"));
    }
}
