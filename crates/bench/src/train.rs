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

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use self::report::{Block, Report, Row};
use super::decode::RECORD;
use super::driver::Driver;
use super::rows::{is_chosen, judge};
use super::{gpu, processors, record};
use cognate_runtime::{Device, multiplies_bf16};
use xtask::onnxruntime::{self, Build};
use xtask::workspace::Workspace;

pub const REQUIREMENTS: &str = include_str!("../python/requirements.txt");

/// A trained model.
#[derive(Debug)]
pub struct Shape {
    pub name: &'static str,
    pub title: &'static str,
    /// Lines of `[model]`.
    pub model: &'static str,
    /// Whether it is trained on a GPU, and only there.
    pub is_large: bool,
}

pub const SHAPES: [Shape; 4] = [
    Shape {
        name: "tiny",
        title: "Transformer-tiny (4+4 layers, d_model 128, d_ff 256, 4 heads)",
        model: "d_model = 128\nheads = 4\nd_ff = 256\nencoder_layers = 4\ndecoder_layers = 4",
        is_large: false,
    },
    Shape {
        name: "small",
        title: "3+3 layers, d_model 256, d_ff 1024, 4 heads",
        model: "d_model = 256\nheads = 4\nd_ff = 1024\nencoder_layers = 3\ndecoder_layers = 3",
        is_large: false,
    },
    Shape {
        name: "base",
        title: "The paper's base (6+6 layers, d_model 512, d_ff 2048, 8 heads)",
        model: "d_model = 512\nheads = 8\nd_ff = 2048\nencoder_layers = 6\ndecoder_layers = 6",
        is_large: true,
    },
    Shape {
        name: "big",
        title: "The paper's big (6+6 layers, d_model 1024, d_ff 4096, 16 heads)",
        model: "d_model = 1024\nheads = 16\nd_ff = 4096\nencoder_layers = 6\ndecoder_layers = 6",
        is_large: true,
    },
];

/// A program that trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    PyTorch,
    PyTorchBf16,
    /// In bf16, by `torch.compile`.
    PyTorchCompiled,
    Cognate,
    /// With products in bf16, if the processor multiplies it.
    CognateBf16,
    /// With f16 in the layers.
    CognateHalf,
}

impl Way {
    /// Cognate directly follows its peer, so that both have the same load of the machine.
    pub const ON_CPU: [Way; 4] = [Way::PyTorchBf16, Way::PyTorch, Way::Cognate, Way::CognateBf16];
    /// Those that run beside Cognate.
    pub const PEERS: [Way; 3] = [Way::PyTorch, Way::PyTorchCompiled, Way::PyTorchBf16];
    pub const ON_GPU: [Way; 5] =
        [Way::PyTorch, Way::PyTorchCompiled, Way::PyTorchBf16, Way::Cognate, Way::CognateHalf];

    pub fn title(self) -> &'static str {
        match self {
            Way::PyTorch => "PyTorch f32",
            Way::PyTorchBf16 => "PyTorch bf16",
            Way::PyTorchCompiled => "PyTorch bf16, compiled",
            Way::Cognate => "Cognate f32",
            Way::CognateBf16 => "Cognate bf16",
            Way::CognateHalf => "Cognate f16",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Way::PyTorch => "pytorch",
            Way::PyTorchBf16 => "pytorch-bf16",
            Way::PyTorchCompiled => "pytorch-compiled",
            Way::Cognate => "cognate",
            Way::CognateBf16 => "cognate-bf16",
            Way::CognateHalf => "cognate-f16",
        }
    }

    pub fn is_ours(self) -> bool {
        self.precision().is_some()
    }

    /// `optimiser.precision` of ours.
    fn precision(self) -> Option<&'static str> {
        match self {
            Way::Cognate => Some("f32"),
            Way::CognateBf16 => Some("bf16"),
            Way::CognateHalf => Some("f16"),
            Way::PyTorch | Way::PyTorchBf16 | Way::PyTorchCompiled => None,
        }
    }
}

/// Measure tokens per second and memory of training, compared with PyTorch
///
/// Models with a vocabulary of 8,000 on Multi30k English-German, batches of at most 2,048 tokens a
/// side (8,192 on a GPU), dropout 0.1, label smoothing 0.1, Adam. Prints the median and the extremes
/// of target tokens per second, the ratio to PyTorch in f32 (bf16 on a GPU), Cognate's time outside
/// of the engine, and the peaks of memory. The first run installs packages from PyPI into
/// target/bench/decode (6 GB, most of it PyTorch). Fails if Cognate, in bf16 if the processor
/// multiplies it, is less than 1.3 times as fast as PyTorch or takes more than 0.8 times its memory
/// (on a GPU 1.0 and 1.3 times).
#[derive(clap::Args)]
pub struct Options {
    /// Number of turns of each program
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Number of updates of a turn
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub updates: u32,
    /// Numbers of threads of each program on the CPU, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2])]
    pub threads: Vec<usize>,
    /// Device of the programs: cpu, or an NVIDIA GPU, such as cuda
    #[arg(long, default_value_t)]
    pub device: Device,
    /// With --device cuda: a Python with PyTorch and transformers, instead of installing them
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Programs to run beside Cognate, separated by commas [default: all, on a GPU
    /// without pytorch-compiled, which compiles for minutes]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = Way::PEERS.map(Way::name))]
    pub only: Vec<String>,
    /// Shapes to run, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = SHAPES.map(|shape| shape.name))]
    pub shape: Vec<String>,
    /// Parallel text, instead of Multi30k's
    #[arg(long, num_args = 2, value_names = ["SOURCE", "TARGET"])]
    pub data: Option<Vec<PathBuf>>,
    /// Run everything, and write the part of onnx/BENCHMARKS.md for this processor
    #[arg(long, conflicts_with_all = ["threads", "shape", "only"])]
    pub write: bool,
    /// Succeed even if a bound is missed
    #[arg(long)]
    pub allow_missed: bool,
}

/// The programs, and the files of one shape and number of threads.
pub struct Place<'a> {
    /// On which device, with how many threads.
    pub on: On,
    pub bench: &'a Path,
    pub library: &'a Path,
    pub python: &'a Path,
    pub script: &'a Path,
    /// Of the training, without `[optimiser]`.
    pub settings: &'a str,
    /// Contains the files that Cognate writes for the others.
    pub folder: &'a Path,
}

/// Where all programs of a table run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// The processor, with a number of threads.
    Threads(usize),
    Gpu(Device),
}

impl On {
    fn is_gpu(self) -> bool {
        matches!(self, On::Gpu(_))
    }

    /// The programs without a choice.
    fn ways(self, only: &[String]) -> Vec<Way> {
        let all = if self.is_gpu() { &Way::ON_GPU[..] } else { &Way::ON_CPU };
        let is_wanted = |way: &&Way| match **way {
            Way::Cognate | Way::CognateHalf => true,
            Way::CognateBf16 => multiplies_bf16(),
            Way::PyTorchCompiled => only.iter().any(|name| name == way.name()),
            _ => is_chosen(only, way.name()),
        };
        all.iter().filter(is_wanted).copied().collect()
    }
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    ensure!(!options.threads.contains(&0), "expected numbers from 1 on");
    let is_gpu = options.device.is_gpu();
    ensure!(
        is_gpu || options.python.is_none(),
        "--python: expected --device cuda with it, found cpu"
    );
    ensure!(
        is_gpu || !options.write || options.data.is_none(),
        "--write: expected Multi30k's text, found --data"
    );
    let compiled = Way::PyTorchCompiled.name();
    ensure!(
        is_gpu || options.only.iter().all(|name| name != compiled),
        "--only: expected {compiled} with --device cuda, found it on {}",
        options.device
    );
    let on_device = SHAPES.iter().filter(|shape| shape.is_large == is_gpu);
    let shapes: Vec<_> =
        on_device.clone().filter(|shape| is_chosen(&options.shape, shape.name)).collect();
    if shapes.is_empty() {
        let names: Vec<_> = on_device.map(|shape| shape.name).collect();
        bail!(
            "--shape: expected some of {} on {}, found {}",
            names.join(", "),
            options.device,
            options.shape.join(", ")
        );
    }
    let data = data(workspace, options)?;
    let bench = std::env::current_exe().context("the path of this program")?;
    let (machine, library) = if is_gpu {
        (Some(gpu::name()?), gpu::library(workspace)?)
    } else {
        (None, onnxruntime::bring(workspace, Build::Cpu)?)
    };
    let environment = workspace.target("bench/decode/python");
    let python = gpu::python(options.python.as_deref(), &environment, REQUIREMENTS)?;
    let places: Vec<On> = match options.device {
        Device::Cpu => options.threads.iter().copied().map(On::Threads).collect(),
        device => vec![On::Gpu(device)],
    };
    let script = workspace.root().join("crates/bench/python/train.py");
    let home = workspace.target("bench");
    fs::create_dir_all(&home)?;
    let work = tempfile::tempdir_in(home)?;
    let mut report = Report {
        gpu: machine,
        rounds: options.rounds,
        updates: options.updates,
        blocks: Vec::new(),
    };
    for shape in shapes {
        for &on in &places {
            let folder = work.path().join(format!("{}-{}", shape.name, report.blocks.len()));
            fs::create_dir_all(&folder)?;
            let tokenizer = workspace.root().join("testdata/multi30k-en-de");
            let place = Place {
                on,
                settings: &settings(shape, on, &data, &tokenizer),
                bench: &bench,
                library: &library,
                python: &python,
                script: &script,
                folder: &folder,
            };
            report.blocks.push(measure(&place, shape, options)?);
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
    on: On,
    [source, target]: &[PathBuf; 2],
    tokenizer: &Path,
) -> String {
    let (threads, max_tokens) = match on {
        On::Threads(threads) => (threads, 2048),
        On::Gpu(_) => (1, 8192),
    };
    format!(
        "threads = {threads}\n\
         [data]\ntrain = [{{ source = {source:?}, target = {target:?} }}]\nmax_tokens = {max_tokens}\n\
         [tokenizer]\nfrom = {tokenizer:?}\n\
         [model]\n{}\n\
         [schedule]\nmax_updates = 1000000\n",
        shape.model
    )
}

/// Measures all programs: on the processor in turn, on a GPU one after the other.
fn measure(place: &Place<'_>, shape: &'static Shape, options: &Options) -> Result<Block> {
    let ways = place.on.ways(&options.only);
    // Ours writes the files of the others, so it starts first.
    let first = ways.iter().position(|way| way.is_ours()).context("Cognate always runs")?;
    let order = (first..ways.len()).chain(0..first);
    let count = (options.rounds + 1) * options.updates;
    let (mut rows, mut drivers): (Vec<(usize, Row)>, Vec<Driver>) = (Vec::new(), Vec::new());
    let mut parameters = None;
    for index in order {
        let way = ways[index];
        let before = if place.on.is_gpu() { gpu::used()? } else { 0 };
        let driver = place.start(way, count)?;
        let found = driver.greeting.parameters;
        let expected = *parameters.get_or_insert(found);
        ensure!(
            found == expected,
            "{}: expected {expected} parameters as in Cognate, found {found}",
            way.title()
        );
        let mut row = Row::new(way, &driver.greeting, 1);
        drivers.push(driver);
        if place.on.is_gpu() {
            ask(shape, options, &mut [&mut row], &mut drivers)?;
            (row.base_bytes, row.peak_bytes) = (0, gpu::used()?.saturating_sub(before));
            eprintln!("{}: {} tokens/s", way.title(), row.speed_cell(0));
            drivers.clear();
        }
        rows.push((index, row));
    }
    if !place.on.is_gpu() {
        // In the order of the table.
        drivers.rotate_right(first);
        rows.sort_by_key(|(index, _)| *index);
        let mut rows: Vec<_> = rows.iter_mut().map(|(_, row)| row).collect();
        ask(shape, options, &mut rows, &mut drivers)?;
    }
    rows.sort_by_key(|(index, _)| *index);
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    Ok(Block { shape, on: place.on, parameters: parameters.unwrap_or_default(), rows })
}

/// All updates of some programs, in turn.
fn ask(
    shape: &Shape,
    options: &Options,
    rows: &mut [&mut Row],
    drivers: &mut [Driver],
) -> Result<()> {
    let request = json!({ "updates": options.updates });
    // In round 0 buffers grow.
    for round in 0..=options.rounds {
        let mut tokens = None;
        for (row, driver) in rows.iter_mut().zip(&mut *drivers) {
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
        eprintln!("{}: round {round} of {}", shape.name, options.rounds);
    }
    Ok(())
}

impl Place<'_> {
    /// Starts a program and waits until its model is loaded.
    fn start(&self, way: Way, count: u32) -> Result<Driver> {
        eprintln!("loading {}", way.title());
        let (device, threads) = match self.on {
            On::Threads(threads) => (Device::Cpu, threads),
            On::Gpu(device) => (device, 1),
        };
        let program = |path: &Path| match self.on {
            On::Threads(threads) => processors::bound(path, threads),
            On::Gpu(_) => Command::new(path),
        };
        let command = match way.precision() {
            Some(precision) => {
                let settings = self.folder.join(format!("{}.toml", way.name()));
                fs::write(
                    &settings,
                    format!(
                        "{}[optimiser]\nlearning_rate = 1e-3\nprecision = {precision:?}\n",
                        self.settings
                    ),
                )?;
                let mut command = program(self.bench);
                command.args(["measure", "train"]).arg(settings);
                command.args(["--engine", "ort", "--device", &device.to_string(), "--out"]);
                command.arg(self.folder.join(way.name())).arg("--write").arg(self.folder);
                command.args(["--batches", &count.to_string()]);
                command.env("ORT_DYLIB_PATH", self.library);
                command
            }
            None => {
                let mut command = program(self.python);
                command.arg(self.script).arg(self.folder);
                command.args([&threads.to_string(), way.name(), &device.to_string()]);
                // Engines read the first variable when they are loaded; the second avoids files in
                // the source tree.
                command.env("OMP_NUM_THREADS", threads.to_string());
                command.env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
        };
        let log = self.folder.join(format!("{}.log", way.name()));
        Driver::start(command, &log).context(way.title())
    }
}
