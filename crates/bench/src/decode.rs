//! `cargo xtask bench decode`: tokens per second of whole calls, from token ids to token ids,
//! compared with CTranslate2, Optimum and PyTorch in the same run.
//!
//! Each program loads its model once; then they run in turn, call by call, so that other load of
//! the machine affects all. No sentence ends before its limit: all programs generate the same
//! number of tokens. The drivers of the others are in `crates/bench/python`.

pub mod chart;
pub mod gpu;
pub mod limits;
pub mod report;
pub mod shape;
pub mod ways;

use fs_err as fs;

use anyhow::{Context, Result, bail, ensure};

use self::gpu::GPU_WAYS;
use self::limits::Limits;
use self::report::{Block, Report, Row};
use self::shape::{Column, SHAPES, Shape};
use self::ways::{Place, WAYS, Way};
use super::driver::{Answer, Driver};
use super::machine::Machine;
use super::rows::{is_chosen, judge};
use super::{peers, record};
use clap::builder::PossibleValuesParser;
use cognate_runtime::Device;
use std::path::PathBuf;
use xtask::python;
use xtask::workspace::{Cognate, Workspace};

/// The committed page, in the folder of the exported graphs.
pub const RECORD: &str = "BENCHMARKS.md";

/// The file of the record's chart for a processor.
pub fn chart_of(machine: &Machine) -> String {
    format!("benchmarks-{}.svg", machine.slug())
}

pub const REQUIREMENTS: &str = include_str!("../python/requirements.txt");

/// Measure tokens per second of decoding, compared with CTranslate2, Optimum and PyTorch
///
/// Models of the shapes of Marian-base and T5-small with random weights are created once, in
/// target/bench. 24 source tokens, exactly 32 new ones; of T5-small also long texts, by the
/// programs with a floor and their peers on one thread. Prints the median and the extremes of
/// tokens per second, the ratio to CTranslate2 in the same precision, the share of the machine's
/// limit, and the share of Cognate's time outside of the graphs. The first run installs packages
/// from PyPI into target/bench/decode (6 GB, most of it PyTorch). Fails if a row is slower than its
/// floor, also after --write, which marks it on the page.
#[derive(clap::Args)]
pub struct Options {
    /// Number of measurements of each call, in turn; a third of it for rows without a floor
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Numbers of sentences of a call, separated by commas [default: 1,8,32; on a GPU also 128,512]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub batch: Vec<usize>,
    /// Numbers of hypotheses of a sentence, separated by commas; 1 is greedy
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4])]
    pub beams: Vec<usize>,
    /// Numbers of threads of each program, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2])]
    pub threads: Vec<usize>,
    /// Programs to run, separated by commas; on a GPU pytorch-f16, ct2-f16, cognate-f16 and
    /// cognate-f32, and if named cognate-portable-f16
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = names())]
    pub only: Vec<String>,
    /// Device of the programs: cpu, or an NVIDIA GPU, such as cuda, in half precision
    #[arg(long, default_value_t)]
    pub device: Device,
    /// With --device cuda: a Python with PyTorch, transformers and CTranslate2, instead of
    /// installing them
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Shapes to run, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = SHAPES.map(|shape| shape.name))]
    pub shape: Vec<String>,
    /// Run everything, and write the part of onnx/BENCHMARKS.md for this processor and its chart
    #[arg(long, conflicts_with_all = ["batch", "beams", "threads", "only", "shape"])]
    pub write: bool,
    /// Succeed even if a floor is missed
    #[arg(long)]
    pub allow_missed: bool,
    #[command(flatten)]
    pub cognate: Cognate,
}

impl Options {
    fn batches(&self) -> Vec<usize> {
        match self.batch.as_slice() {
            [] if self.device.is_gpu() => vec![1, 8, 32, 128, 512],
            [] => vec![1, 8, 32],
            chosen => chosen.to_vec(),
        }
    }
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    ensure!(
        !options.batch.contains(&0) && !options.beams.contains(&0) && !options.threads.contains(&0),
        "expected numbers from 1 on"
    );
    let names = names_on(options.device);
    if let Some(other) = options.only.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("--only: expected some of {} on {}, found {other}", names.join(", "), options.device);
    }
    if options.device.is_gpu() {
        return gpu::run(workspace, options, options.device);
    }
    ensure!(options.python.is_none(), "--python: expected --device cuda with it, found cpu");
    let chosen =
        SHAPES.iter().filter(|shape| !shape.is_large && is_chosen(&options.shape, shape.name));
    let shapes: Vec<_> = chosen.filter(|shape| !calls(shape, options).is_empty()).collect();
    ensure!(
        !shapes.is_empty(),
        "expected a shape that runs on a processor, long texts with --batch {MOST_LONG} at most, found --shape {:?} --batch {:?}",
        options.shape,
        options.batch
    );
    let cognate = options.cognate.path(workspace)?;
    let bench = std::env::current_exe().context("the path of this program")?;
    let home = workspace.target("bench/decode");
    let python =
        python::environment(&home.join("python"), &REQUIREMENTS.lines().collect::<Vec<_>>())?;
    let scripts = workspace.root().join("crates/bench/python");
    let mut report = Report { rounds: options.rounds, ..Report::default() };
    for shape in shapes {
        let folder = home.join(shape.model);
        fs::create_dir_all(&folder)?;
        peers::make(workspace, &python, shape.model, &folder.join("checkpoint"))?;
        let place = Place {
            cognate: &cognate,
            bench: &bench,
            python: &python,
            scripts: &scripts,
            folder: &folder,
        };
        let mut ways = Vec::new();
        let is_wanted = |way: &&Way| {
            is_chosen(&options.only, way.name) && (!shape.is_long() || way.runs_long_texts())
        };
        for way in WAYS.iter().filter(is_wanted) {
            match place.prepare(way) {
                Ok(()) => ways.push(way),
                Err(error) if options.only.is_empty() => report.leave_out(way, &error),
                Err(error) => return Err(error.context(format!("--only {}", way.name))),
            }
        }
        let n_counts = if shape.is_long() { 1 } else { options.threads.len() };
        for &threads in &options.threads[..n_counts] {
            report.blocks.push(measure(&place, shape, &ways, threads, options)?);
        }
    }
    let text = report.text();
    println!("\n{text}");
    if options.write {
        let folder = workspace.root().join("onnx");
        let machine = Machine::here();
        let chart = chart_of(&machine);
        record::put(&folder.join(RECORD), &report.record(machine, &chart))?;
        fs::write(folder.join(&chart), chart::svg(&report.blocks))
            .with_context(|| chart.clone())?;
        println!("written: onnx/{RECORD}, onnx/{chart}");
    }
    judge(&report.missed(), options.allow_missed)
}

/// Maximum number of sentences of long texts in a call, because they take long.
const MOST_LONG: usize = 8;

fn calls(shape: &Shape, options: &Options) -> Vec<Column> {
    let batches = options.batches();
    let beams = options.beams.iter();
    let calls = beams.flat_map(|&beams| batches.iter().map(move |&batch| Column { batch, beams }));
    calls.filter(|call| !shape.is_long() || call.batch <= MOST_LONG).collect()
}

/// Measures all programs with a number of threads, in turn.
fn measure(
    place: &Place<'_>,
    shape: &'static Shape,
    ways: &[&'static Way],
    threads: usize,
    options: &Options,
) -> Result<Block> {
    let before = Limits::measure(place, shape, threads)?;
    let mut drivers = Vec::new();
    for way in ways {
        eprintln!("{}: loading {}", shape.on(threads), way.name);
        drivers.push(
            Driver::start(
                place.serve(way, threads),
                &place.folder.join(format!("{}.log", way.name)),
            )
            .context(way.name)?,
        );
    }
    let calls = calls(shape, options);
    let mut rows: Vec<Row> = ways
        .iter()
        .zip(&drivers)
        .map(|(way, driver)| Row::new(way, &driver.greeting, calls.len()))
        .collect();
    for (index, column) in calls.iter().enumerate() {
        let request = shape.request(*column);
        // In round 0 buffers grow and graphs are planned for new shapes.
        for round in 0..=options.rounds {
            for (row, driver) in rows.iter_mut().zip(&mut drivers) {
                if !row.way.is_compared() && round > options.rounds.div_ceil(3) {
                    continue;
                }
                let answer = driver.ask(&request).with_context(|| row.way.name)?;
                check(&answer, shape, column.batch).with_context(|| row.way.name)?;
                row.add(round, index, answer);
            }
        }
        eprintln!("{}: {} measured", shape.on(threads), column.title());
    }
    drop(drivers);
    let limits = before.or_higher(Limits::measure(place, shape, threads)?);
    Ok(Block { shape, threads, limits, columns: calls, rows })
}

/// Fails if a program did not generate all tokens.
fn check(answer: &Answer, shape: &Shape, batch: usize) -> Result<()> {
    let [n_source, n_new] = shape.lengths;
    let expected = batch * n_new;
    if answer.tokens != expected {
        bail!(
            "expected {expected} tokens from {batch} sources of {n_source}, found {}",
            answer.tokens
        );
    }
    Ok(())
}

/// The names, for the command line.
fn names() -> PossibleValuesParser {
    let on_gpu = GPU_WAYS.iter().map(|way| way.name);
    PossibleValuesParser::new(WAYS.iter().map(|way| way.name).chain(on_gpu))
}

/// The names of the programs that run on a device.
fn names_on(device: Device) -> Vec<&'static str> {
    match device.is_gpu() {
        true => GPU_WAYS.iter().map(|way| way.name).collect(),
        false => WAYS.iter().map(|way| way.name).collect(),
    }
}
