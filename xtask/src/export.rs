//! `cargo xtask export`: regenerates `onnx/`, the committed examples of exported graphs.
//!
//! Each model has a folder with `encoder.onnx`, `decoder.onnx` and their listings, without weights.
//! The `cognate` program writes them; the same sources give the same bytes.

pub mod verification;

use fs_err as fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::interop;
use crate::table::{self, table, thousands};
use crate::workspace::{Workspace, call, capture, files, size};

/// Regenerate onnx/: the graphs of the bundled model and of the presets, without weights
///
/// Prints sizes, times and verification results, and writes all but the times to onnx/README.md.
#[derive(clap::Args)]
pub struct Options {
    /// Compare onnx/ with the sources instead of writing it; the verification's figures may differ
    #[arg(long)]
    check: bool,
}

/// A model to export.
struct Model {
    name: &'static str,
    /// The argument of `cognate export`.
    source: &'static str,
}

const MODELS: &[Model] = &[
    Model { name: "multi30k-en-de", source: "testdata/multi30k-en-de" },
    Model { name: "tiny", source: "preset:tiny" },
    Model { name: "base", source: "preset:base" },
    Model { name: "big", source: "preset:big" },
];

const GRAPHS: [&str; 2] = ["encoder", "decoder"];

/// The figures below this heading in README.md differ between machines in the last digits.
const VERIFICATION: &str = "## Verification";

/// The fields read from `cognate.json`.
#[derive(Deserialize)]
struct Manifest {
    parameters: Option<u64>,
    verification: verification::Report,
}

/// An exported model.
struct Exported {
    model: &'static Model,
    manifest: Manifest,
    /// Sizes of `encoder.onnx` and `decoder.onnx` in bytes.
    graphs: [u64; 2],
    weights: u64,
    time: Duration,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let cognate = workspace.build_cognate()?;
    let parent = workspace.target("xtask");
    fs::create_dir_all(&parent)?;
    // `full` has exports with weights, `fresh` the new content of `onnx/`.
    let (full, fresh) = (tempfile::tempdir_in(&parent)?, tempfile::tempdir_in(&parent)?);
    let mut exported = Vec::new();
    for model in MODELS {
        println!("== {}", model.name);
        exported.push(export(
            workspace,
            &cognate,
            model,
            &full.path().join(model.name),
            &fresh.path().join(model.name),
        )?);
    }
    fs::write(fresh.path().join("README.md"), readme(&exported))?;
    let times =
        exported.iter().map(|one| vec![one.model.name.to_owned(), table::duration(one.time)]);
    println!(
        "\n{}\n{}\n{}",
        sizes(&exported),
        table(&["model", "export with verification"], &times.collect::<Vec<_>>()),
        verifications(&exported)
    );
    let committed = workspace.root().join("onnx");
    match options.check {
        true => compare(workspace, fresh.path(), &committed),
        false => replace(fresh.path(), &committed),
    }
}

/// Exports a model to `full` and copies graphs and listings to `fresh`, then removes `full`.
fn export(
    workspace: &Workspace,
    cognate: &Path,
    model: &'static Model,
    full: &Path,
    fresh: &Path,
) -> Result<Exported> {
    let mut command = Command::new(cognate);
    command.current_dir(workspace.root()).args(["export", model.source]).arg(full);
    let start = Instant::now();
    call(&mut command)?;
    let time = start.elapsed();
    let path = full.join("cognate.json");
    let text = fs::read_to_string(&path)?;
    let manifest = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    fs::create_dir(fresh)?;
    let mut graphs = [0; 2];
    for (graph, bytes) in GRAPHS.iter().zip(&mut graphs) {
        let file = format!("{graph}.onnx");
        *bytes = fs::copy(full.join(&file), fresh.join(&file))
            .with_context(|| format!("{}: {file}", model.name))?;
        // Run in the folder, so that the listing contains no absolute path.
        let listing = capture(Command::new(cognate).current_dir(full).args(["show", &file]))?;
        fs::write(fresh.join(format!("{graph}.txt")), listing)?;
    }
    let weights = size(full, &|name| name.ends_with(".onnx_data") || name.ends_with(".data"))?;
    fs::remove_dir_all(full)?;
    Ok(Exported { model, manifest, graphs, weights, time })
}

fn readme(exported: &[Exported]) -> String {
    format!(
        "{INTRODUCTION}\n{}\n{CONTRACTS}\n{VERIFICATION}\n\n{}",
        sizes(exported),
        verifications(exported)
    )
}

const INTRODUCTION: &str = "\
# Exported graphs

Examples of `cognate export`: `encoder.onnx` and `decoder.onnx`, which a viewer such as Netron opens, and the listing of each
by `cognate show`. The graphs do not run without their weights, which `cognate export MODEL FOLDER` also writes.
`cargo xtask export` writes this folder, `cargo xtask export --check` compares it. Sizes are in bytes.
";

/// The contracts of exported files.
const CONTRACTS: &str = include_str!("export/contracts.md");

fn sizes(exported: &[Exported]) -> String {
    let row = |Exported { model, manifest, graphs, weights, .. }: &Exported| {
        let parameters = manifest.parameters.map_or("?".to_owned(), thousands);
        vec![
            model.name.to_owned(),
            format!("`{}`", model.source),
            parameters,
            thousands(graphs[0]),
            thousands(graphs[1]),
            thousands(*weights),
        ]
    };
    let header =
        ["model", "exported from", "parameters", "encoder.onnx", "decoder.onnx", "weights"];
    table(&header, &exported.iter().map(row).collect::<Vec<_>>())
}

fn verifications(exported: &[Exported]) -> String {
    verification::tables(
        &exported
            .iter()
            .map(|one| (one.model.name, &one.manifest.verification))
            .collect::<Vec<_>>(),
    )
}

/// Fails with the names of files that differ between a fresh folder and the committed one.
fn compare(workspace: &Workspace, fresh: &Path, committed: &Path) -> Result<()> {
    let differing = differences(fresh, committed)?;
    if !differing.is_empty() {
        bail!(
            "{}: differs from the sources; run `cargo xtask export`\n{}",
            workspace.readable(committed),
            differing.join("\n")
        );
    }
    println!("{}: up to date", workspace.readable(committed));
    Ok(())
}

/// A line for each file that is in only one folder or differs.
pub fn differences(fresh: &Path, committed: &Path) -> Result<Vec<String>> {
    let (new, old) = (names(fresh)?, names(committed)?);
    let mut lines: Vec<_> = old
        .iter()
        .filter(|name| !new.contains(name))
        .map(|name| format!("{}: unexpected", name.display()))
        .collect();
    for name in &new {
        if !old.contains(name) {
            lines.push(format!("{}: missing", name.display()));
        } else if compared(&fresh.join(name))? != compared(&committed.join(name))? {
            lines.push(format!("{}: differs", name.display()));
        }
    }
    Ok(lines)
}

/// The bytes of a file that are compared.
fn compared(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(path)?;
    if path.ends_with("README.md") {
        let text = String::from_utf8_lossy(&bytes);
        return Ok(text.split(VERIFICATION).next().unwrap_or_default().into());
    }
    Ok(bytes)
}

/// Whether a file is a benchmark chart.
fn is_chart(name: &str) -> bool {
    name.starts_with("benchmarks-") && name.ends_with(".svg")
}

/// Whether a file of the folder is written by another command.
fn is_of_others(name: &Path) -> bool {
    name.to_str().is_some_and(|name| {
        [interop::RECORD, "BENCHMARKS.md", "RESULTS.md"].contains(&name) || is_chart(name)
    })
}

/// Relative paths of the files in a folder, without those of other commands; empty if it
/// does not exist.
fn names(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let inside = |path: PathBuf| {
        path.strip_prefix(folder).map(Path::to_owned).context("the file is in the folder")
    };
    let ours = |name: &Result<PathBuf>| name.as_ref().map_or(true, |name| !is_of_others(name));
    files(folder)?.into_iter().map(inside).filter(ours).collect()
}

/// Replaces the content of `committed` by that of `fresh`, but keeps files of other commands.
pub fn replace(fresh: &Path, committed: &Path) -> Result<()> {
    let mut others = Vec::new();
    if committed.exists() {
        for path in files(committed)? {
            let name =
                path.strip_prefix(committed).context("the file is in the folder")?.to_owned();
            if is_of_others(&name) {
                others.push((name, fs::read(&path)?));
            }
        }
        fs::remove_dir_all(committed)?;
    }
    for name in names(fresh)? {
        let target = committed.join(&name);
        let parent = target.parent().context("the file is in a folder")?;
        fs::create_dir_all(parent)?;
        fs::copy(fresh.join(&name), &target)?;
    }
    for (name, bytes) in others {
        let target = committed.join(name);
        fs::write(&target, bytes)?;
    }
    Ok(())
}
