//! Sentences and their translations.

use cognate_generate::Hypothesis;

/// A line to be translated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The sentence.
    pub text: String,
    /// The beginning of its translation, if it has one of its own.
    pub prefix: Option<String>,
}

/// The translation of one sentence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Translation {
    /// The best translation; empty for a sentence without words.
    pub text: String,
    /// All translations, the best first: as many as [`DecodingOptions::n_best`](crate::DecodingOptions::n_best).
    pub hypotheses: Vec<TranslatedText>,
    /// What may be wrong with the sentence or its translation.
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
    /// Takes over what was found out about the sentence before it was translated.
    pub(crate) fn begin_with(&mut self, prepared: &mut Translation) {
        self.warnings.splice(..0, std::mem::take(&mut prepared.warnings));
        self.n_unknown = prepared.n_unknown;
    }

    /// The number of tokens that were generated, end tokens included.
    pub fn n_tokens(&self) -> usize {
        let tokens = |found: &TranslatedText| found.hypothesis.tokens.len() + usize::from(found.hypothesis.complete);
        self.hypotheses.iter().map(tokens).sum()
    }
}

/// What may be wrong with one sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// It has no words, and so has its translation.
    Empty,
    /// It has more tokens than the model can take; the rest was cut.
    TooLong {
        /// The tokens.
        tokens: usize,
        /// The tokens that the model can take.
        limit: usize,
    },
    /// It does not begin with the code of the language to translate into, as the model expects it.
    NoLanguage,
    /// Its translation reached no end within the maximum number of tokens and was cut.
    Unfinished {
        /// The maximum number of tokens.
        limit: usize,
    },
}
