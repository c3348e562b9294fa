//! Runs programs in other crates, which may use the workspace's crates.

use std::ffi::OsString;

use anyhow::Result;

use crate::workspace::{Workspace, call};

/// The command line of a program.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// Arguments of the program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Builds a program in release mode and runs it.
pub fn run(
    workspace: &Workspace,
    package: &str,
    Arguments { arguments }: &Arguments,
) -> Result<()> {
    call(
        workspace
            .cargo()
            .args(["run", "--release", "--quiet", "--package", package, "--"])
            .args(arguments),
    )
}
