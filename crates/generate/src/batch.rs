//! Batches of sentences, and events of decoding.

use crate::error::Cause;
use crate::scores::{Row, Unusable, probability};
use crate::{Error, Hypothesis, Observe, Result, Settings};
use ndarray::ArrayD;

/// What the encoder reads: the sources of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Sources<'a> {
    /// Token ids, each source with its end token; the prompts of a decoder-only model.
    Tokens(&'a [Vec<i64>]),
    /// Log-mel frames `[batch, n_mels, frames]`, or pixels `[batch, channels, height, width]`.
    Features(&'a ArrayD<f32>),
    /// The sources of the last batch, of this number and all still in the batch: they are not
    /// encoded again.
    Again(usize),
}

impl<'a> Sources<'a> {
    /// The number of sources.
    pub fn len(self) -> usize {
        match self {
            Sources::Tokens(tokens) => tokens.len(),
            Sources::Features(features) => features.shape().first().copied().unwrap_or(0),
            Sources::Again(count) => count,
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The tokens of each source; none of features.
    pub fn tokens(self) -> &'a [Vec<i64>] {
        match self {
            Sources::Tokens(tokens) => tokens,
            Sources::Features(_) | Sources::Again(_) => &[],
        }
    }
}

impl<'a> From<&'a [Vec<i64>]> for Sources<'a> {
    fn from(tokens: &'a [Vec<i64>]) -> Self {
        Sources::Tokens(tokens)
    }
}

impl<'a> From<&'a Vec<Vec<i64>>> for Sources<'a> {
    fn from(tokens: &'a Vec<Vec<i64>>) -> Self {
        Sources::Tokens(tokens)
    }
}

impl<'a, const N: usize> From<&'a [Vec<i64>; N]> for Sources<'a> {
    fn from(tokens: &'a [Vec<i64>; N]) -> Self {
        Sources::Tokens(tokens)
    }
}

impl<'a> From<&'a ArrayD<f32>> for Sources<'a> {
    fn from(features: &'a ArrayD<f32>) -> Self {
        Sources::Features(features)
    }
}

/// Sentences that are decoded together. The result of one does not depend on the others.
#[derive(Clone, Copy, Debug)]
pub struct SentenceBatch<'a> {
    /// The sources.
    pub sources: Sources<'a>,
    /// The prefix of each target after the start token; empty for no prefixes. As in transformers,
    /// a prefix replaces the forced first token and has to contain it.
    pub prefixes: &'a [Vec<i64>],
    /// The number of each sentence, part of the random seed; empty to number them from 0.
    pub numbers: &'a [u64],
}

impl<'a> SentenceBatch<'a> {
    /// Sentences without prefixes, numbered from 0.
    pub fn new(sources: impl Into<Sources<'a>>) -> Self {
        Self { sources: sources.into(), prefixes: &[], numbers: &[] }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let n_sources = self.sources.len();
        for (what, found) in [("prefixes", self.prefixes.len()), ("numbers", self.numbers.len())] {
            if found != 0 && found != n_sources {
                return Err(Cause::Count { what, expected: n_sources, found }.into());
            }
        }
        Ok(())
    }

    pub(crate) fn number(&self, sentence: usize) -> u64 {
        self.numbers.get(sentence).copied().unwrap_or(sentence as u64)
    }

    /// The prompt of a sentence for a decoder that [continues its
    /// source](crate::Decoder::continues_sources), or for another one.
    pub(crate) fn prompt(
        &self,
        sentence: usize,
        settings: &Settings,
        continues_source: bool,
    ) -> Result<Prompt> {
        let prefix = self.prefixes.get(sentence).map_or(&[][..], Vec::as_slice);
        let source = self.sources.tokens().get(sentence).map_or(&[][..], Vec::as_slice);
        let start = if continues_source { source.to_vec() } else { vec![settings.start_token] };
        let limit = settings.limit(sentence, [start.len(), prefix.len()])?;
        let n_start = start.len();
        let tokens = start.into_iter().chain(prefix.iter().copied()).collect();
        Ok(Prompt {
            number: self.number(sentence),
            source: source.to_vec(),
            tokens,
            n_start,
            limit,
        })
    }
}

/// The start of a sentence's hypotheses.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    /// The sentence's number.
    pub(crate) number: u64,
    /// The source's tokens; none of features.
    pub(crate) source: Vec<i64>,
    /// The start token, or the source that is continued, and the prefix.
    pub(crate) tokens: Vec<i64>,
    /// The number of `tokens` before the prefix, which the decoder reads at first.
    pub(crate) n_start: usize,
    /// The maximum number of new tokens.
    pub(crate) limit: usize,
}

impl Prompt {
    /// The tokens before the prefix.
    pub(crate) fn start(&self) -> Vec<i64> {
        self.tokens[..self.n_start].to_vec()
    }

    /// The token of the prefix that follows `tokens`.
    pub(crate) fn next(&self, tokens: &[i64]) -> Option<i64> {
        self.tokens.get(tokens.len()).copied()
    }

    /// The number of tokens before the first token whose logits are read.
    pub(crate) fn n_prefill(&self, observe: Option<Observe>) -> usize {
        let last = self.tokens.len().saturating_sub(1);
        let observed = observe.and_then(|Observe { after, .. }| {
            self.tokens.iter().rposition(|token| *token == after)
        });
        observed.map_or(last, |place| place.min(last))
    }

    /// The probability that `observe` requests, if `tokens` end at its position.
    pub(crate) fn observe(
        &self,
        observe: Option<Observe>,
        tokens: &[i64],
        logits: &Row<'_>,
    ) -> Option<f32> {
        let Observe { after, token } = observe?;
        let place = self.tokens.iter().rposition(|token| *token == after)?;
        (tokens.len() == place + 1).then(|| probability(logits, token))?
    }

    /// The error that no token can follow `tokens`.
    pub(crate) fn refuse(&self, tokens: &[i64], why: Unusable) -> Error {
        Cause::scores(why, self.number, tokens.len()).into()
    }
}

/// An event of decoding. `sentence` is the index of a sentence in the batch; sentences that enter
/// later get the next numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'h> {
    /// A hypothesis has one more final token; also for prefixes, but not for end tokens and not in
    /// beam search. All tokens of a decoder that searches by itself come at its end.
    Token {
        /// The sentence.
        sentence: usize,
        /// The index of the sample.
        sequence: usize,
        /// The token.
        token: i64,
    },
    /// Beam search has advanced by one token.
    Step {
        /// The sentence.
        sentence: usize,
    },
    /// The sentence has left the batch; the observer's answer is ignored.
    Finished {
        /// The sentence.
        sentence: usize,
        /// Its hypotheses, as [`decode`](crate::decode) returns them.
        hypotheses: &'h [Hypothesis],
    },
}
