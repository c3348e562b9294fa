//! Word and character error rates of transcripts: `100 · edits / length of the reference`.
//!
//! Edits are the fewest substitutions, deletions and insertions (Levenshtein 1966). Words stand between white space, as in jiwer;
//! characters include the spaces inside.

use regex::Regex;
use std::sync::LazyLock;
use tokenizers::normalizers::unicode::NFKC;
use tokenizers::{NormalizedString, Normalizer as _};

/// Settings of an error rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorRateSettings {
    /// What is counted.
    pub unit: ErrorUnit,
    /// What both texts are brought to first.
    pub spelling: Spelling,
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

/// How texts are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spelling {
    /// As they are.
    #[default]
    Given,
    /// By the basic normaliser of Whisper (Radford et al. 2022, appendix C): lower case, without words in brackets, marks, symbols and
    /// punctuation.
    Basic,
}

impl Spelling {
    /// The text in this form.
    ///
    /// ```
    /// use cognate_text::Spelling;
    /// assert_eq!(Spelling::Basic.apply("[noise] Don't (um) stop -- CAFÉ!"), " don t stop café ");
    /// ```
    pub fn apply(self, text: &str) -> String {
        static BRACKETS: LazyLock<[Regex; 3]> = LazyLock::new(|| {
            [r"[<\[][^>\]]*[>\]]", r"\(([^)]+?)\)", r"[\p{M}\p{S}\p{P}]"].map(|pattern| Regex::new(pattern).expect("a valid pattern"))
        });
        if self == Spelling::Given {
            return text.to_owned();
        }
        let [brackets, parentheses, marks] = &*BRACKETS;
        let text = text.to_lowercase();
        let text = parentheses.replace_all(&brackets.replace_all(&text, ""), "").into_owned();
        let mut normalized = NormalizedString::from(text);
        NFKC.normalize(&mut normalized).expect("normal forms never fail");
        let text = marks.replace_all(normalized.get(), " ").to_lowercase();
        let mut spaced = String::with_capacity(text.len());
        for c in text.chars() {
            if !c.is_whitespace() {
                spaced.push(c);
            } else if !spaced.ends_with(' ') {
                spaced.push(' ');
            }
        }
        spaced
    }
}

impl ErrorRateSettings {
    /// `WER` or `CER`.
    pub(crate) fn name(self) -> &'static str {
        if self.unit == ErrorUnit::Words { "WER" } else { "CER" }
    }

    /// The settings' part of a signature.
    pub(crate) fn signature(self) -> &'static str {
        if self.spelling == Spelling::Given { "norm:none" } else { "norm:basic" }
    }

    /// The edits and the length of the reference with the lowest rate.
    pub(crate) fn count(self, hypothesis: &str, references: &[&str]) -> Vec<u32> {
        let hypothesis = self.spelling.apply(hypothesis);
        let counts = references.iter().map(|reference| {
            let reference = self.spelling.apply(reference);
            let (edits, length) = match self.unit {
                ErrorUnit::Words => {
                    let [hypothesis, reference] = [&hypothesis, &reference].map(|text| text.split_whitespace().collect::<Vec<_>>());
                    (distance(&hypothesis, &reference), reference.len())
                }
                ErrorUnit::Characters => {
                    let [hypothesis, reference] = [&hypothesis, &reference].map(|text| text.trim().chars().collect::<Vec<_>>());
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

/// The fewest edits between two sequences.
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
