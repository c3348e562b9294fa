//! The dependencies: their licences, known holes, versions and sources, by `cargo deny` and the file `deny.toml`.

use std::process::Stdio;

use anyhow::{Context, Result, bail};

use xtask::workspace::Workspace;

/// What is checked without anything from outside, and what needs the database of advisories.
const CHECKS: [&[&str]; 2] = [&["bans", "licenses", "sources"], &["advisories"]];

/// Words of an error that tells that the database is out of reach, and nothing of the dependencies.
const OUT_OF_REACH: [&str; 3] = ["failed to fetch", "failed to load advisory database", "failed to open advisory database"];

/// Runs the checks; gives the reasons of those that cannot be run, where the tool or its database is not there.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut skipped = Vec::new();
    let mut skip = |reason: String| {
        println!("skipped: {reason}");
        skipped.push(reason);
    };
    let is_there = workspace.cargo().args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        skip("cargo deny is not there; `cargo install cargo-deny` brings it".into());
        return Ok(skipped);
    }
    for checks in CHECKS {
        let output = workspace.cargo().args(["deny", "check"]).args(checks).output().context("cargo deny: cannot be started")?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            println!("{}: passed", checks.join(", "));
        } else if OUT_OF_REACH.iter().any(|words| said.contains(words)) {
            skip(format!("{}: the database of advisories is out of reach", checks.join(", ")));
        } else {
            bail!("cargo deny check {}: {}\n{}", checks.join(" "), output.status, said.trim());
        }
    }
    Ok(skipped)
}
