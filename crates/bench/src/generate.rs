//! `cargo xtask bench generate`: `generate.onnx`, which decodes a batch in one call, compared with
//! the loop of `cognate translate` on the same engine and with Optimum's.
//!
//! Programs take turns on real sentences, from token ids to token ids. Ratios are of processor
//! time, which other programs on the machine hardly change: the median of the rounds' ratios.

pub mod report;

use fs_err as fs;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use self::report::{Cell, Report};
use super::decode::shape::Column;
use super::decode::ways::{Place, Program, Way, Weights};
use super::decode::{RECORD, REQUIREMENTS};
use super::driver::Driver;
use super::measure::generate::Answer;
use super::rows::{is_chosen, judge};
use super::train::multi30k;
use super::{processors, record};
use cognate_text::Tokenizer;
use xtask::onnxruntime::{self, Build};
use xtask::python;
use xtask::workspace::{Cognate, Workspace};

/// Measure generate.onnx, compared with the loop of `cognate translate` and with Optimum
///
/// The bundled model decodes sentences of Multi30k's test text (without that text, of the bundled
/// parallel text) on one thread, up to their end tokens. Prints milliseconds a sentence and ratios
/// of time on processors. The first run installs packages from PyPI into target/bench/decode (6 GB,
/// most of it PyTorch). Fails if a ratio misses its bound.
#[derive(clap::Args)]
pub struct Options {
    /// Number of measurements of each cell, in turn
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Number of sentences of a measurement
    #[arg(long, value_name = "N", default_value_t = 96, value_parser = clap::value_parser!(u32).range(1..))]
    pub sentences: u32,
    /// Numbers of sentences of a call, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 8, 32])]
    pub batch: Vec<usize>,
    /// Numbers of hypotheses of a sentence, separated by commas; 1 is greedy
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4])]
    pub beams: Vec<usize>,
    /// Programs to run, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = WAYS.map(|way| way.name))]
    pub only: Vec<String>,
    /// Write the part of onnx/BENCHMARKS.md for this processor
    #[arg(long, conflicts_with_all = ["sentences", "batch", "beams", "only"])]
    pub write: bool,
    /// Succeed even if a bound is missed
    #[arg(long)]
    pub allow_missed: bool,
    #[command(flatten)]
    pub cognate: Cognate,
}

const fn ours(name: &'static str, title: &'static str, export: &'static [&'static str]) -> Way {
    let program = Program::Ours { export, engine: "ort", flag: None };
    Way { name, title, weights: Weights::F32, program, peer: None, floors: None, long: None }
}

/// The programs: the measured one, the loop around the same step, and Optimum.
pub const WAYS: [Way; 3] = [
    ours("generate", "generate.onnx", &["--layout", "generate"]),
    ours("loop", "loop outside of the graph", &[]),
    Way {
        program: Program::Theirs { kind: "optimum", is_converted: true },
        ..ours("optimum", "Optimum", &[])
    },
];

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    ensure!(
        !options.batch.contains(&0) && !options.beams.contains(&0),
        "expected numbers from 1 on"
    );
    let cognate = options.cognate.path(workspace)?;
    let bench = std::env::current_exe().context("the path of this program")?;
    let ways: Vec<&Way> = WAYS.iter().filter(|way| is_chosen(&options.only, way.name)).collect();
    let python = match ways.iter().any(|way| matches!(way.program, Program::Theirs { .. })) {
        true => python::environment(
            &workspace.target("bench/decode/python"),
            &REQUIREMENTS.lines().collect::<Vec<_>>(),
        )?,
        false => Default::default(),
    };
    let library = onnxruntime::bring(workspace, Build::Cpu)?;
    let model = workspace.root().join("testdata/multi30k-en-de");
    let folder = workspace.target("bench/generate");
    fs::create_dir_all(&folder)?;
    let scripts = workspace.root().join("crates/bench/python");
    let place = Place {
        cognate: &cognate,
        bench: &bench,
        python: &python,
        scripts: &scripts,
        folder: &folder,
    };
    copy_checkpoint(&model, &place.checkpoint())?;
    let mut programs = Vec::new();
    for way in &ways {
        place.prepare(way).context(way.name)?;
        let mut command = match way.program {
            Program::Theirs { .. } => place.serve(way, 1),
            Program::Ours { engine, .. } => {
                let mut command = processors::bound(&bench, 1);
                command
                    .args(["measure", "generate", "--engine", engine, "--model"])
                    .arg(folder.join(way.name));
                command
            }
        };
        command.env("ORT_DYLIB_PATH", &library);
        programs.push(
            Driver::start(command, &folder.join(format!("{}.log", way.name))).context(way.name)?,
        );
    }
    let sources = sources(workspace, options.sentences as usize)?;
    let engines = programs.iter().map(|program| program.greeting.engine.clone()).collect();
    let mut report = Report {
        rounds: options.rounds,
        sentences: sources.len(),
        ways: ways.clone(),
        engines,
        cells: Vec::new(),
    };
    for &beams in &options.beams {
        for &batch in &options.batch {
            let mut cell = Cell::new(Column { batch, beams }, ways.len());
            // Round 0 warms up.
            for round in 0..=options.rounds {
                for (index, (way, program)) in ways.iter().zip(&mut programs).enumerate() {
                    let answer: Answer = program
                        .request(&json!({ "sources": sources, "beams": beams, "batch": batch }))
                        .context(way.name)?;
                    cell.add(round, index, answer);
                }
            }
            eprintln!("{}: measured", cell.column.title());
            report.cells.push(cell);
        }
    }
    println!("\n{}", report.text());
    if options.write {
        record::put(&workspace.root().join("onnx").join(RECORD), &report.section())?;
        println!("written: onnx/{RECORD}");
    }
    judge(&report.missed(), options.allow_missed)
}

/// Optimum converts a folder without the bundled model's other files.
fn copy_checkpoint(model: &std::path::Path, folder: &std::path::Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for name in [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        fs::copy(model.join(name), folder.join(name))?;
    }
    Ok(())
}

/// Token ids of the first sentences of the text.
fn sources(workspace: &Workspace, count: usize) -> Result<Vec<Vec<i64>>> {
    let test = multi30k(workspace).map(|[train, _]| train.with_file_name("test_2016_flickr.en"));
    let path = test
        .filter(|path| path.is_file())
        .unwrap_or_else(|| workspace.root().join("testdata/parallel/train.en"));
    let tokenizer =
        Tokenizer::from_file(workspace.root().join("testdata/multi30k-en-de/tokenizer.json"))?;
    let text = fs::read_to_string(&path)?;
    text.lines()
        .take(count)
        .map(|line| tokenizer.encode(line).with_context(|| format!("{}: {line}", path.display())))
        .collect()
}
