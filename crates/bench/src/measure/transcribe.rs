//! `cognate-bench measure transcribe`: audio files through a warm transcriber.

use super::print_line;
use crate::process::processor_seconds;
use anyhow::{Context, Result};
use cognate_folder::ModelSource;
use cognate_pipeline::{LoadOptions, Transcriber, TranscriberOptions, TranscriptionOptions};
use cognate_runtime::Engine;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{self, BufRead, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;
use xtask::memory;

/// Measure the transcription of audio files at temperature 0, each window separately
///
/// Answers requests on standard input, one per line: {"files": ["speech.wav"]}
#[derive(clap::Args)]
pub struct Transcribe {
    /// Folder of a speech model or of its export
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Inference engine: auto, tract or ort
    #[arg(long, default_value = "auto")]
    pub engine: Engine,
    /// Number of threads of ONNX Runtime
    #[arg(long, value_name = "N", default_value = "1")]
    pub threads: NonZeroUsize,
    /// Number of hypotheses of a window; 1 is greedy
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub beams: usize,
    /// Number of windows of a batch, cut in pauses and without timestamps; 1 for windows that
    /// follow timestamps
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub batch: usize,
    /// Maximum number of new tokens of a window, without timestamps
    #[arg(long, value_name = "N")]
    pub new_tokens: Option<usize>,
    /// A file of the package silero-vad that finds pauses
    #[arg(long, value_name = "FILE")]
    pub vad: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    files: Vec<PathBuf>,
}

/// The cost of a request and the texts of its files.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// The duration of the audio.
    pub audio_seconds: f64,
    pub seconds: f64,
    /// Processor time, in steps of 10 ms.
    pub processor_seconds: f64,
    /// The highest resident memory so far; 0 if the system does not report it.
    pub peak_bytes: u64,
    pub texts: Vec<String>,
}

/// Runs the command.
pub fn run(options: &Transcribe, out: &mut dyn Write) -> Result<()> {
    let load = LoadOptions {
        engine: options.engine,
        workers: Some(NonZeroUsize::MIN),
        threads: Some(options.threads),
        huge_pages: true,
        ..LoadOptions::default()
    };
    let transcription = TranscriptionOptions {
        temperatures: vec![0.0],
        condition_on_previous_text: false,
        beam_size: options.beams,
        batch: options.batch,
        timestamps: options.batch == 1 && options.new_tokens.is_none(),
        max_new_tokens: options.new_tokens,
        voice_detector: options.vad.clone(),
        ..TranscriptionOptions::default()
    };
    let transcriber = Transcriber::load(
        ModelSource::find(&options.model)?,
        &TranscriberOptions { load, transcription },
    )?;
    print_line(out, &json!({ "engine": transcriber.engine() }))?;
    for line in io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line.context("standard input")?)
            .context("standard input: expected {files}")?;
        let (start, before, mut answer) =
            (Instant::now(), processor_seconds()?.own, Answer::default());
        for file in &request.files {
            let found = transcriber.transcribe(file)?;
            answer.audio_seconds += found.duration;
            answer.texts.push(found.text);
        }
        answer.seconds = start.elapsed().as_secs_f64();
        answer.processor_seconds = processor_seconds()?.own - before;
        answer.peak_bytes = memory::of(std::process::id(), "VmHWM").unwrap_or_default();
        print_line(out, &answer)?;
    }
    Ok(())
}
