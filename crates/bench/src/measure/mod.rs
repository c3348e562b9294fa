//! The measuring programs: whole calls of the decoder, real sentences, text, audio, updates of a
//! training run, and reading memory.
//!
//! Answers are lines of JSON on standard output. Models are loaded once and measured repeatedly, by
//! options or by requests on standard input, so that several programs can run in turn.

pub mod decode;
pub mod generate;
pub mod read;
pub mod shares;
pub mod text;
pub mod train;
pub mod transcribe;

use anyhow::Result;
use cognate_folder::ModelSource;
use cognate_pipeline::{DecodingOptions, LoadOptions, Translator, TranslatorOptions};
use cognate_runtime::Engine;
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Measure one program; called by the comparisons
#[derive(clap::Subcommand)]
pub enum Measure {
    Decode(decode::Decode),
    Generate(generate::Generate),
    Train(train::Train),
    Text(text::Text),
    Shares(shares::Shares),
    Transcribe(transcribe::Transcribe),
    Read(read::Read),
}

/// Runs the command.
pub fn run(measure: &Measure) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match measure {
        Measure::Decode(options) => decode::run(options, &mut out)?,
        Measure::Generate(options) => generate::run(options, &mut out)?,
        Measure::Train(options) => train::run(options, &mut out)?,
        Measure::Text(options) => text::run(options, &mut out)?,
        Measure::Shares(options) => shares::run(options, &mut out)?,
        Measure::Transcribe(options) => transcribe::run(options, &mut out)?,
        Measure::Read(options) => read::run(options, &mut out)?,
    }
    Ok(out.flush()?)
}

/// Writes a line and flushes it for a waiting program.
pub fn print_line(out: &mut dyn Write, answer: &impl Serialize) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(answer)?)?;
    Ok(out.flush()?)
}

/// A translator on one thread.
#[derive(clap::Args)]
pub struct Single {
    /// Folder of an export
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Inference engine: auto, tract or ort
    #[arg(long, default_value = "auto")]
    pub engine: Engine,
    /// Number of hypotheses of a sentence; 1 is greedy
    #[arg(long, value_name = "N", default_value = "1")]
    pub beams: NonZeroUsize,
}

impl Single {
    fn open(&self, shortlist: Option<PathBuf>) -> Result<Translator> {
        let one = Some(NonZeroUsize::MIN);
        let load = LoadOptions {
            engine: self.engine,
            workers: one,
            threads: one,
            huge_pages: true,
            shortlist,
            ..LoadOptions::default()
        };
        let decoding = DecodingOptions { beams: Some(self.beams), ..DecodingOptions::default() };
        let options = TranslatorOptions { load, decoding, ..TranslatorOptions::default() };
        Ok(Translator::load(ModelSource::find(&self.model)?, &options)?)
    }
}
