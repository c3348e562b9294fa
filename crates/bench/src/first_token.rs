//! The last part of `cargo xtask bench export`: from the start of `cognate translate` on ONNX Runtime to the end of its first
//! token, once from a packed export and once from graphs beside their checkpoint.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::checkpoint::Checkpoint;
use super::process::rest;
use super::process::{Measured, measure};
use super::statistics::Summary;
use xtask::onnxruntime::{self, Build};
use xtask::table::table;
use xtask::workspace::Workspace;

/// Measures `rounds` first tokens of each; the checkpoint has been exported in place.
pub fn run(workspace: &Workspace, cognate: &Path, checkpoint: &Checkpoint, rounds: u32) -> Result<()> {
    let library = onnxruntime::bring(workspace, Build::Cpu)?;
    let outputs = tempfile::tempdir_in(workspace.target("bench"))?;
    let packed = outputs.path().join("packed");
    let mut export = Command::new(cognate);
    measure(export.arg("export").arg(&checkpoint.folder).arg(&packed).arg("--no-verify"))?;
    let translate = |model: &Path| {
        let mut command = Command::new(cognate);
        command.args(["translate", "--engine", "ort", "--threads", "1", "--max-new-tokens", "1", "--model"]).arg(model);
        command.arg("A man is riding a bicycle.").env("ORT_DYLIB_PATH", &library);
        command
    };
    let (mut from_packed, mut in_place) = (Vec::new(), Vec::new());
    rest()?;
    for _ in 0..rounds {
        from_packed.push(measure(&mut translate(&packed))?);
        in_place.push(measure(&mut translate(&checkpoint.folder))?);
    }
    let row = |name: &str, runs: &[Measured]| {
        let time = Summary::of(runs.iter().map(|run| run.time.as_secs_f64()));
        let memory = Summary::of(runs.iter().map(|run| run.memory.anonymous as f64 / 1e6));
        vec![
            name.to_owned(),
            format!("{:.3}", time.median),
            format!("{:.3}", time.min),
            format!("{:.3}", time.max),
            format!("{:.0}", memory.median),
        ]
    };
    let rows = [row("packed", &from_packed), row("in place", &in_place)];
    println!("{}", table(&["load and first token, s", "median", "min", "max", "MB of anonymous memory"], &rows));
    fs::remove_dir_all(&packed).with_context(|| packed.display().to_string())
}
