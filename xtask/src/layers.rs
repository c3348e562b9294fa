//! The layers of the workspace: a crate uses only crates of lower layers. They are given by the
//! table of crates in `crates/README.md`.
//!
//! `testing` is a dev-dependency only. It and `xtask` use no other crate; `xtask` runs `cognate` as
//! a program.

use anyhow::{Context, Result};
use cargo_metadata::DependencyKind;

use crate::workspace::Workspace;

const XTASK: &str = "xtask";
/// The layer of programs, which may use the library of `xtask`.
const PROGRAMS: u8 = 9;

/// Dependencies that are forbidden although the layers allow them.
const FORBIDDEN: &[(&str, &str)] =
    &[("cognate-model", "cognate-eval"), ("cognate-runtime", "cognate-text")];

/// Crates that may use `anyhow`; libraries define an error type.
const ANYHOW: &[&str] = &["cognate-command", "cognate-bench", "cognate-hostile", XTASK];

/// Lines that every manifest must contain: edition, licence and lints are defined once.
pub const INHERITED: &[&str] = &[
    "edition.workspace = true",
    "rust-version.workspace = true",
    "license.workspace = true",
    "[lints]\nworkspace = true",
];

/// A crate of the workspace, as the rules see it.
#[derive(Debug, Default, Clone)]
pub struct Package {
    pub name: String,
    /// Normal and build dependencies.
    pub uses: Vec<String>,
    /// Dev-dependencies.
    pub tests_use: Vec<String>,
    /// The text of `Cargo.toml`.
    pub manifest: String,
}

/// The packages of the table in `crates/README.md` with their layers; `testing` and `xtask` have
/// none.
pub fn layers(workspace: &Workspace) -> Result<Vec<(String, Option<u8>)>> {
    let text = fs_err::read_to_string(workspace.root().join("crates/README.md"))
        .context("crates/README.md")?;
    let table = text
        .lines()
        .skip_while(|line| *line != "## Crates")
        .skip(1)
        .take_while(|line| !line.starts_with("## "));
    let layer = |line: &str| {
        let (layer, rest) = line.strip_prefix("| ")?.split_once('|')?;
        // `graph`, or `cli` (`cognate-command`).
        let names: Vec<&str> = rest.split('|').next()?.split('`').skip(1).step_by(2).collect();
        let name = match names[..] {
            [name @ ("cognate" | XTASK)] | [_, name] => name.to_owned(),
            [name] => format!("cognate-{name}"),
            _ => return None,
        };
        Some((name, layer.trim().parse().ok()))
    };
    Ok(table.filter_map(layer).collect())
}

/// Fails with all violations.
pub fn check(workspace: &Workspace) -> Result<()> {
    let broken = violations(&packages(workspace)?, &layers(workspace)?);
    anyhow::ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

/// All violations, a sentence each.
pub fn violations(packages: &[Package], layers: &[(String, Option<u8>)]) -> Vec<String> {
    let layer =
        |name: &str| layers.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer);
    let ours = |name: &str| packages.iter().any(|package| package.name == name);
    let mut broken = Vec::new();
    for Package { name, uses, tests_use, manifest } in packages {
        let Some(own) = layer(name) else {
            broken.push(format!("{name}: has no layer; add it to the table of crates/README.md"));
            continue;
        };
        for used in uses.iter().filter(|used| ours(used)) {
            match (own, layer(used).flatten()) {
                (None, _) => broken
                    .push(format!("{name}: uses {used}, but may use no crate of the workspace")),
                (Some(PROGRAMS), None) if used == XTASK => {}
                (Some(_), None) => {
                    broken.push(format!("{name}: uses {used}, which may only be a dev-dependency"))
                }
                (Some(own), Some(other)) if other >= own => {
                    broken.push(format!("{name}: in layer {own} uses {used} of layer {other}; only lower layers may be used"));
                }
                (Some(_), Some(_)) => {}
            }
        }
        let in_tests = tests_use.iter().filter(|used| own.is_none() && ours(used));
        broken.extend(in_tests.map(|used| {
            format!("{name}: its tests use {used}, but may use no crate of the workspace")
        }));
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
            let dependencies =
                package.dependencies.iter().filter(|dependency| wanted(dependency.kind));
            dependencies.map(|dependency| dependency.name.clone()).collect()
        };
        Ok(Package {
            name: package.name.to_string(),
            uses: of_kind(&|kind| kind != DependencyKind::Development),
            tests_use: of_kind(&|kind| kind == DependencyKind::Development),
            manifest: fs_err::read_to_string(&package.manifest_path)
                .with_context(|| package.manifest_path.to_string())?,
        })
    };
    workspace.metadata().workspace_packages().iter().map(read).collect()
}
