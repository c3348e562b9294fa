//! `cargo xtask bench transcribe`: speech to text by warm programs, compared with faster-whisper in
//! the same run.
//!
//! Programs run in turn on the same files. Ratios are of processor time, which other programs on
//! the machine hardly change.

mod base;
pub mod report;

use fs_err as fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use self::report::{Cell, Report};
use super::decode::RECORD;
use super::driver::Driver;
use super::measure::transcribe::Answer;
use super::rows::judge;
use super::text::Precision;
use super::{processors, record};
use xtask::onnxruntime::{self, Build};
use xtask::python;
use xtask::workspace::{Cognate, Workspace, call};

/// faster-whisper and the packages that convert a checkpoint for it, without PyTorch.
pub const REQUIREMENTS: [&str; 4] =
    ["faster-whisper==1.2.1", "ctranslate2==4.8.5", "transformers==4.57.6", "safetensors==0.8.0"];

/// Measure speech to text, compared with faster-whisper
///
/// Transcribes the files at temperature 0 and without the text before a window, with f32 and int8,
/// by windows that follow timestamps and by batches of windows that are cut in pauses. Prints
/// seconds of audio per second, ratios of processor time, memory, and the number of different
/// words. The first run installs packages from PyPI into target/bench/transcribe (0.6 GB). Fails if
/// a ratio misses its bound.
#[derive(clap::Args)]
pub struct Options {
    /// Audio files
    #[arg(required = true, value_name = "FILE")]
    pub audio: Vec<PathBuf>,
    /// Folder of a Whisper checkpoint
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Number of measurements of each cell, in turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Precisions, separated by commas
    #[arg(long, value_name = "TYPE", value_delimiter = ',', default_values = ["f32", "int8"])]
    pub precision: Vec<Precision>,
    /// Numbers of hypotheses of a window, separated by commas; 1 is greedy
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 5])]
    pub beams: Vec<usize>,
    /// Numbers of windows of a batch, separated by commas; 1 for windows that follow timestamps
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 8])]
    pub batch: Vec<usize>,
    /// Numbers of threads of each program, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2])]
    pub threads: Vec<usize>,
    /// A file of the package silero-vad, with which Cognate finds pauses as faster-whisper does; by
    /// default it uses the audio's energy
    #[arg(long, value_name = "FILE")]
    pub vad: Option<PathBuf>,
    /// Maximum number of new tokens of a window, without timestamps: for models with random
    /// weights, whose texts do not end
    #[arg(long, value_name = "N")]
    pub new_tokens: Option<u32>,
    /// Instead of the checkpoint's model, use one with the shape of Whisper base, seeded random
    /// weights and the checkpoint's tokenizer; requires --new-tokens
    #[arg(long, requires = "new_tokens")]
    pub base: bool,
    /// Write the part of onnx/BENCHMARKS.md for this processor, with --base that of its shape
    #[arg(long, conflicts_with_all = ["precision", "beams", "batch"])]
    pub write: bool,
    /// Succeed even if a bound is missed
    #[arg(long)]
    pub allow_missed: bool,
    #[command(flatten)]
    pub cognate: Cognate,
}

/// Programs and folders of a run.
struct Place {
    cognate: PathBuf,
    bench: PathBuf,
    python: PathBuf,
    script: PathBuf,
    library: PathBuf,
    folder: PathBuf,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    ensure!(
        !options.write || options.base || options.new_tokens.is_none(),
        "--write: expected --base with --new-tokens"
    );
    let counts = [&options.beams, &options.batch, &options.threads];
    ensure!(!counts.iter().any(|counts| counts.contains(&0)), "expected numbers from 1 on");
    let absolute = |path: &PathBuf| path.canonicalize().with_context(|| path.display().to_string());
    let audio = options.audio.iter().map(absolute).collect::<Result<Vec<_>>>()?;
    let (given, vad) = (absolute(&options.model)?, options.vad.as_ref().map(absolute).transpose()?);
    let folder = workspace.target("bench/transcribe");
    let model = if options.base { base::checkpoint(&given, &folder.join("base"))? } else { given };
    let place = Place {
        cognate: options.cognate.path(workspace)?,
        bench: std::env::current_exe().context("the path of this program")?,
        python: python::environment(&folder.join("python"), &REQUIREMENTS)?,
        script: workspace.root().join("crates/bench/python/transcribe.py"),
        library: onnxruntime::bring(workspace, Build::Cpu)?,
        folder,
    };
    fs::create_dir_all(&place.folder)?;
    let mut report = Report { rounds: options.rounds, is_base: options.base, ..Report::default() };
    for &precision in &options.precision {
        place.prepare(&model, precision)?;
        for &threads in &options.threads {
            for &batch in &options.batch {
                for &beams in &options.beams {
                    let mut cell = Cell {
                        precision,
                        threads,
                        batch,
                        beams,
                        engines: Default::default(),
                        answers: Default::default(),
                    };
                    place.measure(&mut cell, &audio, vad.as_deref(), options)?;
                    eprintln!("{}: measured", cell.title());
                    report.cells.push(cell);
                }
            }
        }
    }
    println!("\n{}", report.text());
    if options.write {
        record::put(&workspace.root().join("onnx").join(RECORD), &report.section())?;
        println!("written: onnx/{RECORD}");
    }
    judge(&report.missed(), options.allow_missed)
}

impl Place {
    fn ours(&self, precision: Precision) -> PathBuf {
        self.folder.join(format!("cognate-{}", precision.ours()))
    }

    fn theirs(&self, precision: Precision) -> PathBuf {
        self.folder.join(format!("faster-whisper-{}", precision.ours()))
    }

    /// Converts the checkpoint for both programs.
    fn prepare(&self, model: &Path, precision: Precision) -> Result<()> {
        let theirs = self.theirs(precision);
        call(self.script("convert", 1).arg(model).arg(theirs).arg(precision.theirs()))?;
        precision.export(&self.cognate, model, &self.ours(precision))
    }

    /// The script for faster-whisper on as many processors as threads.
    fn script(&self, command: &str, threads: usize) -> Command {
        let mut script = processors::bound(&self.python, threads);
        script
            .arg(&self.script)
            .arg(command)
            .envs([("PYTHONDONTWRITEBYTECODE", "1"), ("HF_HUB_OFFLINE", "1")]);
        script
    }

    /// Measures both programs, in turn.
    fn measure(
        &self,
        cell: &mut Cell,
        audio: &[PathBuf],
        vad: Option<&Path>,
        options: &Options,
    ) -> Result<()> {
        let Cell { precision, threads, .. } = *cell;
        let [n_threads, beams, batch] =
            [threads, cell.beams, cell.batch].map(|count| count.to_string());
        let mut theirs = self.script("serve", threads);
        theirs.arg(self.theirs(precision)).args([precision.theirs(), &n_threads, &beams, &batch]);
        let mut ours = processors::bound(&self.bench, threads);
        ours.args(["measure", "transcribe", "--engine", "ort", "--model"])
            .arg(self.ours(precision));
        ours.args(["--threads", &n_threads, "--beams", &beams, "--batch", &batch])
            .env("ORT_DYLIB_PATH", &self.library);
        if let Some(vad) = vad.filter(|_| cell.batch > 1) {
            ours.arg("--vad").arg(vad);
        }
        if let Some(count) = options.new_tokens {
            theirs.arg(count.to_string());
            ours.args(["--new-tokens", &count.to_string()]);
        }
        let start = |command, name: &str| {
            Driver::start(command, &self.folder.join(format!("{name}.log")))
                .context(name.to_owned())
        };
        let mut programs = [start(theirs, "faster-whisper")?, start(ours, "cognate")?];
        cell.engines = programs.each_ref().map(|program| program.greeting.engine.clone());
        // Round 0 is a warm-up.
        for round in 0..=options.rounds {
            for (index, program) in programs.iter_mut().enumerate() {
                let answer: Answer = program
                    .request(&json!({ "files": audio }))
                    .with_context(|| cell.engines[index].clone())?;
                if round > 0 {
                    cell.answers[index].push(answer);
                }
            }
        }
        Ok(())
    }
}
