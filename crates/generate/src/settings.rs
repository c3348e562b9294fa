//! Settings of decoding: constraints, search and sampling.
//!
//! They have the semantics of transformers' `generate`; [`Settings::from_json`] reads them from a
//! checkpoint's files.

use crate::Result;
use crate::TimestampRules;
use crate::error::Cause;
use cognate_model::Config;
use std::ops::RangeInclusive;

/// Settings of decoding.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The start token.
    pub start_token: i64,
    /// Tokens that end a sentence.
    pub eos_tokens: Vec<i64>,
    /// The padding token of sources.
    pub pad_token: i64,
    /// The forced first token, if there is no prefix.
    pub forced_bos_token: Option<i64>,
    /// The forced last token at the limit.
    pub forced_eos_token: Option<i64>,
    /// Forbidden sequences of at least one token. A single end token is ignored.
    pub bad_words: Vec<Vec<i64>>,
    /// Forbidden tokens, even if they are forced.
    pub suppressed_tokens: Vec<i64>,
    /// Tokens that are forbidden as the first freely chosen token.
    pub suppressed_first_tokens: Vec<i64>,
    /// The penalty of tokens of the target, the start token included; values above 1 make them less
    /// likely.
    pub repetition_penalty: f32,
    /// Values above 1 make tokens of the source more likely, in every beam. transformers 4.57.6
    /// changes only as many beams of a batch as it has sentences.
    pub encoder_repetition_penalty: f32,
    /// The size of n-grams that do not repeat in a target; 0 for none.
    pub no_repeat_ngram_size: usize,
    /// The size of n-grams of the source that do not occur in its target; 0 for none.
    pub encoder_no_repeat_ngram_size: usize,
    /// Whether scores are normalised after all of the above.
    pub renormalize: bool,
    /// Minimum number of tokens before the end token, including the start token and a prefix.
    pub min_length: usize,
    /// The minimum number of generated tokens before the end token.
    pub min_new_tokens: usize,
    /// Maximum number of tokens, including the start token, a prefix and the end token.
    pub max_length: usize,
    /// Maximum number of generated tokens, including the end token; at least 1.
    pub max_new_tokens: usize,
    /// The number of beams; 1 for greedy search or sampling.
    pub num_beams: usize,
    /// The exponent of the length by which beam search divides log-probabilities.
    pub length_penalty: f32,
    /// The stopping condition of beam search.
    pub early_stopping: EarlyStopping,
    /// The number of returned hypotheses per sentence: at most the number of beams, or any number
    /// of samples with one beam.
    pub num_return_sequences: usize,
    /// Sampling, if enabled.
    pub sampling: Option<Sampling>,
    /// Whether to compute scores without beam search too.
    pub scores: bool,
    /// The decoder's layer whose cross-attention gives alignments; `None` for no alignments.
    pub alignment_layer: Option<usize>,
    /// The rules of timestamps in the text of speech, if it has them.
    pub timestamps: Option<TimestampRules>,
    /// A probability within the prompt to return as
    /// [`Hypothesis::observed`](crate::Hypothesis::observed).
    pub observe: Option<Observe>,
}

/// The probability of a token at the position of a token of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observe {
    /// The last token of the prompt with this id is read,
    pub after: i64,
    /// and the probability of this one follows, without constraints.
    pub token: i64,
}

/// The stopping condition of beam search for a sentence (transformers' `early_stopping`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyStopping {
    /// When the best running hypothesis, at its current length, cannot beat the worst finished one.
    #[default]
    Heuristic,
    /// As soon as there are as many finished hypotheses as beams.
    Full,
    /// When no running hypothesis, at any length, can beat the worst finished one.
    Never,
    /// As soon as this number of hypotheses have finished (beams times patience; Kasai et al.
    /// 2022), in the form of OpenAI's Whisper: every hypothesis finishes that is better than the
    /// last one that continues, and lengths do not count the end token.
    Finished(usize),
}

/// Settings of sampling; the filters apply in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The divisor of logits, above 0; values below 1 sharpen the distribution.
    pub temperature: f32,
    /// Number of most probable tokens that are kept; 0 for all.
    pub top_k: usize,
    /// Keeps the most probable tokens with this total probability, from 0 to 1 (all).
    pub top_p: f32,
    /// Keeps tokens of at least this share of the highest probability, from 0 (all) to 1.
    pub min_p: f32,
    /// Keeps the tokens nearest to the expected surprise with this total probability (Meister et
    /// al. 2023); 1 for all.
    pub typical_p: f32,
    /// Keeps tokens of at least this probability (Hewitt et al. 2022); 0 for all.
    pub epsilon_cutoff: f32,
    /// Like `epsilon_cutoff`, but lower for flat distributions (Hewitt et al. 2022); 0 for all.
    pub eta_cutoff: f32,
    /// The random seed, combined with the numbers of the sentence and the sample.
    pub seed: u64,
}

impl Default for Sampling {
    /// transformers' defaults, with seed 0.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 50,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            epsilon_cutoff: 0.0,
            eta_cutoff: 0.0,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Checks the settings.
    ///
    /// # Errors
    /// If one is outside its range.
    pub fn check(&self) -> Result<()> {
        check_factor("temperature", self.temperature)?;
        let shares = [
            ("top_p", self.top_p),
            ("min_p", self.min_p),
            ("typical_p", self.typical_p),
            ("epsilon_cutoff", self.epsilon_cutoff),
            ("eta_cutoff", self.eta_cutoff),
        ];
        match shares.into_iter().find(|(_, share)| !(0.0..=1.0).contains(share)) {
            None => Ok(()),
            Some((name, share)) => {
                let message = format!("{name}: expected a number from 0 to 1, found {share}");
                Err(Cause::Contradiction(message).into())
            }
        }
    }
}

fn check_factor(name: &str, number: f32) -> Result<()> {
    if FACTORS.contains(&number) {
        return Ok(());
    }
    Err(Cause::Contradiction(format!("{name}: expected {A_FACTOR}, found {number}")).into())
}

/// The range of factors for which no score becomes infinite.
pub(crate) const FACTORS: RangeInclusive<f32> = 1e-30..=1e30;
pub(crate) const A_FACTOR: &str = "a number from 1e-30 to 1e30";

impl Settings {
    /// Checks the settings.
    ///
    /// # Errors
    /// If they contradict each other.
    pub fn check(&self) -> Result<()> {
        let Self { num_beams, num_return_sequences, .. } = *self;
        let refuse = |message: String| Err(Cause::Contradiction(message).into());
        let kept = match self.early_stopping {
            EarlyStopping::Finished(most) => most.max(num_beams),
            _ => num_beams.max(1),
        };
        if (self.sampling.is_none() || num_beams > 1) && num_return_sequences > kept {
            return refuse(format!(
                "num_return_sequences: expected at most {kept}, the beams, found {num_return_sequences}; search with more beams, or sample \
                 with one"
            ));
        }
        let numbers = [
            ("repetition_penalty", self.repetition_penalty),
            ("encoder_repetition_penalty", self.encoder_repetition_penalty),
        ];
        for (name, number) in numbers {
            check_factor(name, number)?;
        }
        if !self.length_penalty.is_finite() {
            let found = self.length_penalty;
            return refuse(format!("length_penalty: expected a finite number, found {found}"));
        }
        self.sampling.as_ref().map_or(Ok(()), Sampling::check)
    }

    /// The number of hypotheses that a sentence has while it is decoded.
    pub fn n_hypotheses(&self) -> usize {
        match self.num_beams {
            0 | 1 if self.sampling.is_some() => self.num_return_sequences.max(1),
            0 | 1 => 1,
            beams => beams,
        }
    }

    /// The maximum number of new tokens after the tokens of a start, the start token or a prompt,
    /// and of a prefix.
    pub(crate) fn limit(&self, sentence: usize, [start, prefix]: [usize; 2]) -> Result<usize> {
        let room = self.max_length.saturating_sub(start);
        match room.saturating_sub(prefix).min(self.max_new_tokens) {
            0 if prefix == 0 && start == 1 => Ok(1),
            0 if prefix == 0 => Err(Cause::Prompt {
                sentence,
                tokens: start,
                room: self.max_length.saturating_sub(1),
            }
            .into()),
            0 => {
                Err(Cause::Prefix { sentence, tokens: prefix, room: room.saturating_sub(1) }.into())
            }
            limit => Ok(limit),
        }
    }
}

/// The decoder's layer whose cross-attention, averaged over its heads, aligns best: the last but
/// one (Garg et al. 2019, section 4.1), or the only one.
pub fn alignment_layer(config: &Config) -> usize {
    config.decoder.n_layers.saturating_sub(2)
}
