//! A batch: its sentences, and the arrays that a teacher-forced model reads.
//!
//! `input_ids`, `attention_mask`: `[batch, src]`; `decoder_input_ids`, `labels`, `label_mask`:
//! `[batch, tgt]`; i64
//!
//! The decoder reads its target shifted by one: `labels = w_1 .. w_n </s>`,
//! `decoder_input_ids = <start> w_1 .. w_n`.

use std::sync::Arc;

use ndarray::Array2;

use super::encode::Encoded;
use super::{BatchSettings, Position};
use crate::corpus::Place;
use crate::left_out::LeftOut;

/// The label of padding in PyTorch and transformers.
pub const IGNORED: i64 = -100;

/// The tokens around a target, and the padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framing {
    /// The first token that the decoder reads; it is never predicted.
    pub start: i64,
    /// Predicted before the sentence: a language's code (mBART-50, M2M100), `<s>` (BART).
    pub prefix: Vec<i64>,
    /// Predicted after the sentence: `</s>`.
    pub suffix: Vec<i64>,
    /// Fills short rows of ids.
    pub pad: i64,
    /// Fills short rows of labels: [`IGNORED`], or an id that the loss accepts.
    pub label_padding: i64,
}

impl Default for Framing {
    /// That of Marian with the ids of a tokenizer trained by this crate: `</s>` 0, `<pad>` 2;
    /// decoding starts from `<pad>`.
    fn default() -> Self {
        Self { start: 2, prefix: Vec::new(), suffix: vec![0], pad: 2, label_padding: IGNORED }
    }
}

/// A batch of pairs of sentences.
#[derive(Clone, Debug)]
pub struct TrainingBatch {
    pairs: Vec<Arc<Encoded>>,
    settings: Arc<BatchSettings>,
    position: Position,
    next: Position,
    pub(super) left_out: LeftOut,
}

/// The inputs and labels of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrays {
    /// `[batch, src]`: the sources, padded.
    pub input_ids: Array2<i64>,
    /// `[batch, src]`: 1 for tokens, 0 for padding.
    pub attention_mask: Array2<i64>,
    /// `[batch, tgt]`: the start token and all labels except the last, padded.
    pub decoder_input_ids: Array2<i64>,
    /// `[batch, tgt]`: the tokens to predict, padded with [`Framing::label_padding`].
    pub labels: Array2<i64>,
    /// `[batch, tgt]`: 1 for labels, 0 for padding.
    pub label_mask: Array2<i64>,
}

impl TrainingBatch {
    pub(super) fn new(
        pairs: Vec<Arc<Encoded>>,
        settings: Arc<BatchSettings>,
        position: Position,
        next: Position,
    ) -> Self {
        Self { pairs, settings, position, next, left_out: LeftOut::default() }
    }

    /// Number of pairs of sentences.
    pub fn n_sentences(&self) -> usize {
        self.pairs.len()
    }

    /// Number of source tokens, without padding.
    pub fn source_tokens(&self) -> usize {
        self.pairs.iter().map(|pair| pair.source.len()).sum()
    }

    /// Number of target tokens, without padding; the loss is summed over these.
    pub fn target_tokens(&self) -> usize {
        self.pairs.iter().map(|pair| pair.labels.len()).sum()
    }

    /// Number of tokens of both sides, including padding.
    pub fn padded_tokens(&self) -> usize {
        let (source, target) = self.longest();
        self.n_sentences() * (source + target)
    }

    /// The position of the batch in the order.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The position after the batch, from which a run resumes.
    pub fn next_position(&self) -> Position {
        self.next
    }

    /// The pairs left out since the previous batch.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// The places of its sentences in the corpus, row by row.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.pairs.iter().map(|pair| pair.place)
    }

    /// One rank's share: the sentences that [`shard`] assigns to it. It can be empty if there are
    /// fewer sentences than ranks.
    ///
    /// Every rank makes the same batches and divides its sums by [`TrainingBatch::target_tokens`]
    /// of the whole batch.
    #[must_use]
    pub fn shard(&self, rank: usize, n_ranks: usize) -> TrainingBatch {
        let pairs = shard(self.n_sentences(), rank, n_ranks)
            .map(|index| Arc::clone(&self.pairs[index]))
            .collect();
        TrainingBatch { pairs, ..self.clone() }
    }

    /// The arrays, padded to the longest sentence of each side.
    pub fn arrays(&self) -> Arrays {
        let (source, target) = self.longest();
        let framing = &self.settings.framing;
        let rows = self.pairs.len();
        let mut arrays = Arrays {
            input_ids: Array2::from_elem((rows, source), framing.pad),
            attention_mask: Array2::zeros((rows, source)),
            decoder_input_ids: Array2::from_elem((rows, target), framing.pad),
            labels: Array2::from_elem((rows, target), framing.label_padding),
            label_mask: Array2::zeros((rows, target)),
        };
        for (row, pair) in self.pairs.iter().enumerate() {
            for (column, &id) in pair.source.iter().enumerate() {
                arrays.input_ids[[row, column]] = id.into();
                arrays.attention_mask[[row, column]] = 1;
            }
            let mut before = framing.start;
            for (column, &id) in pair.labels.iter().enumerate() {
                arrays.decoder_input_ids[[row, column]] = before;
                arrays.labels[[row, column]] = id.into();
                arrays.label_mask[[row, column]] = 1;
                before = id.into();
            }
        }
        arrays
    }

    /// Lengths of the longest source and the longest target, in tokens.
    fn longest(&self) -> (usize, usize) {
        let longest = |length: fn(&Encoded) -> usize| {
            self.pairs.iter().map(|pair| length(pair)).max().unwrap_or(0)
        };
        (longest(|pair| pair.source.len()), longest(|pair| pair.labels.len()))
    }
}

/// The rows of a batch of `n` that belong to `rank`: every `n_ranks`-th. Rows are sorted by length,
/// so the shares are similar.
///
/// ```
/// let rows: Vec<Vec<usize>> = (0..3).map(|rank| cognate_train::shard(5, rank, 3).collect()).collect();
/// assert_eq!(rows, [vec![0, 3], vec![1, 4], vec![2]]);
/// ```
///
/// # Panics
/// If `rank` is not below `n_ranks`.
pub fn shard(n: usize, rank: usize, n_ranks: usize) -> impl Iterator<Item = usize> {
    assert!(rank < n_ranks, "rank {rank} of {n_ranks}");
    (rank..n).step_by(n_ranks)
}
