//! Tests of `layers`.

use xtask::layers::*;
use xtask::workspace::Workspace;
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
    assert_eq!(violations(&packages, &layers(&Workspace::find().unwrap()).unwrap()), [""; 0]);
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
    packages[1].manifest =
        packages[1].manifest.replace("edition.workspace = true", "edition = \"2021\"");
    assert_eq!(
        violations(&packages, &layers(&Workspace::find().unwrap()).unwrap()),
        [
            "cognate-graph: in layer 0 uses cognate-eval of layer 1; only lower layers may be used",
            "cognate-eval: uses anyhow; a library has its own Error",
            "cognate-eval: Cargo.toml lacks `edition.workspace = true`",
            "cognate-text: uses cognate-testing, which may only be a dev-dependency",
            "cognate-model: uses cognate-eval, which is forbidden",
            "cognate-export: in layer 2 uses cognate-model of layer 2; only lower layers may be used",
            "cognate-runtime: uses cognate-text, which is forbidden",
            "cognate-testing: uses cognate-graph, but may use no crate of the workspace",
            "cognate-testing: its tests use cognate-eval, but may use no crate of the workspace",
            "cognate-core: has no layer; add it to the table of crates/README.md",
            "xtask: uses cognate-graph, but may use no crate of the workspace",
        ]
    );
}
