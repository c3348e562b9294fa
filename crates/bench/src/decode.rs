//! `cargo xtask bench decode`: tokens per second of whole calls, token ids in and token ids out, beside CTranslate2, Optimum and
//! PyTorch in the same run.
//!
//! Every program loads its model once and stays; then they take turns, call by call, so that what the machine does beside is shared
//! out among all. No sentence ends before its limit: every program generates exactly as many tokens. The programs that drive the
//! others lie in `crates/bench/python`.

pub mod chart;
pub mod limits;
pub mod report;
pub mod shape;
pub mod ways;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use self::limits::Limits;
use self::report::{Block, Report, Row};
use self::shape::{Column, NEW_TOKENS, SHAPES, SOURCE_TOKENS, Shape};
use self::ways::{Place, WAYS, Way};
use super::driver::{Answer, Driver};
use super::machine::Machine;
use super::{peers, record};
use xtask::python;
use xtask::workspace::Workspace;

/// The committed record, beside the exported graphs.
pub const RECORD: &str = "BENCHMARKS.md";

/// The file of the record's chart for a processor.
pub fn chart_of(machine: &Machine) -> String {
    format!("benchmarks-{}.svg", machine.slug())
}

pub const REQUIREMENTS: &str = include_str!("../python/requirements.txt");

/// Tokens per second, whole calls, beside CTranslate2, Optimum and PyTorch
///
/// Models of Marian-base and of T5-small shape with random weights are made once, under target/bench. 24 source tokens, exactly 32 new
/// ones; prints the median and the extremes of tokens per second, the ratio to CTranslate2 of the same precision, the share of what the
/// machine could do at most, and the share of our time outside of the graphs. The first run installs packages from PyPI under
/// target/bench/decode (6 GB, most of it PyTorch). Fails when one of ours is slower than its floor, also after --write, which marks it
/// on the page.
#[derive(clap::Args)]
pub struct Options {
    /// How often each call is measured, in turn; of programs that are compared with no floor a third of it
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Sentences of a call, with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 8, 32])]
    pub batch: Vec<usize>,
    /// Hypotheses of a sentence, with commas between; 1 is greedy
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4])]
    pub beams: Vec<usize>,
    /// Threads of each program, with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2])]
    pub threads: Vec<usize>,
    /// Only these programs, with commas between
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = ways::names())]
    pub only: Vec<String>,
    /// Only these shapes, with commas between
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = SHAPES.map(|shape| shape.name))]
    pub shape: Vec<String>,
    /// Write the part of onnx/BENCHMARKS.md for this processor and its chart, of everything
    #[arg(long, conflicts_with_all = ["batch", "beams", "threads", "only", "shape"])]
    pub write: bool,
    /// Succeed also where one of ours is slower than its floor
    #[arg(long)]
    pub allow_missed: bool,
    /// A `cognate` that is built already, in place of building it in release mode
    #[arg(long, value_name = "PROGRAM")]
    pub cognate: Option<PathBuf>,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    ensure!(!options.batch.contains(&0) && !options.beams.contains(&0) && !options.threads.contains(&0), "expected numbers from 1 on");
    let cognate = match &options.cognate {
        Some(program) => program.clone(),
        None => workspace.build_cognate()?,
    };
    let bench = std::env::current_exe().context("the path of this program")?;
    let home = workspace.target("bench/decode");
    let python = python::environment(&home.join("python"), &REQUIREMENTS.lines().collect::<Vec<_>>())?;
    let scripts = workspace.root().join("crates/bench/python");
    let mut report = Report::new(options.rounds);
    let shapes = SHAPES.iter().filter(|shape| options.shape.is_empty() || options.shape.iter().any(|name| name == shape.name));
    for shape in shapes {
        let folder = home.join(shape.name);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        peers::make(workspace, &python, shape.name, &folder.join("checkpoint"))?;
        let place = Place { cognate: &cognate, bench: &bench, python: &python, scripts: &scripts, folder: &folder };
        let mut ways = Vec::new();
        for way in wanted(&options.only) {
            match place.prepare(way) {
                Ok(()) => ways.push(way),
                Err(error) if options.only.is_empty() => report.leave_out(way, &error),
                Err(error) => return Err(error.context(format!("--only {}", way.name))),
            }
        }
        for &threads in &options.threads {
            report.add(measure(&place, shape, &ways, threads, options)?);
        }
    }
    let text = report.text();
    println!("\n{text}");
    if options.write {
        let folder = workspace.root().join("onnx");
        let machine = Machine::here();
        let chart = chart_of(&machine);
        record::put(&folder.join(RECORD), &report.record(machine, &chart))?;
        write(&folder.join(&chart), &chart::svg(report.blocks()))?;
        println!("written: onnx/{RECORD}, onnx/{chart}");
    }
    let missed = report.missed();
    if options.allow_missed && !missed.is_empty() {
        println!("not kept:\n{}", missed.join("\n"));
        return Ok(());
    }
    ensure!(missed.is_empty(), "not kept:\n{}", missed.join("\n"));
    Ok(())
}

pub fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

pub fn wanted(only: &[String]) -> impl Iterator<Item = &'static Way> {
    WAYS.iter().filter(move |way| only.is_empty() || only.iter().any(|name| name == way.name))
}

/// All programs on so many threads, in turn.
pub fn measure(place: &Place<'_>, shape: &'static Shape, ways: &[&'static Way], threads: usize, options: &Options) -> Result<Block> {
    let before = Limits::measure(place, shape, threads)?;
    let mut drivers = Vec::new();
    for way in ways {
        eprintln!("{}: loading {}", shape.on(threads), way.name);
        drivers.push(Driver::start(place.serve(way, threads), &place.folder.join(format!("{}.log", way.name))).context(way.name)?);
    }
    let calls = options.beams.iter().flat_map(|&beams| options.batch.iter().map(move |&batch| Column { batch, beams }));
    let calls: Vec<Column> = calls.collect();
    let mut rows: Vec<Row> = ways.iter().zip(&drivers).map(|(way, driver)| Row::new(way, driver.engine(), calls.len())).collect();
    for (index, column) in calls.iter().enumerate() {
        let request = json!({ "sources": shape.sources(column.batch), "beams": column.beams, "new_tokens": NEW_TOKENS });
        // Round 0 warms up: buffers grow, and graphs are planned for new shapes.
        for round in 0..=options.rounds {
            for (row, driver) in rows.iter_mut().zip(&mut drivers) {
                if !row.way.is_compared() && round > options.rounds.div_ceil(3) {
                    continue;
                }
                let answer = driver.ask(&request).with_context(|| row.way.name)?;
                check(&answer, column.batch).with_context(|| row.way.name)?;
                if round > 0 {
                    row.add(index, answer);
                }
            }
        }
        eprintln!("{}: {} measured", shape.on(threads), column.title());
    }
    drop(drivers);
    let limits = before.or_higher(Limits::measure(place, shape, threads)?);
    Ok(Block { shape, threads, limits, columns: calls, rows })
}

/// Every program does the same work.
pub fn check(answer: &Answer, batch: usize) -> Result<()> {
    let expected = batch * NEW_TOKENS;
    if answer.tokens != expected {
        bail!("{} tokens were generated from {batch} sources of {SOURCE_TOKENS}, expected {expected}", answer.tokens);
    }
    Ok(())
}
