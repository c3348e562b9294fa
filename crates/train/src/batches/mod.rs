//! Batches of token ids, in seeded order.
//!
//! corpus -> windows of 65,536 lines in random blocks -> ids -> sorted by length -> batches,
//! shuffled
//!
//! An epoch contains each sentence once. Its order depends only on the seed and the number of the
//! epoch, so a run resumes at a [`Position`] of three numbers. Memory contains two or three
//! windows, regardless of the size of the corpus.

mod arrays;
mod bucket;
mod encode;
pub(crate) mod order;
mod windows;

use std::collections::VecDeque;
use std::sync::Arc;

use cognate_text::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::corpus::Corpus;
use crate::error::{Cause, Result};
use crate::left_out::LeftOut;
use crate::prefetch::{Prefetch, Stop};

pub use arrays::{Arrays, Framing, IGNORED, TrainingBatch, shard};
use windows::{Window, Windows};

/// Settings of batches.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchSettings {
    /// Maximum number of tokens of a batch on each side, including padding: sentences times the
    /// longest.
    pub max_tokens: usize,
    /// Maximum number of sentences of a batch; `None` for no limit.
    pub max_sentences: Option<usize>,
    /// Maximum number of tokens of a source, including special tokens; longer pairs are left out.
    pub max_source_tokens: usize,
    /// Maximum number of tokens of a target, including special tokens; longer pairs are left out.
    pub max_target_tokens: usize,
    /// Maximum ratio of the numbers of pieces of both sides; other pairs are left out. `None` for
    /// no limit.
    pub max_ratio: Option<f64>,
    /// `α` of subword regularisation (Kudo 2018); `None` for the most likely pieces of each word.
    pub subword_sampling: Option<f64>,
    /// Seed of the order.
    pub seed: u64,
    /// The tokens around a target.
    pub framing: Framing,
}

impl Default for BatchSettings {
    /// 2,048 tokens per side, sentences of at most 256 tokens.
    fn default() -> Self {
        Self {
            max_tokens: 2_048,
            max_sentences: None,
            max_source_tokens: 256,
            max_target_tokens: 256,
            max_ratio: None,
            subword_sampling: None,
            seed: 1,
            framing: Framing::default(),
        }
    }
}

impl BatchSettings {
    fn check(&self) -> Result<()> {
        let wrong = |field, found: String, expected: String| {
            Err(Cause::Setting { field, found, expected }.into())
        };
        for (field, found) in [
            ("max_source_tokens", self.max_source_tokens),
            ("max_target_tokens", self.max_target_tokens),
        ] {
            if !(1..=self.max_tokens).contains(&found) {
                return wrong(
                    field,
                    found.to_string(),
                    format!("1 to max_tokens, which is {}", self.max_tokens),
                );
            }
        }
        if self.max_sentences == Some(0) {
            return wrong("max_sentences", "0".to_owned(), "at least 1".to_owned());
        }
        if let Some(alpha) =
            self.subword_sampling.filter(|alpha| !(alpha.is_finite() && *alpha > 0.0))
        {
            return wrong("subword_sampling", alpha.to_string(), "a number above 0".to_owned());
        }
        match self.max_ratio {
            Some(ratio) if ratio.is_nan() || ratio < 1.0 => {
                wrong("max_ratio", ratio.to_string(), "at least 1".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// A position in the endless order of batches: that of the next batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Number of completed epochs.
    pub epoch: u64,
    /// Number of completed windows of the epoch.
    pub window: u64,
    /// Number of completed batches of the window.
    pub batch: u64,
}

impl Position {
    /// The epoch of the last batch before it, from 1.
    pub fn last_epoch(&self) -> u64 {
        let is_inside = self.window > 0 || self.batch > 0;
        (self.epoch + u64::from(is_inside)).max(1)
    }
}

/// An endless iterator of batches, epoch after epoch.
///
/// ```
/// use cognate_text::Tokenizer;
/// use cognate_train::{BatchSettings, Batches, Cleaning, Corpus, Files, Position};
/// use std::sync::Arc;
///
/// # let folder = tempfile::tempdir()?;
/// # let [source, target] = ["train.en", "train.de"].map(|name| folder.path().join(name));
/// # std::fs::write(&source, "A man.\nA man in an orange hat.\n")?;
/// # std::fs::write(&target, "Ein Mann.\nEin Mann mit Hut.\n")?;
/// # let checkpoint = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/multi30k-en-de");
/// let corpus = Arc::new(Corpus::open(&[Files::Parallel { source, target }], &Cleaning::default())?);
/// let tokenizer = Arc::new(Tokenizer::from_folder(checkpoint)?);
/// let batches = Batches::new(corpus, tokenizer, BatchSettings::default(), Position::default())?;
/// for batch in batches.prefetched(4).take(3) {
///     let batch = batch?;
///     let arrays = batch.arrays();
///     assert_eq!(arrays.labels.dim().0, batch.n_sentences());
///     let resume_here: Position = batch.next_position();
/// #   assert!(resume_here > Position::default());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Batches {
    windows: Box<dyn Iterator<Item = Result<Window>> + Send>,
    stop: Stop,
    settings: Arc<BatchSettings>,
    ready: VecDeque<TrainingBatch>,
    /// Number of batches of the first window that a resumed run has already used.
    skip: u64,
    /// Left out since the previous batch.
    left_out: LeftOut,
    /// Left out since the epoch began; `None` once the epoch has had a batch.
    unfit: Option<LeftOut>,
    failed: bool,
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Batches").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Batches {
    /// Starts at a position; [`Position::default`] is the beginning.
    ///
    /// # Errors
    /// If settings are invalid or a file cannot be opened. The iterator fails if a file changed,
    /// the tokenizer fails on a text, or no pair of an epoch fits into a batch; it ends after an
    /// error.
    pub fn new(
        corpus: Arc<Corpus>,
        tokenizer: Arc<Tokenizer>,
        settings: BatchSettings,
        position: Position,
    ) -> Result<Self> {
        settings.check()?;
        let settings = Arc::new(settings);
        let stop = Stop::default();
        let windows =
            Windows::new(corpus, tokenizer, Arc::clone(&settings), position, stop.clone())?;
        Ok(Self {
            windows: Box::new(windows),
            stop,
            settings,
            ready: VecDeque::new(),
            skip: position.batch,
            left_out: LeftOut::default(),
            unfit: None,
            failed: false,
        })
    }

    /// The same batches, made by threads: one tokenizes the next window, the other keeps `depth`
    /// batches ready.
    pub fn prefetched(self, depth: usize) -> Prefetch<Result<TrainingBatch>> {
        let stop = self.stop.clone();
        let windows = Prefetch::stopping(self.windows, 1, stop.clone());
        Prefetch::stopping(Self { windows: Box::new(windows), ..self }, depth, stop)
    }

    /// Makes the batches of the next window; `None` if the iterator was stopped.
    fn advance(&mut self) -> Result<Option<()>> {
        let Some(window) = self.windows.next().transpose()? else { return Ok(None) };
        self.left_out += window.left_out;
        let batches = bucket::batches(&window, &self.settings);
        if window.index == 0 {
            self.unfit = Some(LeftOut::default());
        }
        // A run that begins in the middle of an epoch cannot know whether the epoch had batches.
        match &mut self.unfit {
            unfit if !batches.is_empty() => *unfit = None,
            Some(unfit) => {
                *unfit += window.left_out;
                if window.is_last {
                    Err(Cause::NothingFits(*unfit))?;
                }
            }
            None => {}
        }
        let n_batches = batches.len() as u64;
        let skip = std::mem::take(&mut self.skip);
        for (pairs, batch) in batches.into_iter().zip(0..).skip(skip as usize) {
            let position = Position { epoch: window.epoch, window: window.index, batch };
            let next = match batch + 1 < n_batches {
                true => Position { batch: batch + 1, ..position },
                false if window.is_last => {
                    Position { epoch: window.epoch + 1, window: 0, batch: 0 }
                }
                false => Position { window: window.index + 1, batch: 0, ..position },
            };
            self.ready.push_back(TrainingBatch::new(
                pairs,
                Arc::clone(&self.settings),
                position,
                next,
            ));
        }
        if let Some(first) = self.ready.front_mut() {
            first.left_out = std::mem::take(&mut self.left_out);
        }
        Ok(Some(()))
    }
}

impl Iterator for Batches {
    type Item = Result<TrainingBatch>;

    fn next(&mut self) -> Option<Result<TrainingBatch>> {
        while !self.failed && self.ready.is_empty() {
            match self.advance() {
                Ok(Some(())) => {}
                Ok(None) => return None,
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        self.ready.pop_front().map(Ok)
    }
}
