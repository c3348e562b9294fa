//! `cargo xtask fuzz`: runs the tests with random inputs for a given time.

pub mod libfuzzer;

use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::table::{table, thousands};
use crate::workspace::{Workspace, call};

/// Mutate files at random and pass them to every reader; compare all engines on random graphs
///
/// The targets are the tests whose names begin with `fuzz_`. A file that makes a reader panic is
/// kept in the temporary folder; its number reproduces it.
#[derive(clap::Args)]
pub struct Options {
    /// Minutes for all targets together
    #[arg(long, value_name = "N", default_value_t = 20)]
    minutes: u64,
    /// Use libFuzzer, guided by coverage, with the targets of xtask/fuzz; needs a nightly compiler
    #[arg(long)]
    libfuzzer: bool,
    /// With --libfuzzer: include the targets that need engines (settings of decoding and training,
    /// graphs), which take minutes to build
    #[arg(long, requires = "libfuzzer")]
    engines: bool,
}

/// Prefix of the tests that are targets.
const FILTER: &str = "fuzz_";
/// Number of targets; some share a test.
const TARGETS: u64 = 13;

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.libfuzzer {
        return libfuzzer::run(workspace, options.minutes, options.engines);
    }
    call(workspace.cargo().args(["test", "--workspace", "--test", "it", "--no-run"]))?;
    let mut tests = workspace.cargo();
    tests.args([
        "test",
        "--workspace",
        "--test",
        "it",
        "--no-fail-fast",
        "--",
        FILTER,
        "--nocapture",
        "--test-threads",
        "1",
    ]);
    tests.env("COGNATE_FUZZ_SECONDS", (options.minutes * 60 / TARGETS).max(1).to_string());
    let output = tests
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .context("cargo test: cannot start")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let counts = executions(&said);
    let rows: Vec<_> =
        counts.iter().map(|(target, count)| vec![target.clone(), thousands(*count)]).collect();
    println!("{}", table(&["target", "executions"], &rows));
    let is_finding =
        |line: &&str| line.contains(" panics; written to ") || line.starts_with("graphs: ");
    let findings: Vec<&str> = said.lines().filter(is_finding).collect();
    ensure!(
        output.status.success(),
        "{}\n{} findings\n{}",
        output.status,
        findings.len(),
        findings.join("\n")
    );
    ensure!(!counts.is_empty(), "no target was run");
    Ok(())
}

/// The targets and their executions, from lines such as `fuzz config: 12 executions`.
pub fn executions(said: &str) -> Vec<(String, u64)> {
    let count = |line: &str| {
        // With `--nocapture` a line may begin with the name of the test.
        let (_, rest) = line.split_once("fuzz ")?;
        let (target, rest) = rest.split_once(": ")?;
        Some((target.to_owned(), rest.strip_suffix(" executions")?.parse().ok()?))
    };
    said.lines().filter_map(count).collect()
}
