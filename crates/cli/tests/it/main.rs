//! The built command, run as a program at the top of the repository.

#![allow(clippy::unwrap_used)]

mod attend;
mod decoding;
mod determinism;
mod errors;
mod evaluate;
mod explain;
mod export;
mod export_training;
mod families;
mod generate;
mod guards;
mod help;
mod in_place;
mod layouts;
mod load;
mod multi30k;
mod plot;
mod precision;
mod quality;
mod ranks;
mod readme;
mod research;
mod same;
mod shortlist;
mod show;
mod speech;
mod stream;
mod survive;
mod target;
mod ties;
mod tokenize;
mod train;
mod translate;

use cognate_testing::bundled_checkpoint;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The README's sentences.
const SENTENCES: [&str; 2] = ["A man is riding a bicycle.", "Two dogs are playing in the snow."];

/// What a run of the command left.
#[derive(Debug)]
struct Ended {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    /// Standard output of a run that must have gone well.
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.status, Some(0), "{}", self.err);
        self.out
    }

    /// Standard error of a run that must have failed with this status, and said nothing on standard
    /// output.
    #[track_caller]
    fn failed(self, status: i32) -> String {
        assert_eq!((self.status, self.out.as_str()), (Some(status), ""), "{}", self.err);
        self.err.trim_end().to_owned()
    }
}

/// The command, in a known environment.
fn cognate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cognate"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    command
        .args(args)
        .current_dir(root)
        .env_remove("COGNATE_MODEL")
        .env_remove("COGNATE_LIMITS")
        .env_remove("RUST_BACKTRACE")
        .env("COLUMNS", "100");
    command
}

fn run(args: &[&str]) -> Ended {
    ended(cognate(args).stdin(Stdio::null()))
}

/// Runs with `input` on standard input.
fn run_with(args: &[&str], input: impl AsRef<[u8]>) -> Ended {
    // A file, which cannot block as a pipe may.
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(input.as_ref()).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    ended(cognate(args).stdin(file))
}

fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A copy of the bundled checkpoint's small files, and its weights if they are asked for.
fn checkpoint(weights: bool) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
    {
        fs::copy(bundled_checkpoint().join(file), folder.path().join(file)).unwrap();
    }
    let name = "model.safetensors";
    if weights {
        fs::copy(bundled_checkpoint().join(name), folder.path().join(name)).unwrap();
    } else {
        fs::write(folder.path().join(name), "").unwrap();
    }
    folder
}

/// Replaces text in one file of a folder.
fn edit(folder: &TempDir, file: &str, from: &str, to: &str) {
    let path = folder.path().join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from}");
    fs::write(path, text.replace(from, to)).unwrap();
}

/// `text` with a folder's path as `DIR`.
fn with_dir(text: &str, folder: &Path) -> String {
    text.replace(folder.to_str().unwrap(), "DIR")
}
