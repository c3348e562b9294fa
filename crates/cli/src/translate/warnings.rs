//! Warnings about sentences: the first are printed, the others counted.

use crate::messages;
use cognate::{Translation, Warning};

/// Maximum number of printed warnings.
const PRINTED: usize = 10;

/// The warnings of one run.
#[derive(Debug)]
pub(crate) struct Warnings {
    /// The name of a sentence before its number: `sentence`, or `stdin: line`.
    pub(crate) unit: String,
    printed: usize,
    counted: [usize; 5],
    /// Number of words that are not in the vocabulary.
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
        let kind = match warning {
            Warning::Empty => 0,
            Warning::TooLong { .. } => 1,
            Warning::Unfinished { .. } => 2,
            Warning::NoLanguage => 3,
            _ => 4,
        };
        if self.printed == PRINTED {
            self.counted[kind] += 1;
            return;
        }
        self.printed += 1;
        let what = warning
            .to_string()
            .replace("set target_language", "pass --target-language")
            .replace("max_new_tokens", "--max-new-tokens");
        messages::warning(format_args!("{} {number}: {what}", self.unit));
    }

    /// Prints the counts of warnings that were not printed.
    pub(crate) fn finish(&self) {
        if self.n_unknown > 0 {
            let (n, are) =
                (self.n_unknown, if self.n_unknown == 1 { "word is" } else { "words are" });
            messages::warning(format_args!("{n} {are} not in the model's vocabulary"));
        }
        let kinds = ["empty", "too long", "truncated", "without a language", "others"]
            .iter()
            .zip(self.counted)
            .filter(|(_, count)| *count > 0);
        let kinds: Vec<_> = kinds.map(|(kind, count)| format!("{count} {kind}")).collect();
        if !kinds.is_empty() {
            messages::warning(format_args!("more warnings: {}", kinds.join(", ")));
        }
    }
}
