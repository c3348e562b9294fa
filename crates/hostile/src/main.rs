//! `cargo xtask hostile`: damaged files, passed to every command that reads files.
//!
//! Each case is a good model, made from the fixtures, with one change. Each command that reads it
//! runs in its own process, whose time and memory are measured. A command may reject a file with an
//! error that names it, or accept a harmless one. It must not panic, crash, take more than two
//! seconds, or use more memory than the limit.

#![allow(clippy::print_stdout)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod accounts;
mod bytes;
mod case;
mod child;
mod config;
mod decoders;
mod encoders;
mod good;
mod graphs;
mod images;
mod kills;
mod library;
mod protobuf;
mod speech;
mod text;
mod tokenizers;
mod training;
mod weights;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use clap::Parser;
use xtask::table::table;
use xtask::workspace::{Cognate, Workspace};

use self::case::{Case, Reader};
use self::child::{Ended, Outcome};
use self::good::Good;

/// Time limit of a command.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Memory limit of a command: a fixed part, and a multiple of the size of the files.
const MEMORY_BASE: u64 = 160 << 20;
const MEMORY_FACTOR: u64 = 32;

/// Pass damaged files to every command that reads files
///
/// Prints the outcome, time and peak memory of each case. Fails on a panic, a crash, an error that
/// does not name the file, more than two seconds of wall time, or more memory than 160 MiB and 32
/// times the size of the files. For Linux.
#[derive(Parser)]
#[command(name = "cargo xtask hostile", bin_name = "cargo xtask hostile", max_term_width = 110)]
struct Options {
    /// Run only cases whose names contain TEXT
    #[arg(value_name = "TEXT")]
    filter: Option<String>,
    #[command(flatten)]
    cognate: Cognate,
    /// Print the messages of the commands
    #[arg(long)]
    messages: bool,
    /// Instead, kill N exports, translations and training runs at random moments, and check the
    /// files that they leave
    #[arg(long, value_name = "N")]
    kills: Option<u32>,
}

/// A command and its outcome.
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
    let program = options.cognate.path(workspace)?;
    let folder = tempfile::Builder::new()
        .prefix("cognate-hostile-")
        .tempdir()
        .context("a temporary folder")?;
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
        decoders::cases,
        images::cases,
        speech::cases,
        graphs::cases,
        training::cases,
        text::cases,
        library::cases,
    ] {
        cases.extend(family(&models)?);
    }
    let n_cases = cases.len();
    cases.retain(|case| {
        options.filter.as_ref().is_none_or(|text| case.name.contains(text.as_str()))
    });
    let mut rows = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        if number % 100 == 0 {
            eprintln!("{number} of {} cases", cases.len());
        }
        let tried =
            try_case(case, &program, &models, &folder.path().join(format!("case-{number}")))?;
        for row in tried.iter().filter(|row| row.outcome.is_failure()) {
            eprintln!("{}, {}: {}", row.case, row.reader, row.outcome.name());
        }
        rows.extend(tried);
    }
    report(&rows, options.messages);
    println!("{} of {n_cases} cases, {} commands", cases.len(), rows.len());
    let failures = rows.iter().filter(|row| row.outcome.is_failure()).count();
    ensure!(failures == 0, "{failures} of {} commands failed", rows.len());
    Ok(())
}

/// Makes the files of a case and runs its readers.
fn try_case(
    case: &Case,
    program: &Path,
    models: &good::Models,
    scratch: &Path,
) -> Result<Vec<Row>> {
    let folder = scratch.join("files");
    let mut rows = Vec::new();
    for &reader in
        case.readers.iter().filter(|reader| models.has_onnxruntime || **reader != Reader::Ort)
    {
        // Some readers write into the folder.
        models.copy(case.good, &folder)?;
        (case.change)(&folder).with_context(|| case.name.clone())?;
        let files = good::size(&folder);
        let (name, command) = reader.command();
        let out = scratch.join("out");
        let arguments = words(
            command,
            &[("{dir}", &folder), ("{out}", &out), ("{good}", models.path(Good::Exported))],
        );
        let library = case.library.map(|name| folder.join(name));
        let ended = child::run(program, &arguments, scratch, library.as_deref())?;
        let outcome =
            child::judge(&ended, case.expect, TIME_LIMIT, MEMORY_BASE + MEMORY_FACTOR * files);
        rows.push(Row { case: case.name.clone(), reader: name, outcome, ended });
        fs_err::remove_dir_all(scratch)?;
    }
    Ok(rows)
}

/// The words of a command line, with names such as `{out}` replaced by paths.
fn words(command: &str, places: &[(&str, &Path)]) -> Vec<String> {
    let place = |word: &str| {
        places.iter().fold(word.to_owned(), |word, (name, path)| {
            word.replace(name, &path.display().to_string())
        })
    };
    command.split(' ').map(place).collect()
}

/// Prints the table, the failures, and the totals.
fn report(rows: &[Row], messages: bool) {
    let cells = |row: &Row| {
        let (seconds, megabytes) = (
            format!("{:.2}", row.ended.time.as_secs_f64()),
            format!("{:.0}", row.ended.memory as f64 / 1e6),
        );
        vec![
            row.case.clone(),
            row.reader.to_owned(),
            row.outcome.name().to_owned(),
            seconds,
            megabytes,
        ]
    };
    println!(
        "{}",
        table(
            &["case", "reader", "outcome", "s", "MB"],
            &rows.iter().map(cells).collect::<Vec<_>>()
        )
    );
    for row in rows.iter().filter(|row| messages || row.outcome.is_failure()) {
        println!(
            "{}, {}: {}\n  {}",
            row.case,
            row.reader,
            row.outcome.name(),
            row.ended.said.trim().replace('\n', "\n  ")
        );
    }
    let totals = Outcome::ALL.map(|(outcome, name)| {
        let of = || rows.iter().filter(move |row| row.outcome == outcome);
        let slowest = of().map(|row| row.ended.time).max().unwrap_or_default().as_secs_f64();
        let largest = of().map(|row| row.ended.memory).max().unwrap_or_default() as f64 / 1e6;
        vec![
            name.to_owned(),
            of().count().to_string(),
            format!("{slowest:.2}"),
            format!("{largest:.0}"),
        ]
    });
    println!("{}", table(&["outcome", "commands", "slowest, s", "largest, MB"], &totals));
}
