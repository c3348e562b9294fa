//! What is decoded together, and what is told on the way.

use crate::error::Cause;
use crate::scores::Unusable;
use crate::{Error, Result, Settings};

/// Sentences that are decoded together. What becomes of one does not depend on the others.
#[derive(Clone, Copy, Debug)]
pub struct SentenceBatch<'a> {
    /// Token ids, each source with its end token.
    pub sources: &'a [Vec<i64>],
    /// What each target begins with, after the start token; no slice if none begins with anything. A prefix replaces the
    /// forced first token, as in transformers: give that token in it.
    pub prefixes: &'a [Vec<i64>],
    /// The number of each sentence, from which follows what is drawn for it; no slice numbers them from 0.
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

/// What a sentence's hypotheses start from.
#[derive(Clone, Debug)]
pub(crate) struct Prompt<'a> {
    /// The sentence's number.
    pub(crate) number: u64,
    pub(crate) source: &'a [i64],
    /// The start token and the prefix.
    pub(crate) tokens: Vec<i64>,
    /// The most tokens after these.
    pub(crate) limit: usize,
}

impl Prompt<'_> {
    /// The token that must follow `tokens`, as long as they are not beyond the prefix.
    pub(crate) fn next(&self, tokens: &[i64]) -> Option<i64> {
        self.tokens.get(tokens.len()).copied()
    }

    /// Why no token can follow `tokens`.
    pub(crate) fn refuse(&self, tokens: &[i64], why: Unusable) -> Error {
        Cause::scores(why, self.number, tokens.len()).into()
    }
}

/// What an observer hears. `sentence` counts within the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A hypothesis got one more token, which is final; of a prefix too, of the end token not. Beam search never says it.
    Token {
        /// Whose.
        sentence: usize,
        /// Which of its samples.
        sequence: usize,
        /// The token.
        token: i64,
    },
    /// Beam search has gone one token further.
    Step {
        /// For whom.
        sentence: usize,
    },
}
