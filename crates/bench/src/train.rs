//! `cargo xtask bench train`: tokens per second and memory of training, compared with PyTorch in
//! the same run.
//!
//! Cognate runs the loop of `cognate train`, which waits between requests; PyTorch's step follows
//! its documentation. Both update on the same batches in the shapes of the text, and run in turn,
//! several updates each, so that other load of the machine affects both. Each round uses other
//! batches.

pub mod report;

use fs_err as fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use self::report::{Block, Report, Row};
use super::decode::RECORD;
use super::driver::Driver;
use super::rows::{is_chosen, judge};
use super::{processors, record};
use xtask::onnxruntime::{self, Build};
use xtask::python;
use xtask::workspace::Workspace;

pub const REQUIREMENTS: &str = include_str!("../python/requirements.txt");

/// A trained model.
#[derive(Debug)]
pub struct Shape {
    pub name: &'static str,
    pub title: &'static str,
    /// Lines of `[model]`.
    pub model: &'static str,
}

pub const SHAPES: [Shape; 2] = [
    Shape {
        name: "tiny",
        title: "Transformer-tiny (4+4 layers, d_model 128, d_ff 256, 4 heads)",
        model: "d_model = 128\nheads = 4\nd_ff = 256\nencoder_layers = 4\ndecoder_layers = 4",
    },
    Shape {
        name: "small",
        title: "3+3 layers, d_model 256, d_ff 1024, 4 heads",
        model: "d_model = 256\nheads = 4\nd_ff = 1024\nencoder_layers = 3\ndecoder_layers = 3",
    },
];

/// A program that trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    PyTorch,
    PyTorchBf16,
    Cognate,
}

impl Way {
    /// Cognate directly follows its peer, so that both have the same load of the machine.
    pub const ALL: [Way; 3] = [Way::PyTorchBf16, Way::PyTorch, Way::Cognate];

    pub fn title(self) -> &'static str {
        match self {
            Way::PyTorch => "PyTorch f32",
            Way::PyTorchBf16 => "PyTorch bf16",
            Way::Cognate => "Cognate f32",
        }
    }
}

/// Measure tokens per second and memory of training, compared with PyTorch
///
/// Models with a vocabulary of 8,000 on Multi30k English-German, batches of at most 2,048 tokens a
/// side, dropout 0.1, label smoothing 0.1, Adam. Prints the median and the extremes of target
/// tokens per second, the ratio to PyTorch in f32, Cognate's time outside of the engine, and the
/// peaks of memory. The first run installs packages from PyPI into target/bench/decode (6 GB, most
/// of it PyTorch). Fails if Cognate is slower than PyTorch in f32, or takes more than 1.3 times its
/// memory.
#[derive(clap::Args)]
pub struct Options {
    /// Number of turns of each program
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Number of updates of a turn
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub updates: u32,
    /// Numbers of threads of each program, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2])]
    pub threads: Vec<usize>,
    /// Shapes to run, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = SHAPES.map(|shape| shape.name))]
    pub shape: Vec<String>,
    /// Parallel text, instead of Multi30k's
    #[arg(long, num_args = 2, value_names = ["SOURCE", "TARGET"])]
    pub data: Option<Vec<PathBuf>>,
    /// Run everything, and write the part of onnx/BENCHMARKS.md for this processor
    #[arg(long, conflicts_with_all = ["threads", "shape", "data"])]
    pub write: bool,
    /// Succeed even if a bound is missed
    #[arg(long)]
    pub allow_missed: bool,
}

/// The programs, and the files of one shape and number of threads.
pub struct Place<'a> {
    pub bench: &'a Path,
    pub library: &'a Path,
    pub python: &'a Path,
    pub script: &'a Path,
    /// Contains the files that Cognate writes for the others.
    pub folder: &'a Path,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    ensure!(!options.threads.contains(&0), "expected numbers from 1 on");
    let data = data(workspace, options)?;
    let bench = std::env::current_exe().context("the path of this program")?;
    let library = onnxruntime::bring(workspace, Build::Cpu)?;
    let environment = workspace.target("bench/decode/python");
    let python = python::environment(&environment, &REQUIREMENTS.lines().collect::<Vec<_>>())?;
    let script = workspace.root().join("crates/bench/python/train.py");
    let work = tempfile::tempdir_in(workspace.target("bench"))?;
    let mut report =
        Report { rounds: options.rounds, updates: options.updates, ..Report::default() };
    for shape in SHAPES.iter().filter(|shape| is_chosen(&options.shape, shape.name)) {
        for &threads in &options.threads {
            let folder = work.path().join(format!("{}-{threads}", shape.name));
            fs::create_dir_all(&folder)?;
            let tokenizer = workspace.root().join("testdata/multi30k-en-de");
            let text = settings(shape, threads, &data, &tokenizer);
            fs::write(folder.join("training.toml"), text)?;
            let place = Place {
                bench: &bench,
                library: &library,
                python: &python,
                script: &script,
                folder: &folder,
            };
            report.blocks.push(measure(&place, shape, threads, options)?);
        }
    }
    println!("\n{}", report.text());
    if options.write {
        record::put(&workspace.root().join("onnx").join(RECORD), &report.section())?;
        println!("written: onnx/{RECORD}");
    }
    judge(&report.missed(), options.allow_missed)
}

/// The files of the training text.
pub fn data(workspace: &Workspace, options: &Options) -> Result<[PathBuf; 2]> {
    if let Some(files) = &options.data {
        return Ok([0, 1].map(|side| {
            std::path::absolute(&files[side]).unwrap_or_else(|_| files[side].clone())
        }));
    }
    multi30k(workspace)
        .context("the Multi30k text is missing; set COGNATE_MULTI30K to a folder with train.en and train.de, or pass two files by --data")
}

/// English and German of Multi30k's training text, if it is available.
pub fn multi30k(workspace: &Workspace) -> Option<[PathBuf; 2]> {
    let named = std::env::var_os("COGNATE_MULTI30K").map(PathBuf::from);
    let beside = workspace.root().parent().map(|parent| parent.join("shared/data/multi30k"));
    let mut folders = named
        .into_iter()
        .chain(beside)
        .map(|folder| ["train.en", "train.de"].map(|name| folder.join(name)));
    folders.find(|files| files.iter().all(|file| file.is_file()))
}

pub fn settings(
    shape: &Shape,
    threads: usize,
    [source, target]: &[PathBuf; 2],
    tokenizer: &Path,
) -> String {
    format!(
        "threads = {threads}\n\
         [data]\ntrain = [{{ source = {source:?}, target = {target:?} }}]\nmax_tokens = 2048\n\
         [tokenizer]\nfrom = {tokenizer:?}\n\
         [model]\n{}\n\
         [optimiser]\nlearning_rate = 1e-3\n\
         [schedule]\nmax_updates = 1000000\n",
        shape.model
    )
}

/// Measures all programs with a number of threads, in turn.
fn measure(
    place: &Place<'_>,
    shape: &'static Shape,
    threads: usize,
    options: &Options,
) -> Result<Block> {
    let count = (options.rounds + 1) * options.updates;
    let ours = place.start(Way::Cognate, threads, count)?;
    let parameters = ours.greeting.parameters;
    let (mut ours, mut rows) = (Some(ours), Vec::new());
    for way in Way::ALL {
        let driver = match way {
            Way::Cognate => ours.take().context("Cognate is loaded once")?,
            Way::PyTorch | Way::PyTorchBf16 => place.start(way, threads, count)?,
        };
        let found = driver.greeting.parameters;
        ensure!(
            found == parameters,
            "{}: expected {parameters} parameters as in Cognate, found {found}",
            way.title()
        );
        rows.push((Row::new(way, &driver.greeting, 1), driver));
    }
    let request = json!({ "updates": options.updates });
    // In round 0 buffers grow.
    for round in 0..=options.rounds {
        let mut tokens = None;
        for (row, driver) in &mut rows {
            let answer = driver.ask(&request).with_context(|| row.way.title())?;
            let expected = *tokens.get_or_insert(answer.tokens);
            let tokens = answer.tokens;
            ensure!(
                tokens == expected,
                "{}: expected {expected} tokens in round {round}, found {tokens}",
                row.way.title()
            );
            row.add(round, 0, answer);
        }
        eprintln!("{}, {threads} threads: round {round} of {}", shape.name, options.rounds);
    }
    Ok(Block { shape, threads, parameters, rows: rows.into_iter().map(|(row, _)| row).collect() })
}

impl Place<'_> {
    /// Starts a program and waits until its model is loaded.
    fn start(&self, way: Way, threads: usize, count: u32) -> Result<Driver> {
        eprintln!("loading {}", way.title());
        let script = |precision: &str| {
            let mut command = processors::bound(self.python, threads);
            command.arg(self.script).arg(self.folder).args([&threads.to_string(), precision]);
            // Engines read the first variable when they are loaded; the second avoids files in the
            // source tree.
            command.env("OMP_NUM_THREADS", threads.to_string()).env("PYTHONDONTWRITEBYTECODE", "1");
            command
        };
        let command: Command = match way {
            Way::PyTorch => script("f32"),
            Way::PyTorchBf16 => script("bf16"),
            Way::Cognate => {
                let mut command = processors::bound(self.bench, threads);
                command
                    .args(["measure", "train"])
                    .arg(self.folder.join("training.toml"))
                    .args(["--engine", "ort", "--out"]);
                command
                    .arg(self.folder.join("out"))
                    .arg("--write")
                    .arg(self.folder)
                    .args(["--batches", &count.to_string()]);
                command.env("ORT_DYLIB_PATH", self.library);
                command
            }
        };
        Driver::start(command, &self.folder.join(format!("{way:?}.log"))).context(way.title())
    }
}
