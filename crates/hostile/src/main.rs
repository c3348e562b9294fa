//! `cargo xtask hostile`: files that are broken on purpose, given to everything that reads files.
//!
//! Each case is a good model, made of the fixtures, of which one thing is changed; each command that reads it runs in a process
//! of its own, whose time and memory are measured. A command may refuse a file, by an error that names it, or accept what does
//! no harm. It may not panic, crash, take more than two seconds, or take more memory than the promise.

#![allow(clippy::print_stdout)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod accounts;
mod bytes;
mod child;
mod config;
mod encoders;
mod good;
mod graphs;
mod kills;
mod library;
mod protobuf;
mod text;
mod tokenizers;
mod training;
mod weights;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use clap::Parser;
use xtask::table::table;
use xtask::workspace::Workspace;

use self::child::{Ended, Outcome};
use self::good::Good;

/// Time that a command may take with a hostile file.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Memory that a command may take with a hostile file: so much, and so many times the bytes of the files.
const MEMORY_BASE: u64 = 160 << 20;
const MEMORY_FACTOR: u64 = 32;

/// Give broken and hostile files to everything that reads files
///
/// Prints what became of each case, with time and peak memory, and fails on a panic, a crash, an error that does not name the
/// file, more than two seconds by the clock, or more memory than 160 MiB and 32 times the size of the files. For Linux.
#[derive(Parser)]
#[command(name = "cargo xtask hostile", bin_name = "cargo xtask hostile", max_term_width = 110)]
struct Options {
    /// Only cases with this text in their names
    #[arg(value_name = "TEXT")]
    filter: Option<String>,
    /// Test this `cognate` instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Print what commands say, too
    #[arg(long)]
    messages: bool,
    /// Instead of this, kill so many exports, translations and training runs at random moments, and look at what they left
    #[arg(long, value_name = "N")]
    kills: Option<u32>,
}

/// A command that reads files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Show,
    Listing,
    Export,
    InPlace,
    Verify,
    Reference,
    Tract,
    Ort,
    Input,
    Evaluate,
    Embed,
    Classify,
    Train,
    Resume,
}

impl Reader {
    /// The name in the table, and the arguments; `{dir}` is the changed folder, `{good}` an unchanged model.
    fn command(self) -> (&'static str, &'static str) {
        match self {
            Reader::Show => ("show", "show {dir}"),
            Reader::Listing => ("show FILE", "show {dir}/encoder.onnx"),
            Reader::Export => ("export", "export {dir} {out} --no-verify"),
            Reader::InPlace => ("export --in-place", "export {dir} --in-place --force"),
            Reader::Verify => ("verify", "verify {dir}"),
            Reader::Reference => ("translate, reference", "translate --max-new-tokens 4 --engine reference --model {dir} Dogs."),
            Reader::Tract => ("translate, tract", "translate --max-new-tokens 4 --engine tract --model {dir} Dogs."),
            Reader::Ort => ("translate, ort", "translate --max-new-tokens 4 --engine ort --model {dir} Dogs."),
            Reader::Input => ("translate --input", "translate --max-new-tokens 4 --engine tract --model {good} --input {dir}/text"),
            Reader::Evaluate => ("evaluate", "evaluate --reference {dir}/text {dir}/text"),
            Reader::Embed => ("embed", "embed --engine tract --model {dir} Dogs."),
            Reader::Classify => ("classify", "classify --engine tract --model {dir} Dogs."),
            Reader::Train => ("train", "train {dir}/run.toml --engine tract --out {out}"),
            Reader::Resume => ("train --resume", "train --resume --engine tract --out {dir}"),
        }
    }
}

/// What a case should come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// An error that has this text in it: the name of the file, or of a part of it.
    Refused(&'static str),
    /// That, or nothing: the change may be harmless.
    Either(&'static str),
}

/// What is done to a folder, or to a file in it.
type Change = Box<dyn Fn(&Path) -> Result<()>>;

/// A change of a good model, and who reads it.
struct Case {
    name: String,
    good: Good,
    change: Change,
    readers: &'static [Reader],
    expect: Expect,
    /// The library that ONNX Runtime is to be loaded from, in the folder.
    library: Option<&'static str>,
}

impl Case {
    fn new(
        name: impl Into<String>,
        good: Good,
        readers: &'static [Reader],
        expect: Expect,
        change: impl Fn(&Path) -> Result<()> + 'static,
    ) -> Self {
        Self { name: name.into(), good, change: Box::new(change), readers, expect, library: None }
    }
}

/// A command that ended, or did not.
struct Row {
    case: String,
    reader: &'static str,
    outcome: Outcome,
    ended: Ended,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", xtask::explained(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let workspace = &Workspace::find()?;
    ensure!(cfg!(target_os = "linux"), "time and memory of processes are measured on Linux only");
    let program = match &options.program {
        Some(program) => program.canonicalize().with_context(|| program.display().to_string())?,
        None => workspace.build_cognate()?,
    };
    let folder = tempfile::Builder::new().prefix("cognate-hostile-").tempdir().context("a temporary folder")?;
    let models = good::Models::make(workspace, &program, &folder.path().join("good"))?;
    if let Some(count) = options.kills {
        return kills::run(&program, &models, folder.path(), count);
    }
    let mut cases = Vec::new();
    for family in [
        weights::cases,
        config::cases,
        accounts::cases,
        tokenizers::cases,
        encoders::cases,
        graphs::cases,
        training::cases,
        text::cases,
        library::cases,
    ] {
        cases.extend(family(&models)?);
    }
    let n_cases = cases.len();
    cases.retain(|case| options.filter.as_ref().is_none_or(|text| case.name.contains(text.as_str())));
    let mut rows = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        if number % 100 == 0 {
            eprintln!("{number} of {} cases", cases.len());
        }
        let tried = try_case(case, &program, &models, &folder.path().join(format!("case-{number}")))?;
        for row in tried.iter().filter(|row| row.outcome.is_failure()) {
            eprintln!("{}, {}: {}", row.case, row.reader, row.outcome.name());
        }
        rows.extend(tried);
    }
    report(&rows, options.messages);
    println!("{} of {n_cases} cases, {} commands", cases.len(), rows.len());
    let failures = rows.iter().filter(|row| row.outcome.is_failure()).count();
    ensure!(failures == 0, "{failures} of {} commands did what no file may make them do", rows.len());
    Ok(())
}

/// Makes the files of a case and gives them to its readers.
fn try_case(case: &Case, program: &Path, models: &good::Models, scratch: &Path) -> Result<Vec<Row>> {
    let folder = scratch.join("files");
    let mut rows = Vec::new();
    for &reader in case.readers.iter().filter(|reader| models.has_onnxruntime || **reader != Reader::Ort) {
        // Each reader has its own: some write into it.
        models.copy(case.good, &folder)?;
        (case.change)(&folder).with_context(|| case.name.clone())?;
        let files = good::size(&folder);
        let (name, command) = reader.command();
        let out = scratch.join("out");
        let arguments = words(command, &[("{dir}", &folder), ("{out}", &out), ("{good}", models.path(Good::Exported))]);
        let library = case.library.map(|name| folder.join(name));
        let ended = child::run(program, &arguments, scratch, library.as_deref())?;
        let outcome = child::judge(&ended, case.expect, TIME_LIMIT, MEMORY_BASE + MEMORY_FACTOR * files);
        rows.push(Row { case: case.name.clone(), reader: name, outcome, ended });
        std::fs::remove_dir_all(scratch).with_context(|| scratch.display().to_string())?;
    }
    Ok(rows)
}

/// The words of a command line, with paths in place of names.
fn words(command: &str, places: &[(&str, &Path)]) -> Vec<String> {
    let place = |word: &str| places.iter().fold(word.to_owned(), |word, (name, path)| word.replace(name, &path.display().to_string()));
    command.split(' ').map(place).collect()
}

/// Prints the table, the failures, and the totals.
fn report(rows: &[Row], messages: bool) {
    let cells = |row: &Row| {
        let (seconds, megabytes) = (format!("{:.2}", row.ended.time.as_secs_f64()), format!("{:.0}", row.ended.memory as f64 / 1e6));
        vec![row.case.clone(), row.reader.to_owned(), row.outcome.name().to_owned(), seconds, megabytes]
    };
    println!("{}", table(&["case", "reader", "outcome", "s", "MB"], &rows.iter().map(cells).collect::<Vec<_>>()));
    for row in rows.iter().filter(|row| messages || row.outcome.is_failure()) {
        println!("{}, {}: {}\n  {}", row.case, row.reader, row.outcome.name(), row.ended.said.trim().replace('\n', "\n  "));
    }
    let totals = Outcome::ALL.map(|outcome| {
        let of = || rows.iter().filter(move |row| row.outcome == outcome);
        let slowest = of().map(|row| row.ended.time).max().unwrap_or_default().as_secs_f64();
        let largest = of().map(|row| row.ended.memory).max().unwrap_or_default() as f64 / 1e6;
        vec![outcome.name().to_owned(), of().count().to_string(), format!("{slowest:.2}"), format!("{largest:.0}")]
    });
    println!("{}", table(&["outcome", "commands", "slowest, s", "largest, MB"], &totals));
}
