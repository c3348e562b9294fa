//! Constraints on the next token, which change scores in place.
//!
//! Each equals transformers' logits processor of its name, in transformers' order. In beam search
//! scores are log-probabilities, otherwise logits.

use crate::batch::Prompt;
use crate::scores::{Columns, log_softmax};
use crate::{BestTokens, Settings};

/// A hypothesis before its next token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) prompt: &'a Prompt,
    /// The start token, the prefix and the generated tokens.
    pub(crate) tokens: &'a [i64],
    /// Whose scores are constrained.
    pub(crate) columns: Columns<'a>,
}

impl Context<'_> {
    /// The number of generated tokens.
    pub(crate) fn n_new(&self) -> usize {
        self.tokens.len() - self.prompt.tokens.len()
    }
}

impl Settings {
    /// Applies the constraints to the scores `[columns]` of the next token.
    pub(crate) fn constrain(&self, context: &Context<'_>, scores: &mut [f32]) {
        let scores = &mut Scores { scores, columns: context.columns };
        let (tokens, source, n_new) =
            (context.tokens, context.prompt.source.as_slice(), context.n_new());
        if self.encoder_repetition_penalty != 1.0 {
            // For all beams. transformers 4.57 penalises only as many beams as there are sentences.
            penalize(scores, source, 1.0 / self.encoder_repetition_penalty);
        }
        if self.repetition_penalty != 1.0 {
            penalize(scores, tokens, self.repetition_penalty);
        }
        forbid_ngrams(scores, self.no_repeat_ngram_size, tokens, tokens);
        forbid_ngrams(scores, self.encoder_no_repeat_ngram_size, tokens, source);
        for word in &self.bad_words {
            self.forbid_word(scores, word, tokens);
        }
        if tokens.len() < self.min_length || n_new < self.min_new_tokens {
            forbid(scores, &self.eos_tokens);
        }
        if let Some(forced) = self.forced_bos_token.filter(|_| tokens.len() == 1) {
            force(scores, forced);
        }
        if let Some(forced) = self.forced_eos_token.filter(|_| n_new + 1 == context.prompt.limit) {
            force(scores, forced);
        }
        forbid(scores, &self.suppressed_tokens);
        let first_choice =
            usize::from(context.prompt.tokens.len() == 1 && self.forced_bos_token.is_some());
        if n_new == first_choice {
            forbid(scores, &self.suppressed_first_tokens);
        }
        if let Some(rules) = self.timestamps {
            // Of speech, which has no shortlist.
            rules.apply(
                &tokens[context.prompt.tokens.len()..],
                self.eos_tokens.first().copied().unwrap_or(rules.first),
                scores.scores,
            );
        }
    }

    /// The tokens whose logits determine the next one, if these are few: in searches without
    /// sampling whose constraints only forbid tokens.
    pub(crate) fn best_tokens(&self) -> Option<BestTokens> {
        /// Maximum number of tokens that constraints may forbid.
        const MOST_FORBIDDEN: usize = 16;
        let (has_beams, n_forbidden) = (self.num_beams > 1, self.n_forbidden());
        let needs_all = self.sampling.is_some()
            || self.observe.is_some()
            || (if has_beams { self.renormalize } else { self.scores });
        let scales = self.encoder_repetition_penalty != 1.0 || self.repetition_penalty != 1.0;
        let forbids_many = self.no_repeat_ngram_size > 0
            || self.encoder_no_repeat_ngram_size > 0
            || self.timestamps.is_some();
        (!needs_all && !scales && !forbids_many && n_forbidden <= MOST_FORBIDDEN).then(|| {
            BestTokens {
                // One more is for the margin.
                count: n_forbidden + if has_beams { self.n_continuations() } else { 1 } + 1,
                softmax: has_beams,
                always: self.forced_bos_token.into_iter().chain(self.forced_eos_token).collect(),
            }
        })
    }

    /// The number of continuations from which beam search chooses: enough if all of some beams end.
    pub(crate) fn n_continuations(&self) -> usize {
        (1 + self.eos_tokens.len()).max(2) * self.num_beams
    }

    /// Number of tokens that can be forbidden other than by n-grams and timestamps.
    fn n_forbidden(&self) -> usize {
        let delays_end = self.min_length > 0 || self.min_new_tokens > 0;
        let ends = if delays_end { self.eos_tokens.len() } else { 0 };
        self.bad_words.len()
            + self.suppressed_tokens.len()
            + self.suppressed_first_tokens.len()
            + ends
    }

    /// Maximum number of tokens that can be forbidden if [`Settings::constrain`] [only
    /// forbids](Settings::only_forbids).
    pub(crate) fn most_forbidden(&self, context: &Context<'_>) -> usize {
        // Each repeated n-gram forbids its last token.
        self.n_forbidden() + context.tokens.len() + context.prompt.source.len()
    }

    /// Whether [`Settings::constrain_fully`] only forbids tokens and keeps all other scores.
    pub(crate) fn only_forbids(&self, context: &Context<'_>) -> bool {
        let penalizes = self.encoder_repetition_penalty != 1.0 || self.repetition_penalty != 1.0;
        let forces_first = self.forced_bos_token.is_some() && context.tokens.len() == 1;
        let forces_last =
            self.forced_eos_token.is_some() && context.n_new() + 1 == context.prompt.limit;
        !(penalizes || self.renormalize || self.timestamps.is_some() || forces_first || forces_last)
    }

    /// The same with [`Settings::renormalize`], which follows the filters of sampling.
    pub(crate) fn constrain_fully(&self, context: &Context<'_>, scores: &mut [f32]) {
        self.constrain(context, scores);
        self.renormalize_if_set(scores);
    }

    pub(crate) fn renormalize_if_set(&self, scores: &mut [f32]) {
        // If every token is forbidden, nothing can be normalised.
        if self.renormalize && scores.iter().any(|score| score.is_finite()) {
            log_softmax(scores);
        }
    }

    fn forbid_word(&self, scores: &mut Scores<'_>, word: &[i64], tokens: &[i64]) {
        let Some((last, before)) = word.split_last() else { return };
        let is_end = before.is_empty() && self.eos_tokens.contains(last);
        // transformers requires as many tokens as the word has, although one fewer precedes its
        // last.
        let is_due = before.is_empty() || (word.len() <= tokens.len() && tokens.ends_with(before));
        if is_due && !is_end {
            forbid(scores, &[*last]);
        }
    }
}

/// Scores of tokens.
struct Scores<'s> {
    scores: &'s mut [f32],
    columns: Columns<'s>,
}

impl Scores<'_> {
    fn of(&mut self, token: i64) -> Option<&mut f32> {
        self.columns.place(token).and_then(|place| self.scores.get_mut(place))
    }
}

fn forbid(scores: &mut Scores<'_>, tokens: &[i64]) {
    for &token in tokens {
        if let Some(score) = scores.of(token) {
            *score = f32::NEG_INFINITY;
        }
    }
}

fn force(scores: &mut Scores<'_>, token: i64) {
    scores.scores.fill(f32::NEG_INFINITY);
    if let Some(score) = scores.of(token) {
        *score = 0.0;
    }
}

/// Divides positive scores of the tokens by `penalty` and multiplies negative ones, once per token.
fn penalize(scores: &mut Scores<'_>, tokens: &[i64], penalty: f32) {
    for (index, &token) in tokens.iter().enumerate() {
        if let Some(score) = scores.of(token).filter(|_| !tokens[..index].contains(&token)) {
            *score = if *score < 0.0 { *score * penalty } else { *score / penalty };
        }
    }
}

/// Forbids tokens that would complete an n-gram of `size` tokens in `seen`.
fn forbid_ngrams(scores: &mut Scores<'_>, size: usize, tokens: &[i64], seen: &[i64]) {
    let Some(before) = size.checked_sub(1).filter(|&before| before <= tokens.len()) else { return };
    let last = &tokens[tokens.len() - before..];
    for ngram in seen.windows(size).filter(|ngram| &ngram[..before] == last) {
        forbid(scores, &ngram[before..]);
    }
}
