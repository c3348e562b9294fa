//! Commands that run programs in other crates, which may use the workspace's crates.

use std::ffi::OsString;

use anyhow::Result;

use xtask::workspace::{Workspace, call};

/// Measure decoding, training and export, compared with other programs
///
/// Runs the program of `crates/bench`; `cargo xtask bench --help` lists its commands.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Bench {
    /// Arguments of the program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub(crate) arguments: Vec<OsString>,
}

/// Pass broken and hostile files to every command that reads files
///
/// Runs the program of `crates/hostile`; `cargo xtask hostile --help` lists its options.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Hostile {
    /// Arguments of the program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub(crate) arguments: Vec<OsString>,
}

/// Builds a program in release mode and runs it.
pub(crate) fn run(workspace: &Workspace, package: &str, arguments: &[OsString]) -> Result<()> {
    call(workspace.cargo().args(["run", "--release", "--quiet", "--package", package, "--"]).args(arguments))
}
