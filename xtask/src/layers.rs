//! The layers of the workspace: a crate uses only crates of lower rows. Checked by a test.
//!
//! ```text
//! 9  cli  bench  hostile
//! 7  cognate
//! 6  train  verify
//! 5  pipeline
//! 4  generate  folder
//! 3  runtime
//! 2  model  export  passes
//! 1  eval
//! 0  graph  text  pictures  audio  kernels
//! ```
//!
//! `testing` is a dev-dependency only and uses none of the others. `xtask` uses none of them and
//! runs `cognate` as a program.

use anyhow::{Context, Result};
use cargo_metadata::DependencyKind;

use xtask::workspace::Workspace;

/// The row of each crate; a new crate is added here and in the README's crate map.
const ROWS: &[(&str, u8)] = &[
    ("cognate-graph", 0),
    ("cognate-text", 0),
    ("cognate-pictures", 0),
    ("cognate-audio", 0),
    ("cognate-kernels", 0),
    ("cognate-eval", 1),
    ("cognate-model", 2),
    ("cognate-export", 2),
    ("cognate-passes", 2),
    ("cognate-runtime", 3),
    ("cognate-generate", 4),
    ("cognate-folder", 4),
    ("cognate-pipeline", 5),
    ("cognate-train", 6),
    ("cognate-verify", 6),
    ("cognate", 7),
    ("cognate-command", 9),
    ("cognate-bench", 9),
    ("cognate-hostile", 9),
];

/// Outside the rows: uses no crate of the workspace, and is used as a dev-dependency only.
const TESTING: &str = "cognate-testing";
const XTASK: &str = "xtask";
/// The row of programs, which may use the library of `xtask`.
const PROGRAMS: u8 = 9;

/// Dependencies that are forbidden although the rows allow them.
const FORBIDDEN: &[(&str, &str)] = &[("cognate-model", "cognate-eval"), ("cognate-runtime", "cognate-text")];

/// Crates that may use `anyhow`; libraries define an error type.
const ANYHOW: &[&str] = &["cognate-command", "cognate-bench", "cognate-hostile", XTASK];

/// Lines that every manifest must contain: edition, licence and lints are defined once.
const INHERITED: &[&str] =
    &["edition.workspace = true", "rust-version.workspace = true", "license.workspace = true", "[lints]\nworkspace = true"];

/// A crate of the workspace, as the rules see it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Package {
    name: String,
    /// Normal and build dependencies.
    uses: Vec<String>,
    /// Dev-dependencies.
    tests_use: Vec<String>,
    /// The text of `Cargo.toml`.
    manifest: String,
}

/// Fails with all violations.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let broken = violations(&packages(workspace)?);
    anyhow::ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

/// All violations, a sentence each.
fn violations(packages: &[Package]) -> Vec<String> {
    let row = |name: &str| ROWS.iter().find(|(known, _)| *known == name).map(|(_, row)| *row);
    let ours = |name: &str| packages.iter().any(|package| package.name == name);
    let mut broken = Vec::new();
    for Package { name, uses, tests_use, manifest } in packages {
        let own_row = row(name);
        if own_row.is_none() && name != TESTING && name != XTASK {
            broken.push(format!("{name}: is in no row; add it in xtask/src/layers.rs"));
        }
        for used in uses.iter().filter(|used| ours(used)) {
            match (own_row, row(used)) {
                (None, _) => broken.push(format!("{name}: uses {used}, but may use no crate of the workspace")),
                (Some(PROGRAMS), None) if used == XTASK => {}
                (Some(_), None) => broken.push(format!("{name}: uses {used}, which may only be a dev-dependency")),
                (Some(own), Some(other)) if other >= own => {
                    broken.push(format!("{name}: in row {own} uses {used} of row {other}; only lower rows may be used"));
                }
                (Some(_), Some(_)) => {}
            }
        }
        if matches!(name.as_str(), TESTING | XTASK) {
            let in_tests = tests_use.iter().filter(|used| ours(used));
            broken.extend(in_tests.map(|used| format!("{name}: its tests use {used}, but may use no crate of the workspace")));
        }
        for (user, used) in FORBIDDEN {
            if user == name && uses.iter().any(|dependency| dependency == used) {
                broken.push(format!("{user}: uses {used}, which is forbidden"));
            }
        }
        let gathers = uses.iter().chain(tests_use).any(|used| used == "anyhow");
        if gathers && !ANYHOW.contains(&name.as_str()) {
            broken.push(format!("{name}: uses anyhow; a library has its own Error"));
        }
        for line in INHERITED.iter().filter(|line| !manifest.contains(**line)) {
            broken.push(format!("{name}: Cargo.toml lacks `{}`", line.replace('\n', " ")));
        }
    }
    broken
}

fn packages(workspace: &Workspace) -> Result<Vec<Package>> {
    let read = |package: &&cargo_metadata::Package| -> Result<Package> {
        let of_kind = |wanted: &dyn Fn(DependencyKind) -> bool| {
            let dependencies = package.dependencies.iter().filter(|dependency| wanted(dependency.kind));
            dependencies.map(|dependency| dependency.name.clone()).collect()
        };
        Ok(Package {
            name: package.name.to_string(),
            uses: of_kind(&|kind| kind != DependencyKind::Development),
            tests_use: of_kind(&|kind| kind == DependencyKind::Development),
            manifest: std::fs::read_to_string(&package.manifest_path).with_context(|| package.manifest_path.to_string())?,
        })
    };
    workspace.metadata().workspace_packages().iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_keeps_its_layers() {
        check(&Workspace::find().unwrap()).unwrap();
    }

    /// Packages from `(name, uses, tests use)`, with valid manifests.
    fn made_up(table: &[(&str, &[&str], &[&str])]) -> Vec<Package> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let package = |(name, uses, tests_use): &(&str, &[&str], &[&str])| Package {
            name: (*name).to_owned(),
            uses: owned(uses),
            tests_use: owned(tests_use),
            manifest: INHERITED.join("\n"),
        };
        table.iter().map(package).collect()
    }

    #[test]
    fn lawful_tables_pass() {
        let packages = made_up(&[
            ("cognate-graph", &["thiserror"], &["cognate-eval", "cognate-testing"]),
            ("cognate-eval", &["cognate-graph"], &["cognate-testing"]),
            ("cognate-command", &["cognate-eval", "cognate-graph", "anyhow"], &[]),
            ("cognate-testing", &["safetensors"], &[]),
            ("xtask", &["anyhow"], &[]),
        ]);
        assert_eq!(violations(&packages), [""; 0]);
    }

    #[test]
    fn every_rule_can_break() {
        let mut packages = made_up(&[
            ("cognate-graph", &["cognate-eval"], &[]),
            ("cognate-eval", &["anyhow"], &[]),
            ("cognate-text", &["cognate-testing"], &[]),
            ("cognate-model", &["cognate-eval"], &[]),
            ("cognate-export", &["cognate-model"], &[]),
            ("cognate-runtime", &["cognate-text"], &[]),
            ("cognate-testing", &["cognate-graph"], &["cognate-eval"]),
            ("cognate-core", &[], &[]),
            ("xtask", &["cognate-graph"], &[]),
        ]);
        packages[1].manifest = packages[1].manifest.replace("edition.workspace = true", "edition = \"2021\"");
        assert_eq!(
            violations(&packages),
            [
                "cognate-graph: in row 0 uses cognate-eval of row 1; only lower rows may be used",
                "cognate-eval: uses anyhow; a library has its own Error",
                "cognate-eval: Cargo.toml lacks `edition.workspace = true`",
                "cognate-text: uses cognate-testing, which may only be a dev-dependency",
                "cognate-model: uses cognate-eval, which is forbidden",
                "cognate-export: in row 2 uses cognate-model of row 2; only lower rows may be used",
                "cognate-runtime: uses cognate-text, which is forbidden",
                "cognate-testing: uses cognate-graph, but may use no crate of the workspace",
                "cognate-testing: its tests use cognate-eval, but may use no crate of the workspace",
                "cognate-core: is in no row; add it in xtask/src/layers.rs",
                "xtask: uses cognate-graph, but may use no crate of the workspace",
            ]
        );
    }
}
