//! `cargo xtask`: the automation of this repository.
//!
//! It uses no crate of the workspace and runs `cognate` as a program, so it builds in seconds and
//! tests what users run.

// These commands print tables and paths.
#![allow(clippy::print_stdout)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod deny;
mod export;
mod fixtures;
mod fuzz;
mod interop;
mod layers;
mod mpi;
mod nightly;
mod packages;
mod programs;
mod skipped;
mod snapshots;
mod systems;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use xtask::workspace::Workspace;
use xtask::{explained, onnxruntime};

/// Automation of the Cognate repository.
///
/// `cargo xtask test` runs what CI runs: run it before every commit.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Test(test::Options),
    Onnxruntime(onnxruntime::Options),
    Export(export::Options),
    Fixtures(fixtures::Options),
    Interop(interop::Options),
    Bench(programs::Bench),
    Hostile(programs::Hostile),
    Fuzz(fuzz::Options),
    Miri(nightly::Miri),
    Sanitize(nightly::Sanitize),
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", explained(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    let workspace = Workspace::find()?;
    match command {
        Command::Test(options) => test::run(&workspace, options),
        Command::Onnxruntime(options) => onnxruntime::run(&workspace, options),
        Command::Export(options) => export::run(&workspace, options),
        Command::Fixtures(options) => fixtures::run(&workspace, options),
        Command::Interop(options) => interop::run(&workspace, options),
        Command::Bench(options) => programs::run(&workspace, "cognate-bench", &options.arguments),
        Command::Hostile(options) => programs::run(&workspace, "cognate-hostile", &options.arguments),
        Command::Fuzz(options) => fuzz::run(&workspace, options),
        Command::Miri(options) => nightly::miri(&workspace, options),
        Command::Sanitize(options) => nightly::sanitize(&workspace, options),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_explains_itself() {
        let silent: Vec<_> = Arguments::command()
            .get_subcommands()
            .filter(|command| command.get_long_about().or(command.get_about()).is_none())
            .map(|command| command.get_name().to_owned())
            .collect();
        assert!(silent.is_empty(), "no help text: {silent:?}");
    }
}
