//! Runs the targets of `xtask/fuzz` with libFuzzer, guided by coverage.

use fs_err as fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::nightly::{self, TARGET};
use crate::table::{table, thousands};
use crate::workspace::{Workspace, call, shown};

/// Each target and the files of `testdata` that seed it.
pub const TARGETS: [(&str, &[&str]); 11] = [
    ("config", &["golden/*/config.json"]),
    ("safetensors", &["golden/marian/model.safetensors", "golden/t5/model.safetensors"]),
    ("index", &[]),
    ("onnx", &["../onnx/tiny/encoder.onnx", "../onnx/tiny/decoder.onnx"]),
    (
        "tokenizer_json",
        &["tokenizers/models/mbart.tokenizer.json", "tokenizers/models/nllb.tokenizer.json"],
    ),
    ("sentencepiece", &["tokenizers/models/unigram.model", "tokenizers/models/bpe-bytes.model"]),
    ("vocabulary", &["tokenizers/models/byte-level.vocab.json"]),
    ("merges", &["tokenizers/models/byte-level.merges.txt"]),
    ("generation_config", &["golden/*/generation_config.json"]),
    ("training_config", &[]),
    ("graphs", &[]),
];

/// Compiler flags for libFuzzer: coverage, and tracing of comparisons.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                        -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares --cfg=fuzzing -Zsanitizer=address";

/// Limits of memory (MB) and time (seconds) per input.
const LIMITS: [&str; 3] = ["-rss_limit_mb=4096", "-malloc_limit_mb=2048", "-timeout=10"];

/// Builds the targets and runs each for its share of `minutes`; `engines` includes those
/// that need engines.
pub fn run(workspace: &Workspace, minutes: u64, engines: bool) -> Result<()> {
    let Some(mut cargo) = nightly::cargo(workspace, &[]) else { return Ok(()) };
    let folder = workspace.target("fuzz");
    cargo
        .args([
            "build",
            "--release",
            "--manifest-path",
            "xtask/fuzz/Cargo.toml",
            "--target",
            TARGET,
            "--target-dir",
        ])
        .arg(&folder);
    if engines {
        cargo.args(["--features", "engines"]);
    }
    call(cargo.env("RUSTFLAGS", COVERAGE))?;
    let programs = folder.join(TARGET).join("release");
    let targets: Vec<_> =
        TARGETS.iter().filter(|(name, _)| engines || !NEED_ENGINES.contains(name)).collect();
    let seconds = (minutes * 60 / targets.len() as u64).max(1);
    let (mut rows, mut findings) = (Vec::new(), Vec::new());
    for (name, seeds) in targets {
        let ended = run_one(workspace, &folder, &programs.join(name), name, seeds, seconds)?;
        eprintln!("{name}: {} executions, {}", thousands(ended.executions), ended.verdict());
        rows.push(vec![
            (*name).to_owned(),
            thousands(ended.executions),
            ended.verdict().to_owned(),
        ]);
        findings.extend(ended.finding);
    }
    println!("{}", table(&["target", "executions", "outcome"], &rows));
    ensure!(findings.is_empty(), "{} findings\n{}", findings.len(), findings.join("\n"));
    Ok(())
}

/// The targets that need engines.
const NEED_ENGINES: [&str; 3] = ["generation_config", "training_config", "graphs"];

/// The result of a target.
struct Ended {
    executions: u64,
    /// The end of its output, if it found something.
    finding: Option<String>,
}

impl Ended {
    fn verdict(&self) -> &'static str {
        if self.finding.is_some() { "FOUND" } else { "clean" }
    }
}

fn run_one(
    workspace: &Workspace,
    folder: &Path,
    program: &Path,
    name: &str,
    seeds: &[&str],
    seconds: u64,
) -> Result<Ended> {
    // Inputs that reached new code are kept between runs; seeds are read only.
    let corpus = folder.join("corpus").join(name);
    fs::create_dir_all(&corpus)?;
    let seeds = seed_files(workspace, seeds)?;
    let mut command = Command::new(program);
    command
        .arg(&corpus)
        .arg(format!("-max_total_time={seconds}"))
        .args(LIMITS)
        .arg("-print_final_stats=1");
    command.arg(format!("-artifact_prefix={}", folder.join(format!("found-{name}-")).display()));
    if !seeds.is_empty() {
        command.arg(format!("-seed_inputs={}", seeds.join(",")));
    }
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{}: cannot start", shown(&command)))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let Some(executions) = executions(&said) else {
        bail!("{name}: {}\n{}", output.status, said.trim())
    };
    let last: Vec<&str> = said.lines().rev().take(60).collect();
    let finding = (!output.status.success())
        .then(|| format!("{name}\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n")));
    Ok(Ended { executions, finding })
}

/// The files that match the patterns; `*` stands for any folder.
pub fn seed_files(workspace: &Workspace, patterns: &[&str]) -> Result<Vec<String>> {
    let testdata = workspace.root().join("testdata");
    let mut found: Vec<PathBuf> = Vec::new();
    for pattern in patterns {
        match pattern.split_once("/*/") {
            None => found.push(testdata.join(pattern)),
            Some((folder, file)) => {
                let folder = testdata.join(folder);
                let entries = fs::read_dir(&folder)?;
                found.extend(
                    entries
                        .flatten()
                        .map(|entry| entry.path().join(file))
                        .filter(|path| path.is_file()),
                );
            }
        }
    }
    found.sort();
    Ok(found.iter().map(|path| path.display().to_string()).collect())
}

/// The number of executions, from a line such as `stat::number_of_executed_units: 1234`.
pub fn executions(said: &str) -> Option<u64> {
    let line =
        said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    line.trim().parse().ok()
}
