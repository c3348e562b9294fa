//! How to decode: what may come next, and how one chooses among it.
//!
//! Meanings are those of transformers' `generate`; [`Settings::from_json`] reads them from a checkpoint's files.

use crate::Result;
use crate::error::Cause;
use cognate_model::Config;
use std::ops::RangeInclusive;

/// How to decode.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The token that decoding starts from.
    pub start_token: i64,
    /// Tokens that end a sentence.
    pub eos_tokens: Vec<i64>,
    /// The token that fills short sources of a batch.
    pub pad_token: i64,
    /// The token that must come first, if any, where no prefix is given.
    pub forced_bos_token: Option<i64>,
    /// The token that must come last where the limit cuts a sentence, if any.
    pub forced_eos_token: Option<i64>,
    /// Sequences of tokens that are never generated, each of at least one token. A lone token that ends sentences is let through.
    pub bad_words: Vec<Vec<i64>>,
    /// Tokens that are never generated, even where they are forced.
    pub suppressed_tokens: Vec<i64>,
    /// Tokens that are not generated as the first free choice.
    pub suppressed_first_tokens: Vec<i64>,
    /// Above 1, tokens that the target has already, the start token included, are less likely to come again; above 0.
    pub repetition_penalty: f32,
    /// Above 1, tokens of the source are more likely; above 0. In every beam: transformers 4.57.6 reaches only as many beams of a
    /// batch as it has sentences.
    pub encoder_repetition_penalty: f32,
    /// No run of so many tokens comes twice in a target; 0 allows all.
    pub no_repeat_ngram_size: usize,
    /// No run of so many tokens of the source comes in its target; 0 allows all.
    pub encoder_no_repeat_ngram_size: usize,
    /// Whether scores are made log-probabilities once more after all of the above.
    pub renormalize: bool,
    /// The fewest tokens, the start token and a given prefix included, before one may end the sentence.
    pub min_length: usize,
    /// The fewest tokens that are generated before one may end the sentence.
    pub min_new_tokens: usize,
    /// The most tokens, the start token, a given prefix and the end token included.
    pub max_length: usize,
    /// The most tokens that are generated, the end token included; at least 1.
    pub max_new_tokens: usize,
    /// Hypotheses kept in beam search, which draws with sampling; 1 decodes greedily, or samples.
    pub num_beams: usize,
    /// The power of the length by which beam search divides log-probabilities.
    pub length_penalty: f32,
    /// When beam search stops.
    pub early_stopping: EarlyStopping,
    /// Hypotheses returned for each sentence: at most as many as beams; with sampling and one beam, any number of samples.
    pub num_return_sequences: usize,
    /// Whether tokens are drawn instead of the likeliest taken, and how.
    pub sampling: Option<Sampling>,
    /// Whether hypotheses that are not from beam search, which has them anyway, get a score.
    pub scores: bool,
    /// The decoder's layer whose cross attention aligns target and source; `None` aligns nothing.
    pub alignment_layer: Option<usize>,
}

/// When beam search takes a sentence for done (transformers' `early_stopping`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyStopping {
    /// When the best running hypothesis, at its present length, cannot beat the worst finished one.
    #[default]
    Heuristic,
    /// As soon as there are as many finished hypotheses as beams.
    Full,
    /// When no running hypothesis, at any length, can beat the worst finished one.
    Never,
}

/// How tokens are drawn. Each part takes tokens away from what those before it left, in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// What scores are divided by: below 1 likely tokens become likelier; above 0.
    pub temperature: f32,
    /// Only so many of the likeliest tokens; 0 allows all.
    pub top_k: usize,
    /// Only the likeliest tokens that together have this probability; from 0 to 1, which allows all.
    pub top_p: f32,
    /// Only tokens at least this many times as probable as the likeliest; from 0, which allows all, to 1.
    pub min_p: f32,
    /// Only the tokens nearest to the expected surprise that together have this probability (Meister et al. 2023); 1 allows all.
    pub typical_p: f32,
    /// Only tokens of at least this probability (Hewitt et al. 2022); 0 allows all.
    pub epsilon_cutoff: f32,
    /// As `epsilon_cutoff`, lower where the distribution is flat (Hewitt et al. 2022); 0 allows all.
    pub eta_cutoff: f32,
    /// What is drawn follows from this, from the sentence's number and from the sample's.
    pub seed: u64,
}

impl Default for Sampling {
    /// transformers' defaults, with seed 0.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 50, top_p: 1.0, min_p: 0.0, typical_p: 1.0, epsilon_cutoff: 0.0, eta_cutoff: 0.0, seed: 0 }
    }
}

/// What scores may be multiplied or divided by, so that none becomes infinite.
pub(crate) const FACTORS: RangeInclusive<f32> = 1e-30..=1e30;
pub(crate) const A_FACTOR: &str = "a number from 1e-30 to 1e30";

impl Settings {
    /// Sees whether the settings agree with each other.
    ///
    /// # Errors
    /// If they do not; the message names what to change.
    pub fn check(&self) -> Result<()> {
        let Self { num_beams, num_return_sequences, .. } = *self;
        let refuse = |message: String| Err(Cause::Contradiction(message).into());
        if (self.sampling.is_none() || num_beams > 1) && num_return_sequences > num_beams.max(1) {
            return refuse(format!(
                "num_return_sequences: expected at most {}, the beams, found {num_return_sequences}; search with more beams, or sample \
                 with one",
                num_beams.max(1)
            ));
        }
        let numbers = [("repetition_penalty", self.repetition_penalty), ("encoder_repetition_penalty", self.encoder_repetition_penalty)];
        let temperature = self.sampling.map(|sampling| ("temperature", sampling.temperature));
        for (name, number) in numbers.into_iter().chain(temperature) {
            if !FACTORS.contains(&number) {
                return refuse(format!("{name}: expected {A_FACTOR}, found {number}"));
            }
        }
        let shares = self.sampling.into_iter().flat_map(|sampling| {
            let Sampling { top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff, .. } = sampling;
            [("top_p", top_p), ("min_p", min_p), ("typical_p", typical_p), ("epsilon_cutoff", epsilon_cutoff), ("eta_cutoff", eta_cutoff)]
        });
        for (name, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                return refuse(format!("{name}: expected a number from 0 to 1, found {share}"));
            }
        }
        Ok(())
    }

    /// The most tokens that can be generated after the start token and a prefix.
    pub(crate) fn limit(&self, sentence: usize, prefix: &[i64]) -> Result<usize> {
        let room = self.max_length.saturating_sub(1);
        match room.saturating_sub(prefix.len()).min(self.max_new_tokens) {
            0 if prefix.is_empty() => Ok(1),
            0 => Err(Cause::Prefix { sentence, tokens: prefix.len(), room: room.saturating_sub(1) }.into()),
            limit => Ok(limit),
        }
    }
}

/// The decoder's layer whose cross attention, averaged over its heads, tells best which source token a target token comes from:
/// the last but one (Garg et al. 2019, section 4.1), or the only one. The last layer attends to what comes next as well.
pub fn alignment_layer(config: &Config) -> usize {
    config.decoder.n_layers.saturating_sub(2)
}
