//! Warnings about sentences: the first are printed, the others counted.

use crate::messages;
use cognate::{Translation, Warning};

/// Warnings that are printed.
const PRINTED: usize = 10;

/// The warnings of one run.
#[derive(Debug)]
pub(crate) struct Warnings {
    /// What stands before a sentence's number: `sentence`, or `stdin: line`.
    pub(crate) unit: String,
    printed: usize,
    counted: [usize; 5],
    /// Words that are not in the vocabulary.
    n_unknown: usize,
}

impl Warnings {
    pub(crate) fn new(unit: String) -> Self {
        Self { unit, printed: 0, counted: [0; 5], n_unknown: 0 }
    }

    /// Prints or counts the warnings about a sentence.
    pub(crate) fn of(&mut self, number: usize, translation: &Translation) {
        translation.warnings.iter().for_each(|&warning| self.add(number, warning));
        self.n_unknown += translation.n_unknown;
    }

    /// Prints a warning about sentence `number`, or counts it.
    fn add(&mut self, number: usize, warning: Warning) {
        let (kind, what) = match warning {
            Warning::Empty => (0, "empty, and so is its translation".into()),
            Warning::TooLong { tokens, limit } => (1, format!("{tokens} tokens, but the model has {limit} positions; the rest is cut")),
            Warning::Unfinished { limit } => (2, format!("its translation has no end within {limit} tokens (--max-new-tokens) and is cut")),
            Warning::NoLanguage => {
                (3, "names no language to translate into; pass --target-language, or begin it with a code such as >>deu<<".into())
            }
            other => (4, format!("{other:?}")),
        };
        if self.printed == PRINTED {
            self.counted[kind] += 1;
            return;
        }
        self.printed += 1;
        messages::warning(format_args!("{} {number}: {what}", self.unit));
    }

    /// Prints how many were only counted.
    pub(crate) fn finish(&self) {
        if self.n_unknown > 0 {
            let (n, are) = (self.n_unknown, if self.n_unknown == 1 { "word is" } else { "words are" });
            messages::warning(format_args!("{n} {are} not in the model's vocabulary"));
        }
        let kinds = ["empty", "too long", "cut", "without a language", "others"].iter().zip(self.counted).filter(|(_, count)| *count > 0);
        let kinds: Vec<_> = kinds.map(|(kind, count)| format!("{count} {kind}")).collect();
        if !kinds.is_empty() {
            messages::warning(format_args!("more of the same: {}", kinds.join(", ")));
        }
    }
}
