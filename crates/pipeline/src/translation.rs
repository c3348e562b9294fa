//! Sentences and their translations.

use cognate_generate::Hypothesis;

/// A line to be translated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The sentence.
    pub text: String,
    /// The prefix of its translation, if it differs from the default.
    pub prefix: Option<String>,
}

/// The translation of one sentence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Translation {
    /// The first of the translations; empty for a sentence without words.
    pub text: String,
    /// All translations, the best first, or samples in the order in which they are drawn: as many as
    /// [`DecodingOptions::n_best`](crate::DecodingOptions::n_best).
    pub hypotheses: Vec<TranslatedText>,
    /// The warnings about the sentence and its translation.
    pub warnings: Vec<Warning>,
    /// The number of words of the sentence that are not in the vocabulary.
    pub n_unknown: usize,
}

/// One of the translations of a sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct TranslatedText {
    /// The text.
    pub text: String,
    /// Its tokens, score and alignment.
    pub hypothesis: Hypothesis,
}

impl Translation {
    /// Adds the warnings about the source.
    pub(crate) fn begin_with(&mut self, prepared: &mut Translation) {
        self.warnings.splice(..0, std::mem::take(&mut prepared.warnings));
        self.n_unknown = prepared.n_unknown;
    }

    /// The number of tokens of a sentence that was truncated, and the maximum.
    pub(crate) fn too_long(&self) -> Option<(usize, usize)> {
        self.warnings.iter().find_map(|warning| match warning {
            Warning::TooLong { tokens, limit } => Some((*tokens, *limit)),
            Warning::Empty | Warning::NoLanguage | Warning::Unfinished { .. } => None,
        })
    }

    /// The number of generated tokens, end tokens included.
    pub fn n_tokens(&self) -> usize {
        let tokens = |found: &TranslatedText| {
            found.hypothesis.tokens.len() + usize::from(found.hypothesis.complete)
        };
        self.hypotheses.iter().map(tokens).sum()
    }
}

/// A warning about a sentence or its translation, in words that follow the sentence's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// The sentence and its translation are empty.
    #[error("empty; its translation is empty")]
    Empty,
    /// The sentence was truncated.
    #[error("truncated: {tokens} tokens, but the model has {limit} positions")]
    TooLong {
        /// The number of its tokens.
        tokens: usize,
        /// The maximum number of tokens.
        limit: usize,
    },
    /// The sentence does not begin with the code of a target language, which the model needs.
    #[error(
        "no target language; set target_language, or begin the sentence with a code such as >>deu<<"
    )]
    NoLanguage,
    /// The translation was truncated at the maximum number of tokens.
    #[error("its translation is truncated after {limit} tokens (max_new_tokens)")]
    Unfinished {
        /// The maximum number of tokens.
        limit: usize,
    },
}
