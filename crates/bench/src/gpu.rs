//! The GPU of the measurements, and the programs' use of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xtask::onnxruntime::{self, Build};
use xtask::python;
use xtask::workspace::{Workspace, capture};

/// Name, driver and memory of the first GPU.
pub fn name() -> Result<String> {
    let text = query("name,driver_version,memory.total", "csv,noheader")
        .context("--device cuda: expected an NVIDIA GPU with its driver")?;
    Ok(text.lines().next().unwrap_or_default().replacen(", ", ", driver ", 1))
}

/// Bytes of the first GPU's memory that are in use.
pub fn used() -> Result<u64> {
    let text = query("memory.used", "csv,noheader,nounits")?;
    let first = text.lines().next().unwrap_or_default().trim();
    let mebibytes: u64 =
        first.parse().with_context(|| format!("nvidia-smi: expected MiB, found {first:?}"))?;
    Ok(mebibytes << 20)
}

fn query(fields: &str, format: &str) -> Result<String> {
    let mut command = Command::new("nvidia-smi");
    capture(command.args([format!("--query-gpu={fields}"), format!("--format={format}")]))
}

/// ONNX Runtime with CUDA: `ORT_DYLIB_PATH`, otherwise the installed one.
pub fn library(workspace: &Workspace) -> Result<PathBuf> {
    std::env::var_os("ORT_DYLIB_PATH")
        .map_or_else(|| onnxruntime::bring(workspace, Build::Cuda), |library| Ok(library.into()))
}

/// The given Python, otherwise one with these packages in `home`.
pub fn python(given: Option<&Path>, home: &Path, requirements: &str) -> Result<PathBuf> {
    given.map_or_else(
        || python::environment(home, &requirements.lines().collect::<Vec<_>>()),
        |given| Ok(given.to_owned()),
    )
}
