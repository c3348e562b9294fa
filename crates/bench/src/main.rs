//! `cargo xtask bench`: the measurements behind the published figures, each beside a yardstick taken in the same run.

#![allow(clippy::print_stdout)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod checkpoint;
mod copy_task;
mod decode;
mod driver;
mod export;
mod first_token;
mod in_place;
mod machine;
mod measure;
mod peers;
mod process;
mod processors;
mod record;
mod statistics;
mod train;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use xtask::workspace::Workspace;

/// Measure what is published, each figure beside a yardstick of the same run
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", max_term_width = 110)]
enum Bench {
    Export(export::Options),
    Decode(decode::Options),
    Train(train::Options),
    CopyTask(copy_task::Options),
    #[command(subcommand, hide = true)]
    Measure(measure::Measure),
}

fn main() -> ExitCode {
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
        Bench::Train(options) => train::run(&Workspace::find()?, options),
        Bench::CopyTask(options) => copy_task::run(&Workspace::find()?, options),
        Bench::Measure(measure) => measure::run(measure),
    }
}
