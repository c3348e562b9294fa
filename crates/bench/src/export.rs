//! `cargo xtask bench export`: how long an export takes, beside writing the same bytes to the disk, and how much memory.
//!
//! Yardstick: `dd conv=fsync` of the checkpoint's weights file, which is in the page cache. The two take turns, each into a
//! fresh place, with the disk brought to rest in between.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::checkpoint::{Checkpoint, marian_base};
use super::in_place;
use super::peers;
use super::process::{Measured, measure, rest};
use super::statistics::Summary;
use xtask::table::{bytes, table, thousands};
use xtask::workspace::{Workspace, files};

/// Median time of an export over that of `dd`.
pub const TIME_BOUND: f64 = 2.0;
/// Peak of anonymous memory, in bytes.
pub const MEMORY_BOUND: u64 = 64_000_000;

/// Export a checkpoint of Marian-base shape (242 MB): time and memory, beside `dd conv=fsync` of the same bytes
///
/// The checkpoint has random weights and is made once, under target/bench. Fails when the median export takes more than
/// twice the median `dd`, or an export more than 64 MB of anonymous memory. Then the same checkpoint, and one of 4.96 GB, are
/// exported in place: at most 0.1 s and 100 MB. Linux only.
///
/// With --peers: beside `optimum-cli export onnx` instead, on checkpoints of the shapes of Marian-base, T5-small, BART-base and
/// M2M100, with random weights that transformers makes (installs 6 GB under target/interop). Fails when an export is not 20
/// times as fast as Optimum's, takes more than a third of its memory, or writes more than 1.05 times the checkpoint.
#[derive(clap::Args)]
pub struct Options {
    /// How often each is run, in turn; what takes long (Optimum, verification) runs once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Beside Optimum
    #[arg(long)]
    pub peers: bool,
    /// With --peers: only this shape
    #[arg(long, requires = "peers", value_parser = peers::SHAPES)]
    pub shape: Option<String>,
    /// With --peers: a `cognate` that is built already, in place of building it in release mode
    #[arg(long, requires = "peers", value_name = "PROGRAM")]
    pub cognate: Option<PathBuf>,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.peers {
        let cognate = match &options.cognate {
            Some(program) => program.clone(),
            None => workspace.build_cognate()?,
        };
        return peers::run(workspace, cognate, options.rounds, options.shape.as_deref());
    }
    let cognate = workspace.build_cognate()?;
    let checkpoint = marian_base(workspace)?;
    let outputs = tempfile::tempdir_in(workspace.target("bench"))?;
    let (copy, exported) = (outputs.path().join("copy"), outputs.path().join("exported"));
    // Into the page cache, for both.
    io::copy(&mut File::open(&checkpoint.weights)?, &mut io::sink())?;
    rest()?;

    let (mut copies, mut exports) = (Vec::new(), Vec::new());
    let mut written = Vec::new();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        copies.push(measure(&mut dd(&checkpoint.weights, &copy))?);
        fs::remove_file(&copy)?;
        rest()?;
        let mut export = Command::new(&cognate);
        export.arg("export").arg(&checkpoint.folder).arg(&exported).arg("--no-verify");
        exports.push(measure(&mut export)?);
        written = sizes(&exported)?;
        fs::remove_dir_all(&exported)?;
        rest()?;
    }
    print_files(&checkpoint, &written)?;
    judge(&copies, &exports)?;
    in_place::run(workspace, &cognate, options.rounds)
}

pub fn dd(from: &Path, to: &Path) -> Command {
    let operand = |name: &str, path: &Path| {
        let mut operand = std::ffi::OsString::from(name);
        operand.push(path);
        operand
    };
    let mut command = Command::new("dd");
    command.arg(operand("if=", from)).arg(operand("of=", to)).args(["bs=1M", "conv=fsync"]);
    command
}

pub fn sizes(folder: &Path) -> Result<Vec<(String, u64)>> {
    let size = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, path.metadata().with_context(|| path.display().to_string())?.len()))
    };
    files(folder)?.into_iter().map(size).collect()
}

pub fn print_files(checkpoint: &Checkpoint, written: &[(String, u64)]) -> Result<()> {
    let weights = checkpoint.weights.metadata()?.len();
    let total: u64 = written.iter().map(|(_, bytes)| bytes).sum();
    let from = [("checkpoint: model.safetensors".to_owned(), weights)];
    let named = written.iter().map(|(name, bytes)| (format!("written: {name}"), *bytes));
    let all = from.into_iter().chain(named).chain([("written in all".to_owned(), total)]);
    let rows: Vec<_> = all.map(|(name, bytes)| vec![name, thousands(bytes)]).collect();
    println!("{} parameters\n\n{}", thousands(checkpoint.parameters), table(&["file", "bytes"], &rows));
    Ok(())
}

/// Prints the figures; fails when a bound is missed.
pub fn judge(copies: &[Measured], exports: &[Measured]) -> Result<()> {
    let seconds = |runs: &[Measured]| Summary::of(runs.iter().map(|run| run.time.as_secs_f64()));
    let megabytes = |of: &dyn Fn(&Measured) -> u64| Summary::of(exports.iter().map(|run| of(run) as f64 / 1e6));
    let (copy, export) = (seconds(copies), seconds(exports));
    let anonymous = megabytes(&|run| run.memory.anonymous);
    let resident = megabytes(&|run| run.memory.resident);
    let row = |name: &str, Summary { median, min, max }: Summary, digits: usize| {
        vec![name.to_owned(), format!("{median:.digits$}"), format!("{min:.digits$}"), format!("{max:.digits$}")]
    };
    let rows = [
        row("dd conv=fsync, s", copy, 3),
        row("cognate export --no-verify, s", export, 3),
        row("peak anonymous memory, MB", anonymous, 1),
        row("peak resident, mapped files included, MB", resident, 1),
    ];
    println!("{}", table(&[&format!("{} rounds", exports.len()) as &str, "median", "min", "max"], &rows));

    let ratio = export.median / copy.median;
    let peak = exports.iter().map(|run| run.memory.anonymous).max().unwrap_or_default();
    ensure!(peak > 0, "the memory of the export was never seen: it ended too soon");
    println!("median export / median dd = {ratio:.2} (at most {TIME_BOUND})");
    println!("peak anonymous memory {} (at most {})", bytes(peak), bytes(MEMORY_BOUND));
    ensure!(ratio <= TIME_BOUND, "the export is too slow: {ratio:.2} times dd, at most {TIME_BOUND}");
    ensure!(peak <= MEMORY_BOUND, "the export allocates too much: {}, at most {}", bytes(peak), bytes(MEMORY_BOUND));
    Ok(())
}
