//! The values that the loop carries from step to step, and those that every step reads.

use super::body::Captured;
use super::sampling::Sampling;
use cognate_graph::Tensor;

/// The names of the carried values of [`State`], in order; the last ones of [`PerToken`], if it is
/// carried.
pub(super) const NAMES: [&str; 12] = [
    "sequences",
    "scores",
    "lengths",
    "finished",
    "running",
    "running_scores",
    "tokens",
    "improvable",
    "token_scores",
    "running_token_scores",
    "attentions",
    "running_attentions",
];

/// The result of a step of the decoder.
#[derive(Clone, Copy)]
pub(super) struct Scored<'i> {
    /// `[batch, beams, vocab]`
    pub(super) logits: Tensor<'i>,
    /// Whether no further token is allowed; bool `[]`.
    pub(super) is_last: Tensor<'i>,
    /// The cross-attention, if it is an output: `[batch, beams, 1, layers, heads, src]`.
    pub(super) attention: Option<Tensor<'i>>,
}

impl<'o> Scored<'o> {
    pub(super) fn read<'i>(self, captured: &mut Captured<'o, 'i>) -> Scored<'i> {
        let attention = self.attention.map(|attention| captured.read(attention));
        Scored {
            logits: captured.read(self.logits),
            is_last: captured.read(self.is_last),
            attention,
        }
    }
}

/// A value of each token, `[batch, beams, length, ...]`: 0 for the start token, and after the end.
#[derive(Clone, Copy)]
pub(super) struct PerToken<'i> {
    /// Of finished hypotheses; those of independent rows are only in `running`.
    pub(super) finished: Tensor<'i>,
    pub(super) running: Tensor<'i>,
}

/// The state before a step.
#[derive(Clone, Copy)]
pub(super) struct State<'i> {
    /// Finished hypotheses, best first: tokens `[batch, beams, length]`, scores, numbers of tokens,
    /// and whether they exist (0 or 1). Tokens of independent rows are only in `running`.
    pub(super) sequences: Tensor<'i>,
    pub(super) scores: Tensor<'i>,
    pub(super) lengths: Tensor<'i>,
    pub(super) finished: Tensor<'i>,
    /// Running hypotheses, best first, with their last tokens.
    pub(super) running: Tensor<'i>,
    pub(super) running_scores: Tensor<'i>,
    pub(super) tokens: Tensor<'i>,
    /// Whether running hypotheses of a sentence can still beat its finished ones; bool
    /// `[batch, 1]`.
    pub(super) improvable: Tensor<'i>,
    /// Log-probabilities and cross-attentions (`[batch, beams, length, layers, heads, src]`), if
    /// they are outputs.
    pub(super) per_token: Option<[PerToken<'i>; 2]>,
}

impl<'i> State<'i> {
    /// From the carried values, of which the first are those of the state.
    pub(super) fn of(values: &[Tensor<'i>], has_per_token: bool) -> Self {
        let [sequences, scores, lengths, finished, running, running_scores, tokens, improvable] =
            std::array::from_fn(|index| values[index]);
        let pair = |index| PerToken { finished: values[index], running: values[index + 1] };
        let per_token = has_per_token.then(|| [pair(8), pair(10)]);
        Self {
            sequences,
            scores,
            lengths,
            finished,
            running,
            running_scores,
            tokens,
            improvable,
            per_token,
        }
    }

    /// In the order of [`NAMES`].
    pub(super) fn values(self) -> Vec<Tensor<'i>> {
        let Self {
            sequences,
            scores,
            lengths,
            finished,
            running,
            running_scores,
            tokens,
            improvable,
            per_token,
        } = self;
        let per_token = per_token
            .into_iter()
            .flatten()
            .flat_map(|PerToken { finished, running }| [finished, running]);
        [sequences, scores, lengths, finished, running, running_scores, tokens, improvable]
            .into_iter()
            .chain(per_token)
            .collect()
    }
}

/// `values: [batch, beams, length, ...]` with `new: [batch, beams, 1, ...]` where
/// `is_here: [batch, beams, length]`.
pub(super) fn put<'i>(is_here: Tensor<'i>, new: Tensor<'i>, values: Tensor<'i>) -> Tensor<'i> {
    let mut shape: Vec<_> = is_here.ty().shape.dims().to_vec();
    shape.resize(values.ty().shape.rank(), 1.into());
    is_here.reshape(shape).select(new, values)
}

/// The values that every iteration reads, computed once.
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
    /// The step that chooses the last token, and the one whose token is `forced_bos_token` (-1 for
    /// none); i64 `[]`.
    pub(super) last_step: Tensor<'g>,
    pub(super) forced_step: Tensor<'g>,
    /// Lengths to the power of the length penalty; f32 `[length]`.
    pub(super) divisors: Tensor<'g>,
    /// The place of each row's first score among all; i64 `[batch, beams, 1]`.
    pub(super) first_score: Tensor<'g>,
    pub(super) length_penalty: Tensor<'g>,
    pub(super) early_stopping: Tensor<'g>,
    pub(super) forced_bos_token: Tensor<'g>,
    pub(super) repetition_penalty: Tensor<'g>,
    pub(super) no_repeat_ngram_size: Tensor<'g>,
    /// The rows of [`forbidden_rows`](super::scores::forbidden_rows), and the row of each step; i64
    /// `[length]`.
    pub(super) forbidden: Option<[Tensor<'g>; 2]>,
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
            last_step: captured.read(self.last_step),
            forced_step: captured.read(self.forced_step),
            divisors: captured.read(self.divisors),
            first_score: captured.read(self.first_score),
            length_penalty: captured.read(self.length_penalty),
            early_stopping: captured.read(self.early_stopping),
            forced_bos_token: captured.read(self.forced_bos_token),
            repetition_penalty: captured.read(self.repetition_penalty),
            no_repeat_ngram_size: captured.read(self.no_repeat_ngram_size),
            forbidden: self.forbidden.map(|both| both.map(|values| captured.read(values))),
            source: self.source.map(|source| source.map(|value| captured.read(value))),
            sampling: self.sampling.read(captured),
        }
    }
}
