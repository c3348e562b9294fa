//! The last parts of `cargo xtask bench export`: exports in place, whose time and memory do not
//! depend on the size of the weights; and the time from the start of `cognate translate` on ONNX
//! Runtime to its first token, from a packed export and from an export in place.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::checkpoint::{Checkpoint, marian_base, marian_large};
use super::process::{Measured, measure, megabytes, peak, rest, seconds};
use super::statistics::figures;
use xtask::onnxruntime::{self, Build};
use xtask::table::bytes;
use xtask::workspace::Workspace;

/// Maximum median time of an export, in seconds.
pub const TIME_BOUND: f64 = 0.1;
/// Maximum peak of anonymous memory, in bytes.
pub const MEMORY_BOUND: u64 = 100_000_000;

/// Measures `rounds` exports in place of a small and a large checkpoint, and first tokens.
pub fn run(workspace: &Workspace, cognate: &Path, rounds: u32) -> Result<()> {
    let mut measured = Vec::new();
    for checkpoint in [marian_base(workspace)?, marian_large(workspace)?] {
        let size = bytes(checkpoint.weights.metadata()?.len());
        let mut export = Command::new(cognate);
        export.arg("export").arg(&checkpoint.folder).args(["--in-place", "--force"]);
        let round = |_| {
            rest()?;
            measure(&mut export)
        };
        let runs = (0..rounds).map(round).collect::<Result<Vec<_>>>()?;
        measured.push((format!("cognate export --in-place, {size}"), runs));
    }
    judge(&measured)?;
    first_token(workspace, cognate, &marian_base(workspace)?, rounds)
}

/// Prints the figures; fails if a bound is missed.
pub fn judge(measured: &[(String, Vec<Measured>)]) -> Result<()> {
    let rows = measured.iter().flat_map(|(name, runs)| {
        let memory = megabytes(runs, |memory| memory.anonymous);
        [
            (format!("{name}, s"), seconds(runs), 3),
            (format!("{name}, MB of anonymous memory"), memory, 1),
        ]
    });
    println!("{}", figures("", rows));
    for (name, runs) in measured {
        let (median, peak) = (seconds(runs).median, peak(runs).anonymous);
        ensure!(peak > 0, "{name}: no memory was measured: it ended too soon");
        ensure!(median <= TIME_BOUND, "{name}: too slow: {median:.3} s, at most {TIME_BOUND}");
        ensure!(
            peak <= MEMORY_BOUND,
            "{name}: allocates too much: {}, at most {}",
            bytes(peak),
            bytes(MEMORY_BOUND)
        );
    }
    Ok(())
}

/// Measures `rounds` first tokens of each; the checkpoint has been exported in place.
fn first_token(
    workspace: &Workspace,
    cognate: &Path,
    checkpoint: &Checkpoint,
    rounds: u32,
) -> Result<()> {
    let library = onnxruntime::bring(workspace, Build::Cpu)?;
    let outputs = tempfile::tempdir_in(workspace.target("bench"))?;
    let packed = outputs.path().join("packed");
    measure(
        Command::new(cognate).arg("export").arg(&checkpoint.folder).arg(&packed).arg("--no-verify"),
    )?;
    let translate = |model: &Path| {
        let mut command = Command::new(cognate);
        command
            .args([
                "translate",
                "--engine",
                "ort",
                "--threads",
                "1",
                "--max-new-tokens",
                "1",
                "--model",
            ])
            .arg(model);
        measure(command.arg("A man is riding a bicycle.").env("ORT_DYLIB_PATH", &library))
    };
    let (mut from_packed, mut in_place) = (Vec::new(), Vec::new());
    rest()?;
    for _ in 0..rounds {
        from_packed.push(translate(&packed)?);
        in_place.push(translate(&checkpoint.folder)?);
    }
    let rows =
        [("packed", from_packed), ("in place", in_place)].into_iter().flat_map(|(name, runs)| {
            let memory = megabytes(&runs, |memory| memory.anonymous);
            [
                (format!("{name}, s"), seconds(&runs), 3),
                (format!("{name}, MB of anonymous memory"), memory, 0),
            ]
        });
    println!("{}", figures("load and first token", rows));
    Ok(())
}
