//! chrF of a corpus: n-grams of characters, and in chrF++ of words, too.
//!
//! `chrF_β = (1 + β²) · P · R / (β² · P + R)`   (Popović 2015; chrF++: Popović 2017)
//!
//! `P` and `R` are precision and recall, averaged over the orders of n-grams; β, usually 2, is the
//! weight of recall. As in sacreBLEU 2.6, orders longer than the hypotheses or references do not
//! count, and the reference with the best chrF is used.

use std::collections::HashMap;
use std::hash::Hash;

use crate::arithmetic::Arithmetic;
use crate::words::{is_space, words};

/// Settings of chrF; the default is sacreBLEU's chrF2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChrfSettings {
    /// The maximum order of character n-grams.
    pub char_order: usize,
    /// The maximum order of word n-grams: 2 for chrF++, 0 for chrF.
    pub word_order: usize,
    /// The weight of recall relative to precision.
    pub beta: u32,
    /// Whether text is lower-cased first.
    pub lowercase: bool,
    /// Whether spaces count as characters.
    pub whitespace: bool,
}

impl Default for ChrfSettings {
    fn default() -> Self {
        Self { char_order: 6, word_order: 0, beta: 2, lowercase: false, whitespace: false }
    }
}

impl ChrfSettings {
    /// chrF++: with word n-grams up to order 2.
    pub fn plus_plus() -> Self {
        Self { word_order: 2, ..Self::default() }
    }

    /// `chrF2`, `chrF2++`.
    pub(crate) fn name(&self) -> String {
        format!("chrF{}{}", self.beta, "+".repeat(self.word_order))
    }

    /// The settings' part of a signature.
    pub(crate) fn signature(&self) -> String {
        let Self { char_order, word_order, .. } = self;
        let case = if self.lowercase { "lc" } else { "mixed" };
        let space = if self.whitespace { "yes" } else { "no" };
        format!("case:{case}|eff:yes|nc:{char_order}|nw:{word_order}|space:{space}")
    }

    /// For each order the numbers of n-grams of the hypothesis, of the best reference, and of
    /// matches.
    pub(crate) fn count(&self, hypothesis: &str, references: &[&str]) -> Vec<u32> {
        let mut best: Option<(f64, Vec<u32>)> = None;
        let hypothesis = self.ngrams(hypothesis);
        for reference in references {
            let reference = self.ngrams(reference);
            let counts: Vec<u32> = hypothesis
                .iter()
                .zip(&reference)
                .flat_map(|(hypothesis, reference)| matches(hypothesis, reference))
                .collect();
            let sums: Vec<u64> = counts.iter().map(|&count| count.into()).collect();
            let score = self.score(&sums, Arithmetic::Double);
            if best.as_ref().is_none_or(|(highest, _)| score > *highest) {
                best = Some((score, counts));
            }
        }
        best.map_or_else(|| vec![0; self.width()], |(_, counts)| counts)
    }

    /// The number of statistics of a sentence.
    pub(crate) fn width(&self) -> usize {
        3 * (self.char_order + self.word_order)
    }

    /// chrF of summed statistics, `0..=100`.
    pub(crate) fn score(&self, sums: &[u64], arithmetic: Arithmetic) -> f64 {
        let round = |number: f64| arithmetic.round(number);
        let (mut precision, mut recall, mut orders) = (0.0, 0.0, 0.0);
        for order in sums.chunks_exact(3) {
            let [in_hypothesis, in_reference, matching] =
                [0, 1, 2].map(|index| round(order[index] as f64));
            if in_hypothesis > 0.0 && in_reference > 0.0 {
                precision = round(precision + round(matching / in_hypothesis));
                recall = round(recall + round(matching / in_reference));
                orders += 1.0;
            }
        }
        if precision + recall == 0.0 {
            return 0.0;
        }
        let (precision, recall) = (round(precision / orders), round(recall / orders));
        let factor = f64::from(self.beta).powi(2);
        let product = round(round((1.0 + factor) * precision) * recall);
        round(100.0 * round(product / round(round(factor * precision) + recall)))
    }

    /// The counts of n-grams by order: of characters, then of words.
    fn ngrams(&self, sentence: &str) -> Vec<Counts> {
        let sentence = if self.lowercase { sentence.to_lowercase() } else { sentence.to_owned() };
        let characters: Vec<char> =
            sentence.chars().filter(|&character| self.whitespace || !is_space(character)).collect();
        let in_characters =
            (1..=self.char_order).map(|order| Counts::Characters(counted(&characters, order)));
        let pieces: Vec<String> =
            words(&sentence).flat_map(without_punctuation).map(str::to_owned).collect();
        let in_words = (1..=self.word_order).map(|order| Counts::Words(counted(&pieces, order)));
        in_characters.chain(in_words).collect()
    }
}

/// The counts of the n-grams of one order.
enum Counts {
    Characters(HashMap<Vec<char>, u32>),
    Words(HashMap<Vec<String>, u32>),
}

fn counted<T: Clone + Eq + Hash>(units: &[T], order: usize) -> HashMap<Vec<T>, u32> {
    let mut counts = HashMap::new();
    for ngram in units.windows(order) {
        *counts.entry(ngram.to_vec()).or_insert(0) += 1;
    }
    counts
}

/// The numbers of n-grams of the hypothesis (0 if the reference has none), of the reference, and of
/// both.
fn matches(hypothesis: &Counts, reference: &Counts) -> [u32; 3] {
    fn of<T: Eq + Hash>(hypothesis: &HashMap<T, u32>, reference: &HashMap<T, u32>) -> [u32; 3] {
        let matching = hypothesis
            .iter()
            .map(|(ngram, count)| *count.min(reference.get(ngram).unwrap_or(&0)))
            .sum();
        let in_hypothesis = if reference.is_empty() { 0 } else { hypothesis.values().sum() };
        [in_hypothesis, reference.values().sum(), matching]
    }
    match (hypothesis, reference) {
        (Counts::Characters(hypothesis), Counts::Characters(reference)) => {
            of(hypothesis, reference)
        }
        (Counts::Words(hypothesis), Counts::Words(reference)) => of(hypothesis, reference),
        (Counts::Characters(_), Counts::Words(_)) | (Counts::Words(_), Counts::Characters(_)) => {
            unreachable!("both have the same orders")
        }
    }
}

/// Separates ASCII punctuation at a word's end, otherwise at its beginning.
fn without_punctuation(word: &str) -> impl Iterator<Item = &str> {
    let is_punctuation = |c: char| c.is_ascii_punctuation();
    let cut = match (word.chars().next(), word.chars().next_back()) {
        _ if word.chars().nth(1).is_none() => 0,
        (_, Some(last)) if is_punctuation(last) => word.len() - 1,
        (Some(first), _) if is_punctuation(first) => 1,
        _ => 0,
    };
    let (before, after) = word.split_at(cut);
    [before, after].into_iter().filter(|part| !part.is_empty())
}
