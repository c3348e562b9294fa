//! `cargo xtask test`: everything that CI runs, in one command.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::skipped::{self, Skipped};
use crate::{deny, layers, mpi, packages, snapshots, systems};
use xtask::onnxruntime::{self, Build};
use xtask::workspace::{Workspace, call};
use xtask::{explained, python, table};

/// Run what CI runs: formatting, lints, layers, other systems, tests, snapshots, documentation
///
/// First installs what the tests need into the target folder, with the pip of your Python 3: the
/// ONNX Runtime library, ONNX's checker, and transformers. Every step runs even if an earlier one
/// failed; the last lines list failed steps, and what was skipped and why.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also test CUDA; needs a GPU, CUDA 13 and cuDNN 9 (set LD_LIBRARY_PATH to their folders)
    #[arg(long)]
    cuda: bool,
    /// Also build the packages, a crate outside of the workspace that uses them, and
    /// each feature alone
    #[arg(long)]
    full: bool,
    /// Skip distributed training, which is tested if an MPI and libclang are installed
    #[arg(long)]
    without_mpi: bool,
}

/// Runs the command.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let (mut steps, mut skipped) = (Steps::default(), Skipped::default());
    let features: &[&str] = if !options.without_mpi && mpi::is_here() { &mpi::FEATURES } else { &[] };
    if features.is_empty() {
        let reason = match options.without_mpi {
            true => "--without-mpi",
            false => "no MPI with its compiler, or no libclang",
        };
        skipped.add("distributed training", reason);
    }
    let build = if options.cuda { Build::Cuda } else { Build::Cpu };
    let library = steps.step("ONNX Runtime", || {
        let library = onnxruntime::bring(workspace, build)?;
        println!("{}", workspace.readable(&library));
        Ok(library)
    });
    let python = steps.step("Python with onnx and transformers", || {
        let program = python::environment(&workspace.target("python"), python::TESTS)?;
        println!("{}", workspace.readable(&program));
        Ok(program)
    });
    steps.step("format", || call(workspace.cargo().args(["fmt", "--all", "--check"])));
    steps.step("lints", || {
        let clippy = ["clippy", "--workspace", "--all-targets"];
        call(workspace.cargo().args(clippy).args(features).args(["--", "--deny", "warnings"]))
    });
    steps.step("layers", || layers::check(workspace));
    for reason in steps.step("dependencies", || deny::check(workspace)).unwrap_or_default() {
        skipped.add("dependencies", reason);
    }
    for reason in steps
        .step("other systems", || systems::check(workspace, &["--package", "xtask", "--package", "cognate-hostile", "--all-targets"]))
        .unwrap_or_default()
    {
        skipped.add("other systems", reason);
    }
    let notes = Notes { references: workspace.target("xtask/snapshot-references"), skipped: workspace.target("xtask/skipped-tests") };
    let tools = Tools { library, python };
    let passed = steps.step("tests", || run_tests(workspace, options, features, (&tools, &notes)));
    steps.step("list of skipped tests", || skipped.read(&notes.skipped));
    steps.step("snapshots", || snapshots::check(workspace, passed.is_some().then_some(notes.references.as_path())));
    steps.step("documentation", || {
        let doc = ["doc", "--workspace", "--no-deps"];
        call(workspace.cargo().args(doc).args(features).env("RUSTDOCFLAGS", "--deny warnings"))
    });
    if options.full {
        steps.step("packages", || packages::check(workspace));
        steps.step("features", || packages::check_features(workspace));
    } else {
        skipped.add("packages and features", "checked only with --full");
    }
    let finished = steps.finish();
    println!("{}", skipped.text());
    finished
}

/// The tools installed by earlier steps.
struct Tools {
    library: Option<PathBuf>,
    python: Option<PathBuf>,
}

/// Files written by tests: the snapshots that they read, and what they skipped.
struct Notes {
    references: PathBuf,
    skipped: PathBuf,
}

/// Runs `cargo test` with the paths of the installed tools.
fn run_tests(workspace: &Workspace, options: &Options, features: &[&str], (tools, notes): (&Tools, &Notes)) -> Result<()> {
    for file in [&notes.references, &notes.skipped] {
        let parent = file.parent().context("the file is below target")?;
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        if file.exists() {
            std::fs::remove_file(file).with_context(|| file.display().to_string())?;
        }
    }
    let mut cargo = workspace.cargo();
    cargo.args(["test", "--workspace", "--no-fail-fast"]).args(features);
    // Tests must not write snapshots.
    cargo.env("INSTA_UPDATE", "no").env("INSTA_SNAPSHOT_REFERENCES_FILE", &notes.references).env(skipped::VARIABLE, &notes.skipped);
    if let Some(library) = &tools.library {
        cargo.env("ORT_DYLIB_PATH", library);
    }
    if let Some(python) = &tools.python {
        cargo.env("COGNATE_PYTHON", python);
    }
    if options.cuda {
        cargo.env("COGNATE_TEST_CUDA", "1");
    }
    call(&mut cargo)
}

/// The steps run so far.
#[derive(Default)]
struct Steps {
    done: Vec<(&'static str, Duration, bool)>,
}

impl Steps {
    /// Runs a step under its heading. Returns its value, or `None` if it failed.
    fn step<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        println!("\n== {name}");
        let start = Instant::now();
        let result = work();
        let time = start.elapsed();
        self.done.push((name, time, result.is_ok()));
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                println!("error: {}", explained(&error));
                None
            }
        }
    }

    /// Prints the result of every step; fails if one failed.
    fn finish(&self) -> Result<()> {
        let verdict = |passed: bool| if passed { "ok" } else { "FAILED" };
        let row =
            |(name, time, passed): &(&str, Duration, bool)| vec![(*name).to_owned(), table::duration(*time), verdict(*passed).to_owned()];
        let rows: Vec<_> = self.done.iter().map(row).collect();
        println!("\n{}", table::table(&["step", "time", "result"], &rows));
        let failed: Vec<_> = self.done.iter().filter(|(_, _, passed)| !passed).map(|(name, ..)| *name).collect();
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_step_does_not_stop_the_next_and_is_named() {
        let mut steps = Steps::default();
        assert_eq!(steps.step("first", || -> Result<u8> { bail!("no pip") }), None);
        assert_eq!(steps.step("second", || Ok(2)), Some(2));
        assert_eq!(steps.finish().unwrap_err().to_string(), "failed: first");
    }
}
