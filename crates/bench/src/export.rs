//! `cargo xtask bench export`: time and memory of an export, compared with writing the same bytes
//! to the disk.
//!
//! The reference is `dd conv=fsync` of the checkpoint's weights file, which is in the page cache.
//! Both run in turn, with new output files and an idle disk.

use fs_err::{self as fs, File};
use std::io;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::checkpoint::{Checkpoint, marian_base};
use super::in_place;
use super::peers;
use super::process::{Measured, measure, megabytes, peak, rest, seconds};
use super::statistics::figures;
use xtask::table::{bytes, table, thousands};
use xtask::workspace::{Cognate, Workspace, files};

/// Maximum ratio of the median time of an export to that of `dd`.
pub const TIME_BOUND: f64 = 2.0;
/// Maximum peak of anonymous memory, in bytes.
pub const MEMORY_BOUND: u64 = 64_000_000;

/// Measure time and memory of exporting a checkpoint of Marian-base shape (242 MB), compared with
/// `dd conv=fsync`
///
/// The checkpoint has random weights and is created once, in target/bench. Fails if the median
/// export takes more than twice the median `dd`, or an export more than 64 MB of anonymous memory.
/// Then this checkpoint and one of 4.96 GB are exported in place, in at most 0.1 s and 100 MB.
/// Linux only.
///
/// With --peers: compared with `optimum-cli export onnx` instead, on checkpoints of the shapes of
/// Marian-base, T5-small, BART-base, M2M100, BERT-base and GPT-2 with random weights by
/// transformers (installs 6 GB in target/interop). Fails if an export is not 20 times as fast as
/// Optimum's, takes more than a third of its memory, or writes more than 1.05 times the checkpoint.
#[derive(clap::Args)]
pub struct Options {
    /// Number of runs of each program, in turn; slow ones (Optimum, verification) run once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Compare with Optimum
    #[arg(long)]
    pub peers: bool,
    /// With --peers: only this shape
    #[arg(long, requires = "peers", value_parser = peers::SHAPES)]
    pub shape: Option<String>,
    #[command(flatten)]
    pub cognate: Cognate,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let cognate = options.cognate.path(workspace)?;
    if options.peers {
        return peers::run(workspace, cognate, options.rounds, options.shape.as_deref());
    }
    let checkpoint = marian_base(workspace)?;
    let outputs = tempfile::tempdir_in(workspace.target("bench"))?;
    let (copy, exported) = (outputs.path().join("copy"), outputs.path().join("exported"));
    // Fills the page cache.
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
    println!(
        "{} parameters\n\n{}",
        thousands(checkpoint.parameters),
        table(&["file", "bytes"], &rows)
    );
    Ok(())
}

/// Prints the figures; fails if a bound is missed.
pub fn judge(copies: &[Measured], exports: &[Measured]) -> Result<()> {
    let (copy, export) = (seconds(copies), seconds(exports));
    let rows = [
        ("dd conv=fsync, s", copy, 3),
        ("cognate export --no-verify, s", export, 3),
        ("peak anonymous memory, MB", megabytes(exports, |memory| memory.anonymous), 1),
        (
            "peak resident memory, mapped files included, MB",
            megabytes(exports, |memory| memory.resident),
            1,
        ),
    ];
    println!(
        "{}",
        figures(
            &format!("{} rounds", exports.len()),
            rows.map(|(name, summary, digits)| (name.to_owned(), summary, digits))
        )
    );
    let ratio = export.median / copy.median;
    let peak = peak(exports).anonymous;
    ensure!(peak > 0, "no memory of the export was measured: it ended too soon");
    println!("median export / median dd = {ratio:.2} (at most {TIME_BOUND})");
    println!("peak anonymous memory {} (at most {})", bytes(peak), bytes(MEMORY_BOUND));
    ensure!(
        ratio <= TIME_BOUND,
        "the export is too slow: {ratio:.2} times dd, at most {TIME_BOUND}"
    );
    ensure!(
        peak <= MEMORY_BOUND,
        "the export allocates too much: {}, at most {}",
        bytes(peak),
        bytes(MEMORY_BOUND)
    );
    Ok(())
}
