//! BLEU of a corpus.
//!
//! `BLEU = BP · exp(1/4 · Σ_{n=1..4} ln p_n)`, `BP = exp(min(0, 1 - r/c))`   (Papineni et al. 2002,
//! section 2.3)
//!
//! `p_n` is the clipped precision of word n-grams over the whole corpus, `c` the number of words of
//! the hypotheses and `r` that of the references nearest in length. As in sacreBLEU 2.6 (Post
//! 2018); by default `13a` words, case kept, orders without a match smoothed exponentially (Chen
//! and Cherry 2014, method 3), all four orders counted.
//!
//! Score and precisions are in `0..=100`, the brevity penalty in `0..=1`.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

use crate::arithmetic::Arithmetic;
use crate::words::{Words, words};

/// The maximum order of n-grams.
pub(crate) const MAX_ORDER: usize = 4;

/// sacreBLEU's replacement of `ln 0`: its `exp` is 0.
const LN_ZERO: f64 = -9_999_999_999.0;

/// Settings of BLEU; the default is sacreBLEU's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BleuSettings {
    /// The tokenisation.
    pub words: Words,
    /// Whether text is lower-cased first.
    pub lowercase: bool,
    /// The smoothing of orders without a match.
    pub smoothing: Smoothing,
    /// Whether only orders that the text is long enough for are counted; recommended for single
    /// sentences.
    pub effective_order: bool,
}

/// The smoothing of orders of n-grams without a match (Chen and Cherry 2014).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Smoothing {
    /// The k-th such order has `1 / 2^k` matches (method 3).
    #[default]
    Exponential,
    /// Such an order has this number of matches, usually 0.1 (method 1).
    Floor(f64),
    /// This number, usually 1, is added to the matches and n-grams of all orders but the first
    /// (method 2).
    AddK(f64),
    /// No smoothing: BLEU is 0.
    None,
}

impl Smoothing {
    fn signature(self) -> String {
        match self {
            Self::Exponential => "exp".into(),
            Self::Floor(value) => format!("floor[{value:.2}]"),
            Self::AddK(value) => format!("add-k[{value:.2}]"),
            Self::None => "none".into(),
        }
    }
}

/// The BLEU of a corpus and its parts. `Display` writes sacreBLEU's line:
/// `BLEU = 36.24 66.2/42.1/29.6/20.9 (BP = 1.000 ratio = 1.001 hyp_len = 12116 ref_len = 12106)`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Bleu {
    /// BLEU, `0..=100`.
    pub score: f64,
    /// Smoothed precisions of the orders 1 to 4, `0..=100`.
    pub precisions: [f64; MAX_ORDER],
    /// The brevity penalty: 1 for hypotheses at least as long as the references, less for shorter
    /// ones.
    pub brevity_penalty: f64,
    /// Number of words of the hypotheses.
    pub sys_len: usize,
    /// Number of words of the references.
    pub ref_len: usize,
    /// sacreBLEU's signature.
    pub signature: String,
}

impl Bleu {
    /// sacreBLEU's text after the score:
    /// `66.2/42.1/29.6/20.9 (BP = 1.000 ratio = 1.001 hyp_len = 12116 ref_len = 12106)`.
    pub fn parts(&self) -> String {
        let Self { precisions, brevity_penalty, sys_len, ref_len, .. } = self;
        let precisions = precisions.map(|precision| format!("{precision:.1}")).join("/");
        let ratio = if *ref_len == 0 { 0.0 } else { *sys_len as f64 / *ref_len as f64 };
        format!(
            "{precisions} (BP = {brevity_penalty:.3} ratio = {ratio:.3} hyp_len = {sys_len} ref_len = {ref_len})"
        )
    }
}

impl fmt::Display for Bleu {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BLEU = {:.2} {}", self.score, self.parts())
    }
}

impl BleuSettings {
    /// The settings' part of a signature.
    pub(crate) fn signature(&self) -> String {
        let case = if self.lowercase { "lc" } else { "mixed" };
        let effective = if self.effective_order { "yes" } else { "no" };
        format!(
            "case:{case}|eff:{effective}|tok:{}|smooth:{}",
            self.words.name(),
            self.smoothing.signature()
        )
    }

    /// The statistics of a sentence: the numbers of words of the hypothesis and of the reference
    /// nearest in length, of matching n-grams for each order, and of the hypothesis's n-grams for
    /// each order.
    pub(crate) fn count(&self, hypothesis: &str, references: &[&str]) -> Vec<u32> {
        let divided = |sentence: &str| match self.lowercase {
            true => self.words.divide(&sentence.to_lowercase()),
            false => self.words.divide(sentence),
        };
        let (hypothesis, references) = (
            divided(hypothesis),
            references.iter().map(|reference| divided(reference)).collect::<Vec<_>>(),
        );
        let hypothesis: Vec<&str> = words(&hypothesis).collect();
        let references: Vec<Vec<&str>> =
            references.iter().map(|reference| words(reference).collect()).collect();
        let distance = |length: &usize| (length.abs_diff(hypothesis.len()), *length);
        let ref_len = references.iter().map(Vec::len).min_by_key(distance).unwrap_or(0);
        let (mut matches, mut totals) = (Vec::new(), Vec::new());
        for order in 1..=MAX_ORDER {
            let in_references: Vec<_> =
                references.iter().map(|reference| ngrams(reference, order)).collect();
            let allowed = |ngram: &[&str]| {
                in_references
                    .iter()
                    .filter_map(|counts| counts.get(ngram))
                    .max()
                    .copied()
                    .unwrap_or(0)
            };
            matches.push(
                ngrams(&hypothesis, order)
                    .into_iter()
                    .map(|(ngram, count)| count.min(allowed(ngram)))
                    .sum(),
            );
            totals.push((hypothesis.len() + 1).saturating_sub(order) as u32);
        }
        [&[hypothesis.len() as u32, ref_len as u32], &matches[..], &totals[..]].concat()
    }

    /// BLEU of summed statistics, without its signature.
    pub(crate) fn bleu(&self, sums: &[u64], arithmetic: Arithmetic) -> Bleu {
        let (sys_len, ref_len) = (sums[0] as usize, sums[1] as usize);
        let (matches, totals) = sums[2..].split_at(MAX_ORDER);
        let brevity_penalty = match (sys_len, ref_len) {
            (sys_len, ref_len) if sys_len >= ref_len => 1.0,
            (0, _) => 0.0,
            (sys_len, ref_len) => (1.0 - ref_len as f64 / sys_len as f64).exp(),
        };
        let found = self.precisions(matches, totals, arithmetic);
        let score = found.map_or(0.0, |(precisions, orders)| {
            let ln = |p: f64| if p == 0.0 { LN_ZERO } else { p.ln() };
            let sum: f64 = precisions[..orders].iter().copied().map(ln).sum();
            brevity_penalty * (sum / orders as f64).exp()
        });
        let precisions = found.map(|(precisions, _)| precisions).unwrap_or_default();
        Bleu { score, precisions, brevity_penalty, sys_len, ref_len, signature: String::new() }
    }

    /// Precisions in percent and the number of orders that count. Orders longer than every
    /// hypothesis stay 0. `None` if no order has a match.
    fn precisions(
        &self,
        matches: &[u64],
        totals: &[u64],
        arithmetic: Arithmetic,
    ) -> Option<([f64; MAX_ORDER], usize)> {
        if matches.iter().all(|&matches| matches == 0) {
            return None;
        }
        let round = |number: f64| arithmetic.round(number);
        let mut precisions = [0.0; MAX_ORDER];
        let (mut halves, mut orders) = (1.0, MAX_ORDER);
        for (index, (&matches, &total)) in matches.iter().zip(totals).enumerate() {
            let more = match self.smoothing {
                Smoothing::AddK(value) if index > 0 => value,
                _ => 0.0,
            };
            let (matches, total) = (round(matches as f64 + more), round(total as f64 + more));
            if total == 0.0 {
                break;
            }
            if self.effective_order {
                orders = index + 1;
            }
            precisions[index] = match self.smoothing {
                _ if matches > 0.0 => round(round(100.0 * matches) / total),
                Smoothing::Exponential => {
                    halves *= 2.0;
                    round(100.0 / round(halves * total))
                }
                Smoothing::Floor(value) => round(round(100.0 * value) / total),
                Smoothing::AddK(_) | Smoothing::None => 0.0,
            };
        }
        Some((precisions, orders))
    }
}

/// The counts of the n-grams of one order.
fn ngrams<'a, 'b>(words: &'a [&'b str], order: usize) -> HashMap<&'a [&'b str], u32> {
    let mut counts = HashMap::new();
    for ngram in words.windows(order) {
        *counts.entry(ngram).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Papineni et al. 2002, section 2.1: "the" seven times matches two of one reference's; n-grams
    /// of any reference count.
    #[test]
    fn matches_are_clipped() {
        let count = |references: &[&str]| {
            BleuSettings::default().count("the the the the the the the", references)
        };
        assert_eq!(count(&["The cat is on the mat, the end"]), [7, 9, 2, 0, 0, 0, 7, 6, 5, 4]);
        assert_eq!(count(&["the cat", "the the the cat sat"]), [7, 5, 3, 2, 1, 0, 7, 6, 5, 4]);
    }
}
