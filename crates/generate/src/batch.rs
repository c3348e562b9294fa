//! Batches of sentences, and events of decoding.

use crate::error::Cause;
use crate::scores::Unusable;
use crate::{Error, Result, Settings};

/// Sentences that are decoded together. The result of one does not depend on the others.
#[derive(Clone, Copy, Debug)]
pub struct SentenceBatch<'a> {
    /// Token ids, each source with its end token.
    pub sources: &'a [Vec<i64>],
    /// The prefix of each target after the start token; empty for no prefixes. As in transformers, a prefix replaces the forced first
    /// token and has to contain it.
    pub prefixes: &'a [Vec<i64>],
    /// The number of each sentence, part of the random seed; empty to number them from 0.
    pub numbers: &'a [u64],
}

impl<'a> SentenceBatch<'a> {
    /// Sentences without prefixes, numbered from 0.
    pub fn new(sources: &'a [Vec<i64>]) -> Self {
        Self { sources, prefixes: &[], numbers: &[] }
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

    pub(crate) fn prompt(&self, sentence: usize, settings: &Settings) -> Result<Prompt<'a>> {
        let prefix = self.prefixes.get(sentence).map_or(&[][..], Vec::as_slice);
        let limit = settings.limit(sentence, prefix)?;
        let tokens = [settings.start_token].iter().chain(prefix).copied().collect();
        Ok(Prompt { number: self.number(sentence), source: &self.sources[sentence], tokens, limit })
    }
}

/// The start of a sentence's hypotheses.
#[derive(Clone, Debug)]
pub(crate) struct Prompt<'a> {
    /// The sentence's number.
    pub(crate) number: u64,
    pub(crate) source: &'a [i64],
    /// The start token and the prefix.
    pub(crate) tokens: Vec<i64>,
    /// The maximum number of new tokens.
    pub(crate) limit: usize,
}

impl Prompt<'_> {
    /// The token of the prefix that follows `tokens`.
    pub(crate) fn next(&self, tokens: &[i64]) -> Option<i64> {
        self.tokens.get(tokens.len()).copied()
    }

    /// The error that no token can follow `tokens`.
    pub(crate) fn refuse(&self, tokens: &[i64], why: Unusable) -> Error {
        Cause::scores(why, self.number, tokens.len()).into()
    }
}

/// An event of decoding. `sentence` is its index in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A hypothesis has one more final token; also for prefixes, but not for end tokens and not in beam search.
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
}
