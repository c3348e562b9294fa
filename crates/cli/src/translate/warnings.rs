//! Warnings about sentences: the first ones each, the others as a number.

use crate::messages;

/// Warnings that are told each.
const TOLD: usize = 10;

/// What may be wrong with one sentence.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Warning {
    /// It has no words.
    Empty,
    /// It has more tokens than the model has positions.
    TooLong { tokens: usize, limit: usize },
    /// It does not begin with the language to translate into, as the model expects it.
    NoLanguage,
    /// Its translation found no end.
    Unfinished { limit: usize },
}

/// The warnings of one run.
#[derive(Debug)]
pub(crate) struct Warnings {
    /// What stands before a sentence's number: `sentence`, or `stdin: line`.
    pub(crate) unit: String,
    told: usize,
    untold: [usize; 4],
}

impl Warnings {
    pub(crate) fn new(unit: String) -> Self {
        Self { unit, told: 0, untold: [0; 4] }
    }

    /// Tells warnings about sentences, in the order of their numbers.
    pub(crate) fn tell(&mut self, mut found: Vec<(usize, Warning)>) {
        found.sort_by_key(|(number, _)| *number);
        found.into_iter().for_each(|(number, warning)| self.add(number, warning));
    }

    /// Tells a warning about sentence `number`, or counts it.
    fn add(&mut self, number: usize, warning: Warning) {
        if self.told == TOLD {
            let kind = match warning {
                Warning::Empty => 0,
                Warning::TooLong { .. } => 1,
                Warning::Unfinished { .. } => 2,
                Warning::NoLanguage => 3,
            };
            self.untold[kind] += 1;
            return;
        }
        self.told += 1;
        let what = match warning {
            Warning::Empty => "empty, and so is its translation".into(),
            Warning::TooLong { tokens, limit } => {
                format!("{tokens} tokens, but the model has {limit} positions; what is beyond is left out")
            }
            Warning::NoLanguage => {
                "names no language to translate into; pass --target-language, or begin it with a code such as >>deu<<".into()
            }
            Warning::Unfinished { limit } => format!("its translation has no end within {limit} tokens (--max-new-tokens) and is cut"),
        };
        messages::warning(format_args!("{} {number}: {what}", self.unit));
    }

    /// Tells how many were only counted.
    pub(crate) fn finish(&self) {
        let kinds = ["empty", "too long", "cut", "without a language"].iter().zip(self.untold).filter(|(_, count)| *count > 0);
        let kinds: Vec<_> = kinds.map(|(kind, count)| format!("{count} {kind}")).collect();
        if !kinds.is_empty() {
            messages::warning(format_args!("more of the same: {}", kinds.join(", ")));
        }
    }
}
