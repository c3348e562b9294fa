//! Checks the licences, advisories, versions and sources of dependencies by `cargo deny`
//! and `deny.toml`.

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, succeeds};

/// The offline checks, and those that need the database of advisories.
const CHECKS: [&[&str]; 2] = [&["bans", "licenses", "sources"], &["advisories"]];

/// Errors of a database that cannot be reached.
const OUT_OF_REACH: [&str; 3] =
    ["failed to fetch", "failed to load advisory database", "failed to open advisory database"];

/// Runs the checks. Returns why checks were skipped, if the tool or its database is missing.
pub fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut skipped = Vec::new();
    let mut skip = |reason: String| {
        println!("skipped: {reason}");
        skipped.push(reason);
    };
    if !succeeds(workspace.cargo().args(["deny", "--version"])) {
        skip("cargo deny is not installed; run `cargo install cargo-deny`".into());
        return Ok(skipped);
    }
    for checks in CHECKS {
        let output = workspace
            .cargo()
            .args(["deny", "check"])
            .args(checks)
            .output()
            .context("cargo deny: cannot start")?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            println!("{}: passed", checks.join(", "));
        } else if OUT_OF_REACH.iter().any(|words| said.contains(words)) {
            skip(format!("{}: the database of advisories cannot be reached", checks.join(", ")));
        } else {
            bail!("cargo deny check {}: {}\n{}", checks.join(" "), output.status, said.trim());
        }
    }
    Ok(skipped)
}
