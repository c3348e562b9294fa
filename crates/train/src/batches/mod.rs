//! Batches of token ids, in seeded order.
//!
//! corpus -> windows of 65,536 lines in random blocks -> ids -> sorted by length -> batches,
//! shuffled
//!
//! An epoch has each sentence once. Its order depends on the seed and the epoch's number alone, so
//! a [`Position`] of three numbers brings a run back to where it was. Memory holds two or three
//! windows, whatever the size of the corpus.

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

/// How batches are made.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchSettings {
    /// Tokens of a batch at most on each side, padding included: sentences times the longest.
    pub max_tokens: usize,
    /// Sentences of a batch at most; `None` for any number.
    pub max_sentences: Option<usize>,
    /// Longer sources, special tokens included, are left out.
    pub max_source_tokens: usize,
    /// Longer targets, special tokens included, are left out.
    pub max_target_tokens: usize,
    /// Pairs are left out where one side has more than so many times the pieces of the other;
    /// `None` for any ratio.
    pub max_ratio: Option<f64>,
    /// Subword regularisation's `α` (Kudo 2018); `None` leaves the words in their likeliest pieces.
    pub subword_sampling: Option<f64>,
    /// Decides the order.
    pub seed: u64,
    /// What stands around a target.
    pub framing: Framing,
}

impl Default for BatchSettings {
    /// 2,048 tokens a side, sentences of at most 256.
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

/// A place in the endless order of batches: that of the next one to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Epochs that are over.
    pub epoch: u64,
    /// Windows of the epoch that are over.
    pub window: u64,
    /// Batches of the window that are over.
    pub batch: u64,
}

/// Batches without end, epoch after epoch.
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
    /// Batches that a resumed run has had already, in the window that comes first.
    skip: u64,
    /// Left out since the batch before.
    left_out: LeftOut,
    /// Left out since the epoch began, as long as it had no batch.
    unfit: Option<LeftOut>,
    failed: bool,
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Batches").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Batches {
    /// Batches from a position on; [`Position::default`] is the beginning.
    ///
    /// # Errors
    /// If settings have no meaning, or a file cannot be opened. The iterator's: if a file changed,
    /// the tokenizer fails on a text, or an epoch has no pair that fits; nothing follows an error.
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

    /// The same batches, made by threads: one tokenizes a window ahead, the other has `depth`
    /// batches ready.
    pub fn prefetched(self, depth: usize) -> Prefetch<Result<TrainingBatch>> {
        let stop = self.stop.clone();
        let windows = Prefetch::stopping(self.windows, 1, stop.clone());
        Prefetch::stopping(Self { windows: Box::new(windows), ..self }, depth, stop)
    }

    /// Makes the batches of the next window; `None` where windows end, which is when they are told
    /// to stop.
    fn advance(&mut self) -> Result<Option<()>> {
        let Some(window) = self.windows.next().transpose()? else { return Ok(None) };
        self.left_out += window.left_out;
        let batches = bucket::batches(&window, &self.settings);
        if window.index == 0 {
            self.unfit = Some(LeftOut::default());
        }
        // A run that begins in the middle of an epoch cannot tell whether it had batches.
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
