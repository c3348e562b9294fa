//! The measuring programs: whole calls of the decoder, updates of a training run, and reading of memory.
//!
//! Answers are lines of JSON on standard output. Models are loaded once and measured as often as asked, by options or by
//! requests on standard input, so that several programs can take turns.

pub mod decode;
pub mod read;
pub mod train;

use anyhow::Result;
use serde::Serialize;
use std::io::{self, BufWriter, Write};

/// Measure one thing; called by the comparisons
#[derive(clap::Subcommand)]
pub enum Measure {
    Decode(decode::Decode),
    Train(train::Train),
    Read(read::Read),
}

/// Runs the command.
pub fn run(measure: &Measure) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match measure {
        Measure::Decode(options) => decode::run(options, &mut out)?,
        Measure::Train(options) => train::run(options, &mut out)?,
        Measure::Read(options) => read::run(options, &mut out)?,
    }
    Ok(out.flush()?)
}

/// Writes a line that a waiting program reads at once.
pub fn print_line(out: &mut dyn Write, answer: &impl Serialize) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(answer)?)?;
    Ok(out.flush()?)
}
