//! `cognate completions` and `cognate man`.

use crate::{Cli, messages};
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::{Shell, generate};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the completions of a shell
///
/// Bash: `cognate completions bash > ~/.local/share/bash-completion/completions/cognate`.
/// Zsh: `cognate completions zsh > ~/.zfunc/_cognate`.
/// Fish: `cognate completions fish > ~/.config/fish/completions/cognate.fish`.
#[derive(clap::Args)]
pub(crate) struct CompletionsOptions {
    /// Shell to complete in
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Write man pages
#[derive(clap::Args)]
pub(crate) struct ManOptions {
    /// Folder to write into; it is created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Runs `cognate completions`.
pub(crate) fn completions(options: &CompletionsOptions, out: &mut dyn Write) -> Result<ExitCode> {
    let mut script = Vec::new();
    generate(options.shell, &mut Cli::command(), "cognate", &mut script);
    out.write_all(&script).and_then(|()| out.flush()).context(messages::UNWRITTEN)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `cognate man`.
pub(crate) fn man(options: &ManOptions, out: &mut dyn Write) -> Result<ExitCode> {
    let folder = options.folder.display();
    fs::create_dir_all(&options.folder).with_context(|| format!("{folder}: cannot be created"))?;
    clap_mangen::generate_to(Cli::command(), &options.folder)
        .with_context(|| format!("{folder}: cannot be written"))?;
    writeln!(
        out,
        "{folder}: man pages of cognate and its commands; read them by `man -l {folder}/cognate.1`"
    )?;
    Ok(ExitCode::SUCCESS)
}
