//! `cargo xtask bench export --peers`: Cognate's export compared with Optimum's, on the same
//! checkpoints of well-known shapes.
//!
//! Optimum runs with and without its comparison of the graphs with PyTorch, and Cognate with and
//! without its verification. The bounds apply to the runs without.

use fs_err::{self as fs, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::process::{Measured, Memory, measure, peak, rest, seconds};
use xtask::python;
use xtask::table::table;
use xtask::workspace::{Workspace, call, files, size};

pub const REQUIREMENTS: &str = include_str!("../../../xtask/interop/python/requirements.txt");

/// The checkpoints of `xtask/interop/python/make_checkpoint.py`.
pub const SHAPES: [&str; 6] =
    ["marian-base", "t5-small", "bart-base", "m2m100-small", "bert-base", "gpt2"];
pub const WEIGHTS: &str = "model.safetensors";

/// Minimum ratio of Optimum's time to Cognate's.
pub const SPEED_BOUND: f64 = 20.0;
/// Maximum ratio of Cognate's peak of resident memory, mapped files included, to Optimum's.
pub const MEMORY_BOUND: f64 = 1.0 / 3.0;
/// Maximum ratio of the bytes of the Cognate layout to those of the checkpoint's weights.
pub const SIZE_BOUND: f64 = 1.05;

/// Optimum's export without its comparison, for which its command has no option:
/// `python -c UNCHECKED task checkpoint out`.
pub const UNCHECKED: &str = "import sys
from optimum.exporters.onnx import main_export
main_export(sys.argv[2], output=sys.argv[3], task=sys.argv[1], do_validation=False)
";

/// Optimum's task of a shape.
fn task(shape: &str) -> &'static str {
    match shape {
        "bert-base" => "feature-extraction",
        "gpt2" => "text-generation-with-past",
        _ => "text2text-generation-with-past",
    }
}

/// A way to export, a row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Optimum,
    OptimumUnchecked,
    Verified,
    Unverified,
    HuggingFace,
    InPlace,
}

impl Way {
    pub const ALL: [Way; 6] = [
        Way::Optimum,
        Way::OptimumUnchecked,
        Way::Verified,
        Way::Unverified,
        Way::HuggingFace,
        Way::InPlace,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Way::Optimum => "optimum-cli export onnx",
            Way::OptimumUnchecked => "the same, do_validation=False",
            Way::Verified => "cognate export",
            Way::Unverified => "cognate export --no-verify",
            Way::HuggingFace => "cognate export --no-verify --layout hf",
            Way::InPlace => "cognate export --no-verify --in-place",
        }
    }

    /// Whether it is fast enough to run several times.
    pub fn is_repeated(self) -> bool {
        matches!(self, Way::Unverified | Way::HuggingFace | Way::InPlace)
    }
}

/// The runs and the bytes of the written files, or the reason why there are none.
pub type Row = Result<(Vec<Measured>, u64), String>;

/// Programs and folders of a run.
pub struct Bench {
    pub cognate: PathBuf,
    pub python: PathBuf,
    pub checkpoint: PathBuf,
    /// Optimum's task for the model.
    pub task: &'static str,
    /// An empty folder on the same disk.
    pub work: PathBuf,
}

/// Runs the command, on one shape or on all.
pub fn run(
    workspace: &Workspace,
    cognate: PathBuf,
    rounds: u32,
    shape: Option<&str>,
) -> Result<()> {
    let requirements: Vec<&str> = REQUIREMENTS.lines().collect();
    let python = python::environment(&workspace.target("interop/python"), &requirements)?;
    let work = tempfile::tempdir_in(workspace.target(""))?;
    let mut missed = Vec::new();
    for name in SHAPES.into_iter().filter(|name| shape.is_none_or(|wanted| wanted == *name)) {
        let checkpoint = workspace.target("bench/peers").join(name);
        make(workspace, &python, name, &checkpoint)?;
        let bench = Bench {
            cognate: cognate.clone(),
            python: python.clone(),
            checkpoint,
            task: task(name),
            work: work.path().to_owned(),
        };
        let weights = bench.checkpoint.join(WEIGHTS);
        let bytes = weights.metadata().with_context(|| weights.display().to_string())?.len();
        // Fills the page cache.
        io::copy(&mut File::open(&weights)?, &mut io::sink())?;
        let mut rows = Vec::new();
        for way in Way::ALL {
            eprintln!("{name}: {}", way.title());
            rows.push((way, bench.measure(way, if way.is_repeated() { rounds } else { 1 })?));
        }
        println!("{name}: a checkpoint of {:.1} MB\n\n{}", bytes as f64 / 1e6, text(bytes, &rows));
        missed.extend(judge(bytes, &rows).into_iter().map(|line| format!("{name}: {line}")));
    }
    ensure!(missed.is_empty(), "bounds missed:\n{}", missed.join("\n"));
    println!(
        "at least {SPEED_BOUND} times as fast as Optimum, at most 1/3 of its memory, files at most {SIZE_BOUND} times the checkpoint: kept"
    );
    Ok(())
}

/// Creates the checkpoint unless it exists.
pub fn make(workspace: &Workspace, python: &Path, shape: &str, folder: &Path) -> Result<()> {
    if folder.exists() {
        return Ok(());
    }
    let partial = folder.with_extension("partial");
    fs::create_dir_all(&partial)?;
    let script = workspace.root().join("xtask/interop/python/make_checkpoint.py");
    call(Command::new(python).arg(script).arg(shape).arg(&partial).env("HF_HUB_OFFLINE", "1"))?;
    Ok(fs::rename(&partial, folder)?)
}

impl Bench {
    pub fn measure(&self, way: Way, rounds: u32) -> Result<Row> {
        let (mut runs, mut written) = (Vec::new(), 0);
        let out = self.work.join("out");
        for _ in 0..rounds {
            let mut from = self.checkpoint.clone();
            if way == Way::InPlace {
                from = self.work.join("checkpoint");
                fs::create_dir(&from)?;
                for file in files(&self.checkpoint)? {
                    fs::copy(&file, from.join(file.file_name().unwrap_or_default()))?;
                }
            }
            let before = size(&from, &|_| true)?;
            rest()?;
            let outcome = measure(&mut self.command(way, &from, &out));
            written = match way {
                Way::InPlace => size(&from, &|_| true)?.saturating_sub(before),
                _ if out.exists() => size(&out, &|_| true)?,
                _ => 0,
            };
            if out.exists() {
                fs::remove_dir_all(&out)?;
            }
            if way == Way::InPlace {
                fs::remove_dir_all(&from)?;
            }
            match outcome {
                Ok(run) => runs.push(run),
                Err(error) => return Ok(Err(reason(&error.to_string()))),
            }
        }
        Ok(Ok((runs, written)))
    }

    pub fn command(&self, way: Way, from: &Path, out: &Path) -> Command {
        let optimum = |arguments: &[&str]| {
            let mut command = Command::new(&self.python);
            command.args(arguments).env("HF_HUB_OFFLINE", "1");
            command
        };
        let ours = |arguments: &[&str]| {
            let mut command = Command::new(&self.cognate);
            command.arg("export").args(arguments).arg(from);
            command
        };
        let mut command = match way {
            Way::Optimum => {
                let mut command =
                    optimum(&["-m", "optimum.commands.optimum_cli", "export", "onnx"]);
                command.args(["--task", self.task, "--model"]).arg(from);
                command
            }
            Way::OptimumUnchecked => {
                let mut command = optimum(&["-c", UNCHECKED, self.task]);
                command.arg(from);
                command
            }
            Way::Verified => ours(&[]),
            Way::Unverified => ours(&["--no-verify"]),
            Way::HuggingFace => ours(&["--no-verify", "--layout", "hf"]),
            Way::InPlace => return ours(&["--no-verify", "--in-place"]),
        };
        command.arg(out);
        command
    }
}

/// The line with a program's error.
pub fn reason(message: &str) -> String {
    let said = message.lines().find_map(|line| Some(line.split_once("error: ")?.1));
    said.unwrap_or_else(|| message.lines().next_back().unwrap_or_default()).to_owned()
}

pub fn text(checkpoint: u64, rows: &[(Way, Row)]) -> String {
    let header =
        ["", "s (median)", "peak RSS, MB", "of it anonymous", "files, MB", "of the checkpoint"];
    let row = |(way, row): &(Way, Row)| {
        let cells = match row {
            Ok((runs, written)) => {
                let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
                let Memory { anonymous, resident } = peak(runs);
                let share = format!("{:.3}", *written as f64 / checkpoint as f64);
                [
                    format!("{:.3}", seconds(runs).median),
                    megabytes(resident),
                    megabytes(anonymous),
                    megabytes(*written),
                    share,
                ]
            }
            Err(_) => ["-"; 5].map(str::to_owned),
        };
        std::iter::once(way.title().to_owned()).chain(cells).collect()
    };
    let reasons = rows
        .iter()
        .filter_map(|(way, row)| Some(format!("\n{}: {}\n", way.title(), row.as_ref().err()?)));
    table(&header, &rows.iter().map(row).collect::<Vec<_>>()) + &reasons.collect::<String>()
}

/// The missed bounds, or the error of an export.
pub fn judge(checkpoint: u64, rows: &[(Way, Row)]) -> Vec<String> {
    let find = |way: Way| {
        let row = rows.iter().find(|(other, _)| *other == way).map(|(_, row)| row.as_ref());
        row.unwrap_or(Err(&String::new())).map_err(|reason| format!("{}: {reason}", way.title()))
    };
    let (theirs, ours) = match (find(Way::OptimumUnchecked), find(Way::Unverified)) {
        (Ok((theirs, _)), Ok(ours)) => (theirs, ours),
        (Err(reason), _) | (_, Err(reason)) => return vec![reason],
    };
    let mut missed = Vec::new();
    let speed = seconds(theirs).median / seconds(&ours.0).median;
    if speed < SPEED_BOUND {
        missed.push(format!("{speed:.1} times as fast as Optimum, at least {SPEED_BOUND}"));
    }
    let memory = peak(&ours.0).resident as f64 / peak(theirs).resident as f64;
    // A missing peak, 0 / 0, misses the bound.
    if !(memory > 0.0 && memory <= MEMORY_BOUND) {
        missed.push(format!("{memory:.2} of Optimum's memory, at most {MEMORY_BOUND:.2}"));
    }
    let files = ours.1 as f64 / checkpoint as f64;
    if files > SIZE_BOUND {
        missed.push(format!("files of {files:.3} times the checkpoint, at most {SIZE_BOUND}"));
    }
    missed
}
