//! `cargo xtask bench train`: tokens per second of training, and its memory, beside PyTorch in the same run.
//!
//! Ours is `cognate train`'s own loop, stopped between requests; PyTorch's step is as its own pages advise. Both update on the same
//! batches, of the shapes that text gives them, and take turns, some updates each, so that what the machine does beside is shared out
//! among all. The batches of a round are the same for all, and others in every round.

pub mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use self::report::{Block, Report, Row};
use super::decode::RECORD;
use super::driver::Driver;
use super::{processors, record};
use xtask::onnxruntime::{self, Build};
use xtask::python;
use xtask::workspace::Workspace;

pub const REQUIREMENTS: &str = include_str!("../python/requirements.txt");

/// A model that is trained.
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
    /// Ours comes right after its peer, so that what the machine does beside meets both.
    pub const ALL: [Way; 3] = [Way::PyTorchBf16, Way::PyTorch, Way::Cognate];

    pub fn title(self) -> &'static str {
        match self {
            Way::PyTorch => "PyTorch f32",
            Way::PyTorchBf16 => "PyTorch bf16",
            Way::Cognate => "Cognate f32",
        }
    }
}

/// Tokens per second and memory of training, beside PyTorch
///
/// Models with a vocabulary of 8,000 on Multi30k English-German, batches of at most 2,048 tokens a side, dropout 0.1, label smoothing
/// 0.1, Adam. Prints the median and the extremes of target tokens per second, the ratio to PyTorch in f32, our time outside of the
/// engine, and the peaks of memory. The first run installs packages from PyPI under target/bench/decode (6 GB, most of it PyTorch). Fails
/// when ours is slower than PyTorch in f32, or takes more than 1.3 times its memory.
#[derive(clap::Args)]
pub struct Options {
    /// How often each program takes its turn
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Updates of a turn
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub updates: u32,
    /// Threads of each program, with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2])]
    pub threads: Vec<usize>,
    /// Only these shapes, with commas between
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = SHAPES.map(|shape| shape.name))]
    pub shape: Vec<String>,
    /// Parallel text in place of Multi30k's
    #[arg(long, num_args = 2, value_names = ["SOURCE", "TARGET"])]
    pub data: Option<Vec<PathBuf>>,
    /// Write the part of onnx/BENCHMARKS.md for this processor, of everything
    #[arg(long, conflicts_with_all = ["threads", "shape", "data"])]
    pub write: bool,
    /// Succeed also where a bound is missed
    #[arg(long)]
    pub allow_missed: bool,
}

/// Where programs and files lie.
pub struct Place<'a> {
    pub bench: &'a Path,
    pub library: &'a Path,
    pub python: &'a Path,
    pub script: &'a Path,
    /// Of this shape and number of threads; holds what ours writes for the others.
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
    let mut report = Report::new(options.rounds, options.updates);
    for shape in SHAPES.iter().filter(|shape| options.shape.is_empty() || options.shape.iter().any(|name| name == shape.name)) {
        for &threads in &options.threads {
            let folder = work.path().join(format!("{}-{threads}", shape.name));
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            let tokenizer = workspace.root().join("testdata/multi30k-en-de");
            let text = settings(shape, threads, &data, &tokenizer);
            fs::write(folder.join("training.toml"), text).with_context(|| folder.display().to_string())?;
            let place = Place { bench: &bench, library: &library, python: &python, script: &script, folder: &folder };
            report.add(measure(&place, shape, threads, options)?);
        }
    }
    println!("\n{}", report.text());
    if options.write {
        record::put(&workspace.root().join("onnx").join(RECORD), &report.section())?;
        println!("written: onnx/{RECORD}");
    }
    let missed = report.missed();
    if options.allow_missed && !missed.is_empty() {
        println!("bounds missed:\n{}", missed.join("\n"));
        return Ok(());
    }
    ensure!(missed.is_empty(), "bounds missed:\n{}", missed.join("\n"));
    Ok(())
}

/// The text to train on: two files.
pub fn data(workspace: &Workspace, options: &Options) -> Result<[PathBuf; 2]> {
    if let Some(files) = &options.data {
        return Ok([0, 1].map(|side| std::path::absolute(&files[side]).unwrap_or_else(|_| files[side].clone())));
    }
    let named = std::env::var_os("COGNATE_MULTI30K").map(PathBuf::from);
    let beside = workspace.root().parent().map(|parent| parent.join("shared/data/multi30k"));
    let folders = named.into_iter().chain(beside).map(|folder| ["train.en", "train.de"].map(|name| folder.join(name)));
    match folders.into_iter().find(|files| files.iter().all(|file| file.is_file())) {
        Some(files) => Ok(files),
        None => bail!(
            "the Multi30k text is not at hand; set COGNATE_MULTI30K to a folder with train.en and train.de, or name two files by --data"
        ),
    }
}

pub fn settings(shape: &Shape, threads: usize, [source, target]: &[PathBuf; 2], tokenizer: &Path) -> String {
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

/// All programs on so many threads, in turn.
pub fn measure(place: &Place<'_>, shape: &'static Shape, threads: usize, options: &Options) -> Result<Block> {
    let count = (options.rounds + 1) * options.updates;
    let ours = place.start(Way::Cognate, threads, count)?;
    let parameters = ours.parameters();
    let (mut ours, mut rows) = (Some(ours), Vec::new());
    for way in Way::ALL {
        let driver = match way {
            Way::Cognate => ours.take().context("ours is loaded once")?,
            Way::PyTorch | Way::PyTorchBf16 => place.start(way, threads, count)?,
        };
        ensure!(driver.parameters() == parameters, "{}: {} parameters, ours has {parameters}", way.title(), driver.parameters());
        rows.push((Row::new(way, &driver), driver));
    }
    let request = json!({ "updates": options.updates });
    // Round 0 warms up: buffers grow.
    for round in 0..=options.rounds {
        let mut tokens = None;
        for (row, driver) in &mut rows {
            let answer = driver.ask(&request).with_context(|| row.way.title())?;
            let expected = *tokens.get_or_insert(answer.tokens);
            ensure!(answer.tokens == expected, "{}: {} tokens in round {round}, others had {expected}", row.way.title(), answer.tokens);
            row.add(answer, round > 0);
        }
        eprintln!("{}, {threads} threads: round {round} of {}", shape.name, options.rounds);
    }
    Ok(Block { shape, threads, parameters, rows: rows.into_iter().map(|(row, _)| row).collect() })
}

impl Place<'_> {
    /// Starts a program and waits until its model is loaded.
    pub fn start(&self, way: Way, threads: usize, count: u32) -> Result<Driver> {
        eprintln!("loading {}", way.title());
        let script = |precision: &str| {
            let mut command = processors::bound(self.python, threads);
            command.arg(self.script).arg(self.folder).args([&threads.to_string(), precision]);
            // Before the engines read it. The scripts lie in the source tree, which is left as it is.
            command.env("OMP_NUM_THREADS", threads.to_string()).env("PYTHONDONTWRITEBYTECODE", "1");
            command
        };
        let command: Command = match way {
            Way::PyTorch => script("f32"),
            Way::PyTorchBf16 => script("bf16"),
            Way::Cognate => {
                let mut command = processors::bound(self.bench, threads);
                command.args(["measure", "train"]).arg(self.folder.join("training.toml")).args(["--engine", "ort", "--out"]);
                command.arg(self.folder.join("out")).arg("--write").arg(self.folder).args(["--batches", &count.to_string()]);
                command.env("ORT_DYLIB_PATH", self.library);
                command
            }
        };
        Driver::start(command, &self.folder.join(format!("{way:?}.log"))).context(way.title())
    }
}
