//! Runs the test programs of the workspace, two at a time: towards its end, a program often waits
//! for one test.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Message;

use crate::table;
use crate::workspace::{Workspace, capture};

/// A program with tests.
pub struct TestProgram {
    /// The name of its package.
    pub package: String,
    /// The name of its target.
    pub target: String,
    /// Its path.
    pub executable: PathBuf,
    /// The folder of its crate, in which it runs.
    pub folder: PathBuf,
}

/// The programs that `cargo test` runs; `cargo` is that command with its options. The largest come
/// first, so that small ones fill the end.
pub fn build(workspace: &Workspace, mut cargo: Command) -> Result<Vec<TestProgram>> {
    cargo.args(["--tests", "--no-run", "--message-format", "json-render-diagnostics"]);
    let messages = capture(&mut cargo)?;
    let mut programs = Vec::new();
    for message in Message::parse_stream(messages.as_bytes()) {
        let Message::CompilerArtifact(made) = message? else { continue };
        let Some(executable) = made.executable.filter(|_| made.profile.test) else { continue };
        let package = &workspace.metadata()[&made.package_id];
        let folder = made.manifest_path.parent().context("a manifest is in a folder")?;
        let size = executable.as_std_path().metadata().map_or(0, |metadata| metadata.len());
        let program = TestProgram {
            package: package.name.to_string(),
            target: made.target.name,
            executable: executable.into(),
            folder: folder.into(),
        };
        programs.push((size, program));
    }
    ensure!(!programs.is_empty(), "cargo built no tests");
    programs.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    Ok(programs.into_iter().map(|(_, program)| program).collect())
}

/// Runs all programs with the variables of `like`.
///
/// # Errors
/// If a program fails; all run nevertheless.
pub fn run(workspace: &Workspace, programs: Vec<TestProgram>, like: &Command) -> Result<()> {
    const AT_ONCE: usize = 2;
    let (waiting, failed) = (Mutex::new(programs.into_iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(program) = locked(&waiting, Iterator::next) {
                    let name = format!("{} {}", program.package, program.target);
                    let mut command = Command::new(&program.executable);
                    let variables = like.get_envs();
                    // As cargo does.
                    command
                        .current_dir(&program.folder)
                        .envs(variables.filter_map(|(name, value)| Some((name, value?))))
                        .env("CARGO_MANIFEST_DIR", &program.folder)
                        .env("CARGO_PKG_NAME", &program.package)
                        .env("INSTA_WORKSPACE_ROOT", workspace.root());
                    if let Err(error) = run_one(&name, command) {
                        println!("{name}: {error:#}");
                        locked(&failed, |failed| failed.push(name));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !failed.is_empty() {
        bail!("tests failed in: {}", failed.join(", "));
    }
    Ok(())
}

/// Prints what a program printed once it has ended, so that lines of two are not mixed.
fn run_one(name: &str, mut command: Command) -> Result<()> {
    println!("{name}: started");
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().context("cannot start")?;
    let [err, out] = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
    println!("\n{name}: ended after {}\n{err}{out}", table::duration(start.elapsed()));
    ensure!(output.status.success(), "{}", output.status);
    Ok(())
}

fn locked<T, R>(shared: &Mutex<T>, work: impl FnOnce(&mut T) -> R) -> R {
    work(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}
