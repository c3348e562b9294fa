//! `cargo xtask test`: everything that CI runs, in one command.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::onnxruntime::{self, Build};
use crate::skipped::{self, Skipped};
use crate::workspace::{Workspace, call, shown};
use crate::{deny, examples, layers, lints, mpi, packages, snapshots, systems, test_programs};
use crate::{explained, python, table, wheel};

/// Run what CI runs: formatting, layers, dependencies, lints, tests, snapshots
///
/// First installs what the tests need into the target folder, with the pip of your Python 3: the
/// ONNX Runtime library, ONNX's checker, and transformers. Every step runs even if an earlier one
/// failed; the last lines list failed steps, and what was skipped and why.
#[derive(clap::Args)]
pub struct Options {
    /// Also test CUDA; needs a GPU, CUDA 13 and cuDNN 9 (set LD_LIBRARY_PATH to their folders)
    #[arg(long)]
    cuda: bool,
    /// Also check the documentation and other systems, run kernels on an emulated ARM processor,
    /// build the packages, a crate outside of the workspace that uses them, each feature alone, the
    /// Python wheel, whose tests it runs, and the JavaScript examples of onnx/README.md
    #[arg(long)]
    full: bool,
    /// Skip distributed training, which is tested if an MPI and libclang are installed
    #[arg(long)]
    without_mpi: bool,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let (mut steps, mut skipped) = (Steps::default(), Skipped::default());
    let features: &[&str] =
        if !options.without_mpi && mpi::is_here() { &mpi::FEATURES } else { &[] };
    if features.is_empty() {
        let reason = match options.without_mpi {
            true => "--without-mpi",
            false => "no MPI with its compiler, or no libclang",
        };
        skipped.add("distributed training", reason);
    }
    let build = if options.cuda { Build::Cuda } else { Build::Cpu };
    // Downloads while cargo compiles.
    let folder = workspace.target("python");
    let installing = thread::spawn(move || python::environment(&folder, python::TESTS));
    let library = steps.step("ONNX Runtime", || {
        let library = onnxruntime::bring(workspace, build)?;
        println!("{}", workspace.readable(&library));
        Ok(library)
    });
    steps.step("format", || call(workspace.cargo().args(["fmt", "--all", "--check"])));
    steps.step("layers", || layers::check(workspace));
    for reason in steps.step("dependencies", || deny::check(workspace)).unwrap_or_default() {
        skipped.add("dependencies", reason);
    }
    let linted = steps
        .step("lints and build", || call(cargo_test(workspace, features, true)?.arg("--no-run")));
    let python = steps.step("Python with onnx and transformers", || {
        let program = installing
            .join()
            .map_err(|_| anyhow!("the installation panicked (a bug in xtask)"))??;
        println!("{}", workspace.readable(&program));
        Ok(program)
    });
    let notes = Notes {
        references: workspace.target("xtask/snapshot-references"),
        skipped: workspace.target("xtask/skipped-tests"),
    };
    let tools = Tools { library, python };
    let test = || -> Result<Command> {
        let mut cargo = cargo_test(workspace, features, linted.is_some())?;
        set_environment(&mut cargo, options, (&tools, &notes));
        Ok(cargo)
    };
    notes.begin()?;
    // The compiler reads one example after another, and other tests wait for clients and time.
    let mut documentation = test()?;
    documentation.arg("--doc").stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = documentation.spawn();
    let passed = steps.step("tests", || {
        let programs = test_programs::build(workspace, test()?)?;
        test_programs::run(workspace, programs, &test()?)
    });
    steps.step("examples of the documentation", || {
        let output = started.and_then(Child::wait_with_output)?;
        for printed in [&output.stderr, &output.stdout] {
            print!("{}", String::from_utf8_lossy(printed));
        }
        ensure!(output.status.success(), "{}: {}", shown(&documentation), output.status);
        Ok(())
    });
    steps.step("list of skipped tests", || skipped.read(&notes.skipped));
    steps.step("snapshots", || {
        snapshots::check(workspace, passed.is_some().then_some(notes.references.as_path()))
    });
    if options.full {
        steps.step("documentation", || {
            let doc = ["doc", "--workspace", "--no-deps"];
            call(workspace.cargo().args(doc).args(features).env("RUSTDOCFLAGS", "--deny warnings"))
        });
        for reason in steps
            .step("other systems", || {
                systems::check(
                    workspace,
                    &["--package", "xtask", "--package", "cognate-hostile", "--all-targets"],
                )
            })
            .unwrap_or_default()
        {
            skipped.add("other systems", reason);
        }
        if let Some(reason) = steps.step("kernels on ARM", || systems::emulate(workspace)).flatten()
        {
            skipped.add("kernels on ARM", reason);
        }
        steps.step("packages", || packages::check(workspace));
        steps.step("features", || packages::check_features(workspace));
        if let Some(reason) = steps.step("Python wheel", || wheel::check(workspace)).flatten() {
            skipped.add("Python wheel", reason);
        }
        for reason in
            steps.step("JavaScript examples", || examples::check(workspace)).unwrap_or_default()
        {
            skipped.add("JavaScript examples", reason);
        }
    } else {
        let checks = "documentation, other systems, kernels on ARM, packages, features, the Python wheel, the JavaScript examples";
        skipped.add(checks, "checked only with --full");
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

/// `cargo test`; with `lints` a warning is an error.
fn cargo_test(workspace: &Workspace, features: &[&str], lints: bool) -> Result<Command> {
    let mut cargo = workspace.cargo();
    cargo.args(["test", "--workspace", "--no-fail-fast"]).args(features);
    if lints {
        lints::deny_warnings(&mut cargo)?;
    }
    Ok(cargo)
}

impl Notes {
    /// Removes those of earlier tests.
    fn begin(&self) -> Result<()> {
        for file in [&self.references, &self.skipped] {
            let parent = file.parent().context("the file is below target")?;
            fs_err::create_dir_all(parent)?;
            if file.exists() {
                fs_err::remove_file(file)?;
            }
        }
        Ok(())
    }
}

/// Tells tests the paths of the installed tools and of their notes.
fn set_environment(cargo: &mut Command, options: &Options, (tools, notes): (&Tools, &Notes)) {
    // Tests must not write snapshots.
    cargo
        .env("INSTA_UPDATE", "no")
        .env("INSTA_SNAPSHOT_REFERENCES_FILE", &notes.references)
        .env(skipped::VARIABLE, &notes.skipped);
    if let Some(library) = &tools.library {
        cargo.env("ORT_DYLIB_PATH", library);
    }
    if let Some(python) = &tools.python {
        cargo.env("COGNATE_PYTHON", python);
    }
    if options.cuda {
        cargo.env("COGNATE_TEST_CUDA", "1");
    }
}

/// The steps run so far.
#[derive(Default)]
pub struct Steps {
    done: Vec<(&'static str, Duration, bool)>,
}

impl Steps {
    /// Runs a step under its heading. Returns its value, or `None` if it failed.
    pub fn step<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Option<T> {
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
    pub fn finish(&self) -> Result<()> {
        let verdict = |passed: bool| if passed { "ok" } else { "FAILED" };
        let row = |(name, time, passed): &(&str, Duration, bool)| {
            vec![(*name).to_owned(), table::duration(*time), verdict(*passed).to_owned()]
        };
        let rows: Vec<_> = self.done.iter().map(row).collect();
        println!("\n{}", table::table(&["step", "time", "result"], &rows));
        let failed: Vec<_> =
            self.done.iter().filter(|(_, _, passed)| !passed).map(|(name, ..)| *name).collect();
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        Ok(())
    }
}
