//! BLEU of a corpus, one reference a sentence.
//!
//! `BLEU = BP · exp(1/4 · Σ_{n=1..4} ln p_n)`, `BP = exp(min(0, 1 - r/c))`   (Papineni et al. 2002, section 2.3)
//!
//! `p_n` is the clipped precision of word n-grams over the whole corpus, `c` and `r` the words of hypotheses and
//! references. As sacreBLEU 2.6 (Post 2018) by default: `13a` words, case kept, orders without a match smoothed
//! exponentially (Chen and Cherry 2014, method 3), all four orders counted.
//!
//! Score and precisions lie in `0..=100`, the brevity penalty in `0..=1`.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

use crate::error::{Cause, Result};
use crate::mteval::{tokenize_13a, words};

/// The longest n-gram that counts.
const MAX_ORDER: usize = 4;

/// sacreBLEU's floor of `ln 0`: `exp` of it is 0.
const LN_ZERO: f64 = -9_999_999_999.0;

const SIGNATURE: &str = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0";

/// The BLEU of a corpus and what it is made of. `Display` writes sacreBLEU's line:
/// `BLEU = 36.24 66.2/42.1/29.6/20.9 (BP = 1.000 ratio = 1.001 hyp_len = 12116 ref_len = 12106)`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Bleu {
    /// BLEU, `0..=100`.
    pub score: f64,
    /// Smoothed precisions of the orders 1 to 4, `0..=100`.
    pub precisions: [f64; MAX_ORDER],
    /// `1` for a translation at least as long as the references, less for a shorter one.
    pub brevity_penalty: f64,
    /// Words of the hypotheses.
    pub sys_len: usize,
    /// Words of the references.
    pub ref_len: usize,
    /// The settings, as the signature of the sacreBLEU version whose score this is.
    pub signature: &'static str,
}

/// The BLEU of translations against one reference each.
///
/// Fails if the counts differ or are 0.
///
/// ```
/// # fn main() -> cognate_text::Result<()> {
/// let bleu = cognate_text::corpus_bleu(&["Zwei Hunde spielen im Schnee."], &["Zwei Hunde spielen im Gras."])?;
/// assert_eq!(format!("{:.2}", bleu.score), "53.73");
/// # Ok(())
/// # }
/// ```
pub fn corpus_bleu(hypotheses: &[impl AsRef<str>], references: &[impl AsRef<str>]) -> Result<Bleu> {
    if hypotheses.len() != references.len() {
        Err(Cause::Counts { hypotheses: hypotheses.len(), references: references.len() })?;
    }
    if hypotheses.is_empty() {
        Err(Cause::NoSentences)?;
    }
    let mut counts = Counts::default();
    for (hypothesis, reference) in hypotheses.iter().zip(references) {
        counts.add(hypothesis.as_ref(), reference.as_ref());
    }
    Ok(counts.bleu())
}

impl fmt::Display for Bleu {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precisions = self.precisions.map(|precision| format!("{precision:.1}")).join("/");
        let ratio = match self.ref_len {
            0 => 0.0,
            ref_len => self.sys_len as f64 / ref_len as f64,
        };
        write!(
            formatter,
            "BLEU = {:.2} {precisions} (BP = {:.3} ratio = {ratio:.3} hyp_len = {} ref_len = {})",
            self.score, self.brevity_penalty, self.sys_len, self.ref_len
        )
    }
}

/// What BLEU needs of a corpus; sentences only add.
#[derive(Default)]
struct Counts {
    /// n-grams of the hypotheses that their references have too, by order.
    matches: [usize; MAX_ORDER],
    /// n-grams of the hypotheses, by order.
    totals: [usize; MAX_ORDER],
    sys_len: usize,
    ref_len: usize,
}

impl Counts {
    fn add(&mut self, hypothesis: &str, reference: &str) {
        let (hypothesis, reference) = (tokenize_13a(hypothesis), tokenize_13a(reference));
        let hypothesis: Vec<&str> = words(&hypothesis).collect();
        let reference: Vec<&str> = words(&reference).collect();
        self.sys_len += hypothesis.len();
        self.ref_len += reference.len();
        for order in 1..=MAX_ORDER {
            let in_reference = ngrams(&reference, order);
            for (ngram, count) in ngrams(&hypothesis, order) {
                self.totals[order - 1] += count;
                self.matches[order - 1] += count.min(*in_reference.get(ngram).unwrap_or(&0));
            }
        }
    }

    fn bleu(&self) -> Bleu {
        let brevity_penalty = match (self.sys_len, self.ref_len) {
            (sys_len, ref_len) if sys_len >= ref_len => 1.0,
            (0, _) => 0.0,
            (sys_len, ref_len) => (1.0 - ref_len as f64 / sys_len as f64).exp(),
        };
        let precisions = self.precisions();
        let score = match precisions {
            // Without one matching word there is nothing to smooth.
            None => 0.0,
            Some(precisions) => {
                let ln = |p: f64| if p == 0.0 { LN_ZERO } else { p.ln() };
                let sum: f64 = precisions.into_iter().map(ln).sum();
                brevity_penalty * (sum / MAX_ORDER as f64).exp()
            }
        };
        Bleu {
            score,
            precisions: precisions.unwrap_or_default(),
            brevity_penalty,
            sys_len: self.sys_len,
            ref_len: self.ref_len,
            signature: SIGNATURE,
        }
    }

    /// Precisions in percent; the k-th order without a match counts as `1 / 2^k` matches. Orders longer than every
    /// hypothesis stay 0. `None` if no order has a match.
    fn precisions(&self) -> Option<[f64; MAX_ORDER]> {
        if self.matches == [0; MAX_ORDER] {
            return None;
        }
        let mut precisions = [0.0; MAX_ORDER];
        let mut smoothing = 1.0;
        for (precision, (&matches, &total)) in precisions.iter_mut().zip(self.matches.iter().zip(&self.totals)) {
            *precision = match (matches, total) {
                (_, 0) => break,
                (0, total) => {
                    smoothing *= 2.0;
                    100.0 / (smoothing * total as f64)
                }
                (matches, total) => 100.0 * matches as f64 / total as f64,
            };
        }
        Some(precisions)
    }
}

/// How often each n-gram of one order occurs.
fn ngrams<'a, 'b>(words: &'a [&'b str], order: usize) -> HashMap<&'a [&'b str], usize> {
    let mut counts = HashMap::new();
    for ngram in words.windows(order) {
        *counts.entry(ngram).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Papineni et al. 2002, section 2.1: "the" seven times matches two of the reference's.
    #[test]
    fn matches_are_clipped() {
        let mut counts = Counts::default();
        counts.add("the the the the the the the", "The cat is on the mat, the end");
        assert_eq!((counts.matches, counts.totals), ([2, 0, 0, 0], [7, 6, 5, 4]));
    }
}
