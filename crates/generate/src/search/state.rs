//! The values that the loop carries from step to step, and those that every step reads.

use super::body::Captured;
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
    "open",
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
    /// Whether the result of a sentence can still change: running hypotheses can become better than
    /// its finished ones, or independent rows have not ended; bool `[batch, 1]`.
    pub(super) open: Tensor<'i>,
    /// Log-probabilities and cross-attentions (`[batch, beams, length, layers, heads, src]`), if
    /// they are outputs.
    pub(super) per_token: Option<[PerToken<'i>; 2]>,
}

impl<'i> State<'i> {
    /// From the carried values, of which the first are those of the state.
    pub(super) fn of(values: &[Tensor<'i>], has_per_token: bool) -> Self {
        let [sequences, scores, lengths, finished, running, running_scores, tokens, open] =
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
            open,
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
            open,
            per_token,
        } = self;
        let per_token = per_token
            .into_iter()
            .flatten()
            .flat_map(|PerToken { finished, running }| [finished, running]);
        [sequences, scores, lengths, finished, running, running_scores, tokens, open]
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
    /// The number of beams, `K`, and the number of the last; i64 `[]`.
    pub(super) beams: Tensor<'g>,
    pub(super) last_beam: Tensor<'g>,
    /// Whether each beam continues itself: one beam, or samples.
    pub(super) is_independent: Tensor<'g>,
    /// The number of continuations of each beam, i64 `[]`, and which is the best; bool `[width]`.
    pub(super) width: Tensor<'g>,
    pub(super) is_best: Tensor<'g>,
    /// Which continuations of a sentence may finish: the best `K`; bool `[1, F K]`.
    pub(super) may_finish: Tensor<'g>,
    /// The first row of each sentence among `batch · beams`; i64 `[batch, 1]`.
    pub(super) first_row: Tensor<'g>,
    /// The places of a sequence; i64 `[1, 1, length]`.
    pub(super) places: Tensor<'g>,
    /// The maximum number of new tokens; i64 `[]`.
    pub(super) last_length: Tensor<'g>,
    /// The step that chooses the last token, and the last one whose token is forced (-1 for none);
    /// i64 `[]`.
    pub(super) last_step: Tensor<'g>,
    pub(super) forced_step: Tensor<'g>,
    /// Lengths to the power of the length penalty; f32 `[length]`.
    pub(super) divisors: Tensor<'g>,
    /// The place of each row's first score among all; i64 `[batch, beams, 1]`.
    pub(super) first_score: Tensor<'g>,
    /// Whether a sentence with `K` finished hypotheses ends, and whether it goes on as long as the
    /// longest hypothesis can become better; bool `[]`.
    pub(super) is_early: Tensor<'g>,
    pub(super) is_never: Tensor<'g>,
    pub(super) forced_bos_token: Tensor<'g>,
    /// The tokens of the steps up to `forced_step`, and one more: i64 `[batch, prefix + 1]`.
    pub(super) prefix: Option<Tensor<'g>>,
    pub(super) repetition_penalty: Tensor<'g>,
    pub(super) no_repeat_ngram_size: Tensor<'g>,
    /// Whether a constraint reads the tokens so far; bool `[]`.
    pub(super) is_penalised: Tensor<'g>,
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
            last_beam: captured.read(self.last_beam),
            is_independent: captured.read(self.is_independent),
            width: captured.read(self.width),
            is_best: captured.read(self.is_best),
            may_finish: captured.read(self.may_finish),
            first_row: captured.read(self.first_row),
            places: captured.read(self.places),
            last_length: captured.read(self.last_length),
            last_step: captured.read(self.last_step),
            forced_step: captured.read(self.forced_step),
            divisors: captured.read(self.divisors),
            first_score: captured.read(self.first_score),
            is_early: captured.read(self.is_early),
            is_never: captured.read(self.is_never),
            forced_bos_token: captured.read(self.forced_bos_token),
            prefix: self.prefix.map(|prefix| captured.read(prefix)),
            repetition_penalty: captured.read(self.repetition_penalty),
            no_repeat_ngram_size: captured.read(self.no_repeat_ngram_size),
            is_penalised: captured.read(self.is_penalised),
            forbidden: self.forbidden.map(|both| both.map(|values| captured.read(values))),
            source: self.source.map(|source| source.map(|value| captured.read(value))),
            sampling: self.sampling.read(captured),
        }
    }
}

/// The inputs of sampling.
#[derive(Clone, Copy)]
pub(super) struct Sampling<'g> {
    /// Whether tokens are drawn; bool `[]`.
    pub(super) is_on: Tensor<'g>,
    pub(super) temperature: Tensor<'g>,
    pub(super) top_k: Tensor<'g>,
    pub(super) top_p: Tensor<'g>,
    /// A number of each row: i64 `[batch, beams]`.
    pub(super) keys: Tensor<'g>,
    /// The ranks of the tokens that are kept: i64 `[kept]`.
    pub(super) ranks: Tensor<'g>,
}

impl<'g> Sampling<'g> {
    pub(super) fn read<'i>(self, captured: &mut Captured<'g, 'i>) -> Sampling<'i> {
        let Self { is_on, temperature, top_k, top_p, keys, ranks } = self;
        let all = [is_on, temperature, top_k, top_p, keys, ranks];
        let [is_on, temperature, top_k, top_p, keys, ranks] = all.map(|value| captured.read(value));
        Sampling { is_on, temperature, top_k, top_p, keys, ranks }
    }
}
