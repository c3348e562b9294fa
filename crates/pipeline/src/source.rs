//! Encoding of a source text to at most the model's number of tokens.

use cognate_generate::Settings;
use cognate_model::{Config, Parts};
use cognate_text::Tokenizer;

use crate::error::{Cause, Result};

/// The maximum number of source tokens of models without a limit: the memory of attention grows
/// quadratically.
const LONGEST_SOURCE: usize = 4096;

/// Encodes texts for a model's encoder.
#[derive(Clone)]
pub struct SourceEncoder {
    tokenizer: Tokenizer,
    /// The tokens of an empty text: those around every text.
    around: Vec<i64>,
    ends: Vec<i64>,
    /// The token before a text that a decoder alone begins.
    start: Option<i64>,
    vocab: usize,
    limit: usize,
}

/// An encoded text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodedSource {
    /// No text, or only invisible characters.
    Empty,
    /// Tokens, the special ones around them included.
    Tokens {
        /// The tokens.
        ids: Vec<i64>,
        /// The number of tokens of a text that was truncated.
        cut_from: Option<usize>,
    },
}

impl SourceEncoder {
    /// An encoder for a tokenizer and its model.
    pub fn new(tokenizer: &Tokenizer, config: &Config, settings: &Settings) -> Self {
        // A prompt of a decoder alone can be an end token.
        let (ends, start) = match config.parts {
            Parts::Decoder => (Vec::new(), Some(settings.start_token)),
            Parts::Both | Parts::Encoder(_) => (settings.eos_tokens.clone(), None),
        };
        Self { ends, start, ..Self::of_encoder(tokenizer, config) }
    }

    /// For an encoder alone.
    pub(crate) fn of_encoder(tokenizer: &Tokenizer, config: &Config) -> Self {
        Self {
            // Some vocabularies cannot encode an empty text.
            around: tokenizer.encode("").unwrap_or_default(),
            tokenizer: tokenizer.clone(),
            ends: Vec::new(),
            start: None,
            vocab: config.source_vocab,
            limit: config.source_positions().unwrap_or(LONGEST_SOURCE),
        }
    }

    /// Cuts texts to so many tokens, if the model can take as many.
    pub(crate) fn cut_to(&mut self, limit: usize) {
        self.limit = self.limit.min(limit);
    }

    /// The tokens around every text.
    pub(crate) fn around(&self) -> &[i64] {
        &self.around
    }

    /// The maximum number of tokens of a source.
    pub fn max_tokens(&self) -> usize {
        self.limit
    }

    /// The tokens of a text; of a decoder alone that has none, the start token. A text that is too
    /// long is truncated before the tokens that end every text.
    ///
    /// # Errors
    /// If the tokenizer rejects the text, or returns an id without an embedding.
    pub fn encode(&self, text: &str) -> Result<EncodedSource> {
        let mut ids = match self.start {
            Some(_) if text.is_empty() => self.around.clone(),
            None if is_blank(text) => Vec::new(),
            _ => self.tokenizer.encode(text)?,
        };
        match self.start {
            Some(start) if ids.is_empty() => ids.push(start),
            Some(_) => {}
            None if ids == self.around || ids.iter().all(|id| self.ends.contains(id)) => {
                return Ok(EncodedSource::Empty);
            }
            None => {}
        }
        let vocab = self.vocab;
        if let Some(&id) = ids.iter().find(|&&id| usize::try_from(id).is_ok_and(|id| id >= vocab)) {
            Err(Cause::Unknown { piece: self.tokenizer.piece(id).unwrap_or_default(), id, vocab })?;
        }
        let n_tokens = ids.len();
        if n_tokens <= self.limit {
            return Ok(EncodedSource::Tokens { ids, cut_from: None });
        }
        Ok(EncodedSource::Tokens {
            ids: cut(ids, &self.around, self.limit),
            cut_from: Some(n_tokens),
        })
    }

    /// The tokens of a text of white space, or those around every text.
    pub(crate) fn encode_blank(&self, text: &str) -> Result<Vec<i64>> {
        match text.is_empty() {
            true => Ok(self.around.clone()),
            false => Ok(self.tokenizer.encode(text)?),
        }
    }
}

/// Truncates a text to `limit` tokens and keeps the last of the tokens `around` every text: the
/// end, and in some families the language.
fn cut(mut ids: Vec<i64>, around: &[i64], limit: usize) -> Vec<i64> {
    let ends_so = |&count: &usize| ids.ends_with(&around[around.len() - count..]);
    let n_after = (0..=around.len().min(limit)).rev().find(ends_so).unwrap_or(0);
    let after = ids.split_off(ids.len() - n_after);
    ids.truncate(limit - n_after);
    ids.extend(after);
    ids
}

/// Whether a line is invisible: spaces, controls, zero-width characters.
fn is_blank(line: &str) -> bool {
    let is_zero_width =
        |c| matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}');
    line.chars().all(|c| c.is_whitespace() || c.is_control() || is_zero_width(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines() {
        let blank = ["", " \t", "\u{feff}\u{200b}\u{1}", "\u{3000}"].map(is_blank);
        assert_eq!(blank, [true; 4]);
        let visible = [".", " a", "\u{1f642}"].map(is_blank);
        assert_eq!(visible, [false; 3]);
    }

    #[test]
    fn long_texts_keep_their_last_special_tokens() {
        let cases = [
            // Marian, mBART-50, mBART-25, a tokenizer without a template.
            (vec![5, 6, 7, 0], vec![0], 3, vec![5, 6, 0]),
            (vec![90, 5, 6, 7, 2], vec![90, 2], 4, vec![90, 5, 6, 2]),
            (vec![5, 6, 7, 2, 90], vec![2, 90], 4, vec![5, 6, 2, 90]),
            (vec![5, 6, 7], vec![], 2, vec![5, 6]),
            // A limit below the template's length.
            (vec![5, 6, 7, 2, 90], vec![2, 90], 1, vec![90]),
            (vec![5, 6, 7, 2, 90], vec![2, 90], 0, vec![]),
        ];
        for (ids, around, limit, expected) in cases {
            assert_eq!(cut(ids.clone(), &around, limit), expected, "{ids:?} {around:?} {limit}");
        }
    }
}
