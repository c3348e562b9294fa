//! `cognate-bench measure train`: the time of updates of a training run, for
//! `cargo xtask bench train`.
//!
//! The run is the loop of `cognate train`, which waits between requests, so that several programs
//! can run in turn. First it writes the files that other programs need for the same work:
//! `config.json`, and the batches as lines of JSON.

use super::print_line;
use crate::driver::{Answer, Greeting};
use anyhow::{Context, Result, bail};
use cognate_model::interface::{ATTENTION_MASK, DECODER_INPUT_IDS, INPUT_IDS, LABELS};
use cognate_runtime::{Device, Engine};
use cognate_text::Tokenizer;
use cognate_train::config::TrainingConfig;
use cognate_train::{
    Batches, Beginning, Corpus, Event, Framing, IGNORED, Machine, Position, Trainer,
};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use xtask::memory;

/// Measure updates of a training run
///
/// Answers requests on standard input, one per line: {"updates": 8}. Prints lines of JSON: first
/// the engine, then one for each request.
#[derive(clap::Args)]
pub struct Train {
    /// Settings of the run, with tokenizer.from
    #[arg(value_name = "CONFIG.toml")]
    pub config: PathBuf,
    /// Folder of the run, empty or new
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Inference engine: auto, tract or ort
    #[arg(long, default_value = "auto")]
    pub engine: Engine,
    /// Device of the engine: cpu, cuda or cuda:NUMBER
    #[arg(long, default_value_t)]
    pub device: Device,
    /// First write config.json and batches.jsonl into this folder
    #[arg(long, value_name = "DIR", requires = "batches")]
    pub write: Option<PathBuf>,
    /// Number of batches to write
    #[arg(long, value_name = "N")]
    pub batches: Option<usize>,
}

/// Updates that are measured together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub updates: NonZeroU64,
}

/// Runs the command.
pub fn run(options: &Train, out: &mut dyn Write) -> Result<()> {
    let memory = |field| memory::of(std::process::id(), field).unwrap_or_default();
    let base_bytes = memory("VmRSS");
    let mut config = TrainingConfig::read(&options.config)?;
    // Requests end the run; its log has the time in the engine.
    (config.schedule.max_updates, config.schedule.validate_every, config.schedule.log_every) =
        (Some(u64::MAX), u64::MAX, 1);
    let runtime = options.engine.open(options.device)?;
    let mut trainer = Trainer::new(
        config.clone(),
        &options.out,
        Beginning::Fresh,
        Machine::alone(&*runtime, options.device),
    )?;
    if let (Some(folder), Some(count)) = (&options.write, options.batches) {
        write(folder, &config, &trainer, count)?;
    }
    let parameters = trainer.model().parameters() as u64;
    print_line(out, &Greeting { engine: trainer.engine().into(), parameters, base_bytes })?;
    let mut requests = io::stdin().lines();
    let mut next = || -> Result<Option<u64>> {
        let Some(line) = requests.next() else { return Ok(None) };
        let request: Request =
            serde_json::from_str(&line?).context("standard input: expected {\"updates\": N}")?;
        Ok(Some(request.updates.get()))
    };
    let Some(mut left) = next()? else { return Ok(()) };
    let (mut answer, mut start, mut logged, mut failure) =
        (Answer::default(), Instant::now(), 0.0, None);
    trainer.run(&mut |event| {
        match event {
            Event::Logged(stretch) => {
                // The line is that of one update. Its seconds are its tokens divided by their
                // speed.
                logged = stretch.engine_share / stretch.tokens_per_second;
                return ControlFlow::Continue(());
            }
            Event::Update(progress) => {
                answer.tokens += progress.tokens as usize;
                *answer.seconds_in_graph.get_or_insert(0.0) += progress.tokens as f64 * logged;
                answer.loss = Some(progress.loss);
                left -= 1;
            }
            Event::Validated(_) | Event::Saved(_) | Event::LeftOut(_) => {
                return ControlFlow::Continue(());
            }
        }
        if left > 0 {
            return ControlFlow::Continue(());
        }
        (answer.seconds, answer.peak_bytes) = (start.elapsed().as_secs_f64(), memory("VmHWM"));
        let asked = print_line(out, &std::mem::take(&mut answer)).and_then(|()| next());
        start = Instant::now();
        match asked {
            Ok(Some(updates)) => {
                left = updates;
                ControlFlow::Continue(())
            }
            Ok(None) => ControlFlow::Break(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failure.map_or(Ok(()), Err)
}

/// Writes the files that other programs need to train the same model on the same batches.
pub fn write(
    folder: &Path,
    config: &TrainingConfig,
    trainer: &Trainer<'_>,
    count: usize,
) -> Result<()> {
    let Some(tokenizer) = &config.tokenizer.from else {
        bail!("tokenizer.from is missing: batches are written with a given tokenizer")
    };
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::write(folder.join("config.json"), trainer.model().config_json())?;
    let model = trainer.model().config();
    let token = |id: usize| id as i64;
    let (start, pad) = (token(model.start_token), token(model.pad_token));
    let framing = Framing {
        start,
        prefix: Vec::new(),
        suffix: vec![token(model.eos_token)],
        pad,
        label_padding: IGNORED,
    };
    let corpus = Arc::new(Corpus::open(&config.train_files(), &config.cleaning())?);
    let tokenizer = Arc::new(Tokenizer::from_folder(tokenizer)?);
    let batches =
        Batches::new(corpus, tokenizer, config.batch_settings(framing), Position::default())?;
    let path = folder.join("batches.jsonl");
    let mut file = BufWriter::new(File::create(&path).with_context(|| path.display().to_string())?);
    for batch in batches.take(count) {
        let arrays = batch?.arrays();
        let fields = [
            (INPUT_IDS, &arrays.input_ids),
            (ATTENTION_MASK, &arrays.attention_mask),
            (DECODER_INPUT_IDS, &arrays.decoder_input_ids),
            (LABELS, &arrays.labels),
        ];
        let rows = fields.map(|(name, array)| {
            (
                name.to_owned(),
                array.rows().into_iter().map(|row| row.to_vec()).collect::<Vec<_>>().into(),
            )
        });
        writeln!(file, "{}", serde_json::Value::Object(rows.into_iter().collect()))?;
    }
    Ok(file.flush()?)
}
