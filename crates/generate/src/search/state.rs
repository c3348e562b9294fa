//! What the loop carries from step to step, and what every step reads.

use super::body::Captured;
use super::sampling::Sampling;
use cognate_graph::Tensor;

/// The names of the carried values of [`State`], in order.
pub(super) const NAMES: [&str; 8] = ["sequences", "scores", "lengths", "finished", "running", "running_scores", "tokens", "improvable"];

/// What a step of the decoder gives.
#[derive(Clone, Copy)]
pub(super) struct Scored<'i> {
    /// `[batch, beams, vocab]`
    pub(super) logits: Tensor<'i>,
    /// Whether no further token is allowed; bool `[]`.
    pub(super) is_last: Tensor<'i>,
}

impl<'o> Scored<'o> {
    pub(super) fn read<'i>(self, captured: &mut Captured<'o, 'i>) -> Scored<'i> {
        Scored { logits: captured.read(self.logits), is_last: captured.read(self.is_last) }
    }
}

/// The state before a step.
#[derive(Clone, Copy)]
pub(super) struct State<'i> {
    /// Finished hypotheses, best first: tokens `[batch, beams, length]`, scores, numbers of tokens, and whether (0 or 1). Tokens of
    /// independent rows are in `running` alone.
    pub(super) sequences: Tensor<'i>,
    pub(super) scores: Tensor<'i>,
    pub(super) lengths: Tensor<'i>,
    pub(super) finished: Tensor<'i>,
    /// Running hypotheses, best first, with their last tokens.
    pub(super) running: Tensor<'i>,
    pub(super) running_scores: Tensor<'i>,
    pub(super) tokens: Tensor<'i>,
    /// Whether a sentence's finished hypotheses can still be beaten; bool `[batch, 1]`.
    pub(super) improvable: Tensor<'i>,
}

impl<'i> State<'i> {
    /// From the carried values, of which the first are those of the state.
    pub(super) fn of(values: &[Tensor<'i>]) -> Self {
        let [sequences, scores, lengths, finished, running, running_scores, tokens, improvable] =
            std::array::from_fn(|index| values[index]);
        Self { sequences, scores, lengths, finished, running, running_scores, tokens, improvable }
    }

    /// In the order of [`NAMES`].
    pub(super) fn values(self) -> [Tensor<'i>; 8] {
        let Self { sequences, scores, lengths, finished, running, running_scores, tokens, improvable } = self;
        [sequences, scores, lengths, finished, running, running_scores, tokens, improvable]
    }
}

/// What every iteration reads: computed once.
pub(super) struct Fixed<'g> {
    /// The number of beams, `K`; i64 `[]`.
    pub(super) beams: Tensor<'g>,
    /// Whether each beam continues itself: one beam, or samples.
    pub(super) is_independent: Tensor<'g>,
    /// The continuations of each beam, i64 `[]`, and their ranks `[width]`.
    pub(super) width: Tensor<'g>,
    pub(super) ranks: Tensor<'g>,
    /// The first row of each sentence among `batch · beams`; i64 `[batch, 1]`.
    pub(super) first_row: Tensor<'g>,
    /// The places of a sequence; i64 `[1, 1, length]`.
    pub(super) places: Tensor<'g>,
    pub(super) max_length: Tensor<'g>,
    pub(super) min_length: Tensor<'g>,
    pub(super) length_penalty: Tensor<'g>,
    pub(super) early_stopping: Tensor<'g>,
    pub(super) forced_bos_token: Tensor<'g>,
    pub(super) repetition_penalty: Tensor<'g>,
    pub(super) no_repeat_ngram_size: Tensor<'g>,
    /// The source's tokens and mask, if constraints read them.
    pub(super) source: Option<[Tensor<'g>; 2]>,
    pub(super) sampling: Sampling<'g>,
}

impl<'o> Fixed<'o> {
    pub(super) fn read<'i>(&self, captured: &mut Captured<'o, 'i>) -> Fixed<'i> {
        Fixed {
            beams: captured.read(self.beams),
            is_independent: captured.read(self.is_independent),
            width: captured.read(self.width),
            ranks: captured.read(self.ranks),
            first_row: captured.read(self.first_row),
            places: captured.read(self.places),
            max_length: captured.read(self.max_length),
            min_length: captured.read(self.min_length),
            length_penalty: captured.read(self.length_penalty),
            early_stopping: captured.read(self.early_stopping),
            forced_bos_token: captured.read(self.forced_bos_token),
            repetition_penalty: captured.read(self.repetition_penalty),
            no_repeat_ngram_size: captured.read(self.no_repeat_ngram_size),
            source: self.source.map(|source| source.map(|value| captured.read(value))),
            sampling: self.sampling.read(captured),
        }
    }
}
