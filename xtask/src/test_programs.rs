//! Runs the test programs of the workspace, two at a time: towards its end, a program often waits
//! for one test.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use cargo_metadata::Message;

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
/// first: they take longest.
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

/// Runs all programs with the variables of `like`. Each line that one prints begins with its name.
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

fn run_one(name: &str, mut command: Command) -> Result<()> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().context("cannot start")?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        if let Some(err) = err {
            scope.spawn(|| print_lines(name, err));
        }
        if let Some(out) = out {
            print_lines(name, out);
        }
    });
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(anyhow!("{status}")) }
}

/// Prints lines as they come, also those that are not UTF-8.
fn print_lines(name: &str, from: impl Read) {
    let lines = BufReader::new(from).split(b'\n').map_while(Result::ok);
    lines
        .filter(|line| !line.is_empty())
        .for_each(|line| println!("{name}: {}", String::from_utf8_lossy(&line)));
}

fn locked<T, R>(shared: &Mutex<T>, work: impl FnOnce(&mut T) -> R) -> R {
    work(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}
