//! `cargo xtask bench`: the measurements of the published figures, each with a reference in the
//! same run.

#![allow(missing_docs, clippy::print_stdout)]

pub mod checkpoint;
pub mod copy_task;
pub mod decode;
pub mod driver;
pub mod export;
pub mod generate;
pub mod gpu;
pub mod in_place;
pub mod machine;
pub mod measure;
pub mod peers;
pub mod process;
pub mod processors;
pub mod record;
pub mod rows;
pub mod serve;
pub mod statistics;
pub mod text;
pub mod train;
pub mod transcribe;
pub mod wheel;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use xtask::workspace::Workspace;

/// Measure the published figures, each with a reference in the same run
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", max_term_width = 110)]
enum Bench {
    Export(export::Options),
    Decode(decode::Options),
    Generate(generate::Options),
    Train(train::Options),
    Text(text::Options),
    Transcribe(transcribe::Options),
    Serve(serve::Options),
    Wheel(wheel::Options),
    CopyTask(copy_task::Options),
    #[command(subcommand, hide = true)]
    Measure(measure::Measure),
}

/// Runs the command line.
pub fn main() -> ExitCode {
    match run(&Bench::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", xtask::explained(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Export(options) => export::run(&Workspace::find()?, options),
        Bench::Decode(options) => decode::run(&Workspace::find()?, options),
        Bench::Generate(options) => generate::run(&Workspace::find()?, options),
        Bench::Train(options) => train::run(&Workspace::find()?, options),
        Bench::Text(options) => text::run(&Workspace::find()?, options),
        Bench::Transcribe(options) => transcribe::run(&Workspace::find()?, options),
        Bench::Serve(options) => serve::run(&Workspace::find()?, options),
        Bench::Wheel(options) => wheel::run(&Workspace::find()?, options),
        Bench::CopyTask(options) => copy_task::run(&Workspace::find()?, options),
        Bench::Measure(measure) => measure::run(measure),
    }
}
