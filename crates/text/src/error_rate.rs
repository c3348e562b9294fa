//! Word and character error rates of transcripts: `100 · edits / length of the reference`.
//!
//! Edits are the minimum number of substitutions, deletions and insertions (Levenshtein 1966). As
//! in jiwer, words are separated by spaces or longer white space, a single tab is part of a word,
//! and characters include the spaces inside.

use crate::spelling::Spelling;
use regex::Regex;
use std::sync::LazyLock;

/// Settings of an error rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorRateSettings {
    /// The unit that is counted.
    pub unit: ErrorUnit,
    /// The form to which both texts are converted first.
    pub spelling: Spelling,
    /// Whether case is ignored.
    pub lowercase: bool,
}

/// The unit of an error rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorUnit {
    /// Words (WER).
    #[default]
    Words,
    /// Characters (CER).
    Characters,
}

impl ErrorRateSettings {
    /// `WER` or `CER`.
    pub(crate) fn name(self) -> &'static str {
        if self.unit == ErrorUnit::Words { "WER" } else { "CER" }
    }

    /// The settings' part of a signature.
    pub(crate) fn signature(self) -> String {
        let case = if self.lowercase { "case:lc|" } else { "" };
        format!("{case}norm:{}", self.spelling.name())
    }

    /// The form of a text that is compared.
    fn form(self, text: &str) -> String {
        let text = self.spelling.apply(text);
        if self.lowercase { text.to_lowercase() } else { text }
    }

    /// The edits and the length of the reference with the lowest rate.
    pub(crate) fn count(self, hypothesis: &str, references: &[&str]) -> Vec<u32> {
        let hypothesis = self.form(hypothesis);
        let counts = references.iter().map(|reference| {
            let reference = self.form(reference);
            let (edits, length) = match self.unit {
                ErrorUnit::Words => {
                    let [hypothesis, reference] = [&hypothesis, &reference].map(|text| words(text));
                    (distance(&hypothesis, &reference), reference.len())
                }
                ErrorUnit::Characters => {
                    let [hypothesis, reference] = [&hypothesis, &reference]
                        .map(|text| text.trim().chars().collect::<Vec<_>>());
                    (distance(&hypothesis, &reference), reference.len())
                }
            };
            [edits as u32, length as u32]
        });
        let rate = |[edits, length]: &[u32; 2]| f64::from(*edits) / f64::from((*length).max(1));
        counts.min_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or_default().to_vec()
    }

    /// The rate of summed counts.
    pub(crate) fn score(self, sums: &[u64]) -> f64 {
        100.0 * sums[0] as f64 / sums[1].max(1) as f64
    }
}

/// The words of a text.
fn words(text: &str) -> Vec<&str> {
    static GAPS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\s\s+| ").expect("a valid pattern"));
    GAPS.split(text.trim()).filter(|word| !word.is_empty()).collect()
}

/// The minimum number of edits between two sequences.
fn distance<T: PartialEq>(one: &[T], other: &[T]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, a) in one.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, b) in other.iter().enumerate() {
            let edits = (diagonal + usize::from(a != b)).min(row[column].min(row[column + 1]) + 1);
            diagonal = std::mem::replace(&mut row[column + 1], edits);
        }
    }
    row[other.len()]
}
