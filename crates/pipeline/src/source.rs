//! The tokens of a source text, as many as the model can take.

use cognate_generate::Settings;
use cognate_model::Config;
use cognate_text::Tokenizer;

use crate::error::{Cause, Result};

/// The most tokens of a source for models that could take any number: attention's memory grows with their square.
const LONGEST_SOURCE: usize = 4096;

/// Turns texts into the tokens of a model's encoder.
#[derive(Clone)]
pub struct SourceEncoder {
    tokenizer: Tokenizer,
    /// What the tokenizer makes of no text: the tokens around every text.
    around: Vec<i64>,
    ends: Vec<i64>,
    vocab: usize,
    limit: usize,
}

/// A text for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodedSource {
    /// Nothing to read: no text, or only what cannot be seen.
    Empty,
    /// Tokens, the special ones around them included.
    Tokens {
        /// The tokens.
        ids: Vec<i64>,
        /// How many tokens the text has, if they were too many for the model and were cut.
        cut_from: Option<usize>,
    },
}

impl SourceEncoder {
    /// For a tokenizer, the configuration of its model and the settings that it decodes by.
    pub fn new(tokenizer: &Tokenizer, config: &Config, settings: &Settings) -> Self {
        Self {
            // Some vocabularies have no pieces for no text.
            around: tokenizer.encode("").unwrap_or_default(),
            tokenizer: tokenizer.clone(),
            ends: settings.eos_tokens.clone(),
            vocab: config.source_vocab,
            limit: config.max_positions.unwrap_or(LONGEST_SOURCE),
        }
    }

    /// The most tokens of a source.
    pub fn max_tokens(&self) -> usize {
        self.limit
    }

    /// The tokens of a text. A longer one than the model can take is cut in front of the tokens that end every text.
    ///
    /// # Errors
    /// If the tokenizer rejects the text, or gives an id that the model has no row for.
    pub fn encode(&self, text: &str) -> Result<EncodedSource> {
        let ids = if is_blank(text) { Vec::new() } else { self.tokenizer.encode(text)? };
        if ids == self.around || ids.iter().all(|id| self.ends.contains(id)) {
            return Ok(EncodedSource::Empty);
        }
        let vocab = self.vocab;
        if let Some(&id) = ids.iter().find(|&&id| usize::try_from(id).is_ok_and(|id| id >= vocab)) {
            Err(Cause::Unknown { piece: self.tokenizer.piece(id).unwrap_or_default(), id, vocab })?;
        }
        let n_tokens = ids.len();
        if n_tokens <= self.limit {
            return Ok(EncodedSource::Tokens { ids, cut_from: None });
        }
        Ok(EncodedSource::Tokens { ids: cut(ids, &self.around, self.limit), cut_from: Some(n_tokens) })
    }
}

/// The first `limit` tokens of a text that is longer, with the last tokens of those `around` every text in their places: the
/// end, and in some families the language.
fn cut(mut ids: Vec<i64>, around: &[i64], limit: usize) -> Vec<i64> {
    let ends_so = |&count: &usize| ids.ends_with(&around[around.len() - count..]);
    let n_after = (0..=around.len().min(limit)).rev().find(ends_so).unwrap_or(0);
    let after = ids.split_off(ids.len() - n_after);
    ids.truncate(limit - n_after);
    ids.extend(after);
    ids
}

/// Whether nothing of a line can be seen: spaces, controls, zero-width characters.
fn is_blank(line: &str) -> bool {
    let is_zero_width = |c| matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}');
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
    fn long_texts_keep_what_stands_around_them() {
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
