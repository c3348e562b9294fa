//! The second part of `cargo xtask bench export`: exports in place, whose time and memory do not grow with the weights.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::checkpoint::{Checkpoint, marian_base, marian_large};
use super::first_token;
use super::process::rest;
use super::process::{Measured, measure};
use super::statistics::Summary;
use xtask::table::{bytes, table};
use xtask::workspace::Workspace;

/// Median time of an export, in seconds.
pub const TIME_BOUND: f64 = 0.1;
/// Peak of anonymous memory, in bytes.
pub const MEMORY_BOUND: u64 = 100_000_000;

/// Measures `rounds` exports in place of a small and a large checkpoint.
pub fn run(workspace: &Workspace, cognate: &Path, rounds: u32) -> Result<()> {
    let mut measured = Vec::new();
    for checkpoint in [marian_base(workspace)?, marian_large(workspace)?] {
        let size = bytes(checkpoint.weights.metadata()?.len());
        measured.push((format!("cognate export --in-place, {size}"), exports(cognate, &checkpoint, rounds)?));
    }
    judge(&measured)?;
    first_token::run(workspace, cognate, &marian_base(workspace)?, rounds)
}

pub fn exports(cognate: &Path, checkpoint: &Checkpoint, rounds: u32) -> Result<Vec<Measured>> {
    let mut export = Command::new(cognate);
    export.arg("export").arg(&checkpoint.folder).args(["--in-place", "--force"]);
    let round = |_| {
        rest()?;
        measure(&mut export)
    };
    (0..rounds).map(round).collect()
}

/// Prints the figures; fails when a bound is missed.
pub fn judge(measured: &[(String, Vec<Measured>)]) -> Result<()> {
    let mut rows = Vec::new();
    for (name, runs) in measured {
        let row = |unit: &str, Summary { median, min, max }: Summary, digits: usize| {
            vec![format!("{name}, {unit}"), format!("{median:.digits$}"), format!("{min:.digits$}"), format!("{max:.digits$}")]
        };
        rows.push(row("s", Summary::of(runs.iter().map(|run| run.time.as_secs_f64())), 3));
        rows.push(row("MB of anonymous memory", Summary::of(runs.iter().map(|run| run.memory.anonymous as f64 / 1e6)), 1));
    }
    println!("{}", table(&["", "median", "min", "max"], &rows));
    for (name, runs) in measured {
        let median = Summary::of(runs.iter().map(|run| run.time.as_secs_f64())).median;
        let peak = runs.iter().map(|run| run.memory.anonymous).max().unwrap_or_default();
        ensure!(peak > 0, "{name}: its memory was never seen: it ended too soon");
        ensure!(median <= TIME_BOUND, "{name}: too slow: {median:.3} s, at most {TIME_BOUND}");
        ensure!(peak <= MEMORY_BOUND, "{name}: allocates too much: {}, at most {}", bytes(peak), bytes(MEMORY_BOUND));
    }
    Ok(())
}
