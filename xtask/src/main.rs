//! `cargo xtask`.

use std::process::ExitCode;

use clap::Parser;

use xtask::workspace::Workspace;
use xtask::{explained, export, fixtures, fuzz, interop, nightly, onnxruntime, programs, test};

/// Automation of the Cognate repository.
///
/// `cargo xtask test` runs what CI runs: run it before every commit.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 110)]
enum Command {
    Test(test::Options),
    Onnxruntime(onnxruntime::Options),
    Export(export::Options),
    Fixtures(fixtures::Options),
    Interop(interop::Options),
    /// Measure decoding, training and export, compared with other programs
    ///
    /// Runs the program of `crates/bench`; `cargo xtask bench --help` lists its commands.
    Bench(programs::Arguments),
    /// Pass broken and hostile files to every command that reads files
    ///
    /// Runs the program of `crates/hostile`; `cargo xtask hostile --help` lists its options.
    Hostile(programs::Arguments),
    Fuzz(fuzz::Options),
    /// Run the code that converts bytes to numbers under Miri, which detects undefined behaviour
    ///
    /// Needs a nightly toolchain with miri:
    /// `rustup toolchain install nightly --component miri,rust-src`. Skipped with a message without
    /// one. Miri cannot map files; `cargo xtask sanitize` tests those.
    Miri,
    /// Run the tests of mapped files under the address sanitizer
    ///
    /// Needs a nightly toolchain and Linux on x86-64; skipped with a message without them.
    Sanitize,
}

fn main() -> ExitCode {
    match run(&Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", explained(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    let workspace = Workspace::find()?;
    match command {
        Command::Test(options) => test::run(&workspace, options),
        Command::Onnxruntime(options) => onnxruntime::run(&workspace, options),
        Command::Export(options) => export::run(&workspace, options),
        Command::Fixtures(options) => fixtures::run(&workspace, options),
        Command::Interop(options) => interop::run(&workspace, options),
        Command::Bench(options) => programs::run(&workspace, "cognate-bench", options),
        Command::Hostile(options) => programs::run(&workspace, "cognate-hostile", options),
        Command::Fuzz(options) => fuzz::run(&workspace, options),
        Command::Miri => nightly::miri(&workspace),
        Command::Sanitize => nightly::sanitize(&workspace),
    }
}

#[test]
fn the_command_line_is_consistent_and_explained() {
    let command = <Command as clap::CommandFactory>::command();
    let silent: Vec<_> = command
        .get_subcommands()
        .filter(|command| command.get_about().is_none())
        .map(clap::Command::get_name)
        .collect();
    assert!(silent.is_empty(), "no help text: {silent:?}");
    command.debug_assert();
}
