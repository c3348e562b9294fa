//! `cognate-bench measure decode`: the time of whole calls of the decoder, from token ids to token
//! ids.

use super::print_line;
use crate::driver::Answer;
use anyhow::{Context, Result, ensure};
use cognate_folder::{Configuration, ExportedGraphs, find_graphs, find_layout};
use cognate_generate::{Decoder, SentenceBatch, Settings, Sources, decode, decoder as decoder_of};
use cognate_model::Config;
use cognate_runtime::{
    Device, Engine, Options as Load, Result as Ran, Session, Source, Value, Values,
};
use ndarray::ArrayD;
use serde::Deserialize;
use serde_json::json;
use std::io::{self, BufRead, Write};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xtask::memory;

/// Measure whole calls of the decoder, from token ids to token ids
///
/// No sentence ends before its limit, so that all calls do the same work. Prints lines of JSON.
#[derive(clap::Args)]
pub struct Decode {
    /// Folder of an export
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Inference engine: auto, tract or ort
    #[arg(long, default_value = "auto")]
    pub engine: Engine,
    /// Device of the engine: cpu or cuda
    #[arg(long, default_value = "cpu")]
    pub device: Device,
    /// Number of threads of ONNX Runtime [default: its own choice]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Use only ONNX Runtime's operators, not Cognate's
    #[arg(long)]
    pub plain: bool,
    /// Do not use huge pages for the model
    #[arg(long)]
    pub no_huge_pages: bool,
    /// Answer requests on standard input, one per line: {"sources": [[5, 6, 0]], "beams": 4,
    /// "new_tokens": 32}, of a speech model "windows" and a "prompt" instead of "sources"
    #[arg(long)]
    pub requests: bool,
    /// Number of sentences of a call, of equal lengths
    #[arg(long, value_name = "N", default_value = "1")]
    pub batch: NonZeroUsize,
    /// Number of hypotheses of a sentence; 1 is greedy
    #[arg(long, value_name = "N", default_value = "1")]
    pub beams: NonZeroUsize,
    /// Number of tokens of a source, the end token included
    #[arg(long, value_name = "N", default_value = "24")]
    pub source_tokens: NonZeroUsize,
    /// Number of new tokens of a sentence
    #[arg(long, value_name = "N", default_value = "32")]
    pub new_tokens: NonZeroUsize,
    /// Number of calls
    #[arg(long, value_name = "N", default_value = "5")]
    pub rounds: NonZeroUsize,
}

/// One call.
#[derive(Debug, Deserialize)]
pub struct Request {
    /// Token ids, each source with its end token.
    #[serde(default)]
    pub sources: Vec<Vec<i64>>,
    /// Number of windows of random frames.
    #[serde(default)]
    pub windows: usize,
    /// Tokens of each target after the start token.
    #[serde(default)]
    pub prompt: Vec<i64>,
    pub beams: NonZeroUsize,
    pub new_tokens: NonZeroUsize,
}

/// Runs the command.
pub fn run(options: &Decode, out: &mut dyn Write) -> Result<()> {
    let start = Instant::now();
    let mut load = Load::default();
    (load.device, load.threads, load.plain) = (options.device, options.threads, options.plain);
    load.huge_pages = !options.no_huge_pages;
    let mut model = Loaded::open(&options.model, options.engine, &load)?;
    let loaded =
        json!({ "engine": model.decoder.engine(), "load_seconds": start.elapsed().as_secs_f64() });
    print_line(out, &loaded)?;
    if options.requests {
        for line in io::stdin().lock().lines() {
            let line = line.context("standard input")?;
            let request: Request = serde_json::from_str(&line)
                .context("standard input: expected {sources, beams, new_tokens}")?;
            print_line(out, &model.measure(&request)?)?;
        }
    } else {
        let request = options.request(&model.config);
        for _ in 0..options.rounds.get() {
            print_line(out, &model.measure(&request)?)?;
        }
    }
    Ok(())
}

impl Decode {
    /// A call on generated tokens, the same in all runs.
    pub fn request(&self, config: &Config) -> Request {
        let vocab = config.source_vocab.max(1);
        // 7919 is prime, so that tokens repeat late.
        let token = |index: usize| ((index + 1) * 7919 % vocab) as i64;
        let inner = self.source_tokens.get() - 1;
        let source = |sentence: usize| {
            let tokens = (0..inner).map(|position| token(sentence * inner + position));
            tokens.chain([config.eos_token as i64]).collect()
        };
        Request {
            sources: (0..self.batch.get()).map(source).collect(),
            windows: 0,
            prompt: Vec::new(),
            beams: self.beams,
            new_tokens: self.new_tokens,
        }
    }
}

/// The frames of a window of 30 s, and the sizes of each.
const FRAMES: usize = 3000;
const MELS: usize = 80;

/// Maximum number of windows of a call, 3.9 GB of frames.
const MOST_WINDOWS: usize = 4096;

/// Random frames of windows, the same in every run.
fn frames(windows: usize) -> ArrayD<f32> {
    let mut state = 1u32;
    ArrayD::from_shape_simple_fn(vec![windows, MELS, FRAMES], || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    })
}

/// A model in memory.
pub struct Loaded {
    pub decoder: Box<dyn Decoder>,
    pub config: Config,
    pub settings: Settings,
    pub in_graph: Arc<AtomicU64>,
}

impl Loaded {
    pub fn open(folder: &Path, engine: Engine, load: &Load) -> Result<Self> {
        find_layout(folder)
            .with_context(|| format!("{}: expected the folder of an export", folder.display()))?;
        let Configuration { config_json, config, generation_json } = Configuration::read(folder)?;
        let settings = Settings::from_json(&config_json, generation_json.as_deref(), &config)?;
        let runtime = engine.open(load.device)?;
        let in_graph = Arc::new(AtomicU64::new(0));
        let ExportedGraphs { layout, files } = find_graphs(folder, runtime.engine(), load.device)?;
        let session = |file: &PathBuf| -> Result<Box<dyn Session>> {
            let inner = runtime.load(&Source::Onnx(file.clone()), load)?;
            Ok(Box::new(Timed { inner, spent: in_graph.clone() }))
        };
        let sessions = files.iter().map(session).collect::<Result<Vec<_>>>()?;
        let decoder = decoder_of(layout, sessions, &config, settings.pad_token)?;
        Ok(Self { decoder, config, settings, in_graph })
    }

    pub fn measure(&mut self, request: &Request) -> Result<Answer> {
        let mut settings = self.settings.clone();
        settings.num_beams = request.beams.get();
        (settings.min_new_tokens, settings.max_new_tokens) =
            (request.new_tokens.get(), request.new_tokens.get());
        (settings.forced_bos_token, settings.forced_eos_token) = (None, None);
        let is_text = request.windows == 0;
        ensure!(
            is_text || request.sources.is_empty() && request.windows <= MOST_WINDOWS,
            "expected sources, or up to {MOST_WINDOWS} windows, found {} sources and {} windows",
            request.sources.len(),
            request.windows
        );
        let frames = (!is_text).then(|| frames(request.windows));
        let before = self.in_graph.load(Ordering::Relaxed);
        let start = Instant::now();
        let sources = match &frames {
            Some(frames) => Sources::Features(frames),
            None => Sources::Tokens(&request.sources),
        };
        let prefixes = vec![request.prompt.clone(); sources.len()];
        let batch = SentenceBatch { prefixes: &prefixes, ..SentenceBatch::new(sources) };
        let hypotheses =
            decode(self.decoder.as_mut(), &batch, &settings, &mut |_| ControlFlow::Continue(()))?;
        let seconds = start.elapsed().as_secs_f64();
        let in_graph = Duration::from_nanos(self.in_graph.load(Ordering::Relaxed) - before);
        let found = hypotheses.iter().filter_map(|found| found.first());
        let tokens =
            found.map(|found| found.tokens.len().saturating_sub(request.prompt.len())).sum();
        let expected = batch.sources.len() * request.new_tokens.get();
        ensure!(tokens == expected, "expected {expected} tokens, found {tokens}");
        let peak_bytes = memory::of(std::process::id(), "VmHWM").unwrap_or_default();
        Ok(Answer {
            seconds,
            seconds_in_graph: Some(in_graph.as_secs_f64()),
            tokens,
            peak_bytes,
            loss: None,
        })
    }
}

/// A session that counts its time.
pub struct Timed {
    pub inner: Box<dyn Session>,
    /// Nanoseconds.
    pub spent: Arc<AtomicU64>,
}

impl Session for Timed {
    fn engine(&self) -> &str {
        self.inner.engine()
    }

    fn inputs(&self) -> &[String] {
        self.inner.inputs()
    }

    fn outputs(&self) -> &[String] {
        self.inner.outputs()
    }

    fn has_own_lengths(&self) -> bool {
        self.inner.has_own_lengths()
    }

    fn supports_prefill(&self) -> bool {
        self.inner.supports_prefill()
    }

    fn takes_shortlist(&self) -> bool {
        self.inner.takes_shortlist()
    }

    fn finds_best(&self) -> bool {
        self.inner.finds_best()
    }

    fn has_own_memory(&self) -> bool {
        self.inner.has_own_memory()
    }

    fn reserve(&self, input: &str, shape: &[usize]) -> Ran<Option<Value>> {
        self.inner.reserve(input, shape)
    }

    fn with_rows(&self, whole: Value, first: usize, rows: &Value) -> Ran<Value> {
        self.inner.with_rows(whole, first, rows)
    }

    fn select(&self, value: &Value, leading: &[usize], rows: &[usize]) -> Ran<Option<Value>> {
        self.inner.select(value, leading, rows)
    }

    fn widened(&self, cache: &Value, places: usize) -> Ran<Option<Value>> {
        self.inner.widened(cache, places)
    }

    fn run(&mut self, inputs: &Values) -> Ran<Values> {
        self.timed(|session| session.run(inputs))
    }

    fn run_in_place(&mut self, state: &mut Values, pairs: &[(String, String)]) -> Ran<Values> {
        self.timed(|session| session.run_in_place(state, pairs))
    }
}

impl Timed {
    pub fn timed(&mut self, run: impl FnOnce(&mut dyn Session) -> Ran<Values>) -> Ran<Values> {
        let start = Instant::now();
        let found = run(self.inner.as_mut());
        self.spent.fetch_add(
            u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
        found
    }
}
