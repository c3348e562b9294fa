//! `cargo xtask bench`: the measurements behind the README's figures, each beside a yardstick taken in the same run.

mod checkpoint;
mod copy_task;
mod decode;
mod driver;
mod export;
mod first_token;
mod in_place;
mod machine;
mod peers;
mod process;
mod processors;
mod record;
mod statistics;
mod train;

use anyhow::Result;

pub(crate) use decode::{RECORD, is_chart};

use crate::workspace::Workspace;

/// Measure what the README claims, each figure beside a yardstick of the same run
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    Export(export::Options),
    Decode(decode::Options),
    Train(train::Options),
    CopyTask(copy_task::Options),
}

/// Runs the command.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    match &options.bench {
        Bench::Export(options) => export::run(workspace, options),
        Bench::Decode(options) => decode::run(workspace, options),
        Bench::Train(options) => train::run(workspace, options),
        Bench::CopyTask(options) => copy_task::run(workspace, options),
    }
}
