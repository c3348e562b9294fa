//! Sampling of the next token.
//!
//! Tokens are filtered by transformers' logits warpers of the same names; then the first token
//! whose cumulative probability exceeds a uniform number is chosen.

use crate::Sampling;
use crate::scores::log_softmax;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::cmp::Ordering;

/// The random numbers of a sample, independent of its batch.
#[derive(Clone, Debug)]
pub(crate) struct Generator(ChaCha8Rng);

impl Sampling {
    /// The random numbers of sample `sequence` of a sentence.
    pub(crate) fn generator(&self, sentence_number: u64, sequence: usize) -> Generator {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(sentence_number);
        // Samples are further apart than the number of values that one can use.
        rng.set_word_pos((sequence as u128) << 40);
        Generator(rng)
    }

    /// Sets the scores `[vocab]` of filtered tokens to minus infinity; the `fewest` most probable
    /// are always kept.
    pub(crate) fn warp(&self, scores: &mut [f32], fewest: usize) {
        if self.temperature != 1.0 {
            scores.iter_mut().for_each(|score| *score /= self.temperature);
        }
        if self.top_k > 0 {
            let bound = nth_largest(scores, self.top_k.max(fewest));
            keep(scores, |_, score| score >= bound);
        }
        if self.top_p < 1.0 {
            self.keep_top_p(scores, fewest);
        }
        if self.min_p > 0.0 {
            let log_probabilities = normalized(scores);
            let bound = largest(&log_probabilities).exp() * self.min_p;
            let least = nth_largest(scores, fewest);
            keep(scores, |token, score| log_probabilities[token].exp() >= bound || score >= least);
        }
        if self.typical_p < 1.0 {
            self.keep_typical(scores, fewest);
        }
        if self.epsilon_cutoff > 0.0 {
            keep_probable(scores, fewest, |_| self.epsilon_cutoff);
        }
        if self.eta_cutoff > 0.0 {
            keep_probable(scores, fewest, |entropy| {
                self.eta_cutoff.min(self.eta_cutoff.sqrt() * (-entropy).exp())
            });
        }
    }

    /// Removes the least probable tokens while their total probability is at most `1 - top_p`; the
    /// `fewest` most probable are kept.
    fn keep_top_p(&self, scores: &mut [f32], fewest: usize) {
        let log_probabilities = normalized(scores);
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        let mut sum = 0.0_f64;
        order.truncate(order.len().saturating_sub(fewest));
        for token in order {
            sum += f64::from(log_probabilities[token]).exp();
            if sum > f64::from(1.0 - self.top_p) {
                break;
            }
            scores[token] = f32::NEG_INFINITY;
        }
    }

    /// Keeps tokens in the order of the distance of their surprise from the entropy until their
    /// total probability is `typical_p`.
    fn keep_typical(&self, scores: &mut [f32], fewest: usize) {
        let log_probabilities = normalized(scores);
        let expected = entropy(&log_probabilities);
        let distances: Vec<f32> =
            log_probabilities.iter().map(|log| (-log - expected).abs()).collect();
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| distances[a].total_cmp(&distances[b]));
        let mut sum = 0.0_f64;
        let reached = order.iter().position(|&token| {
            sum += f64::from(log_probabilities[token]).exp();
            sum >= f64::from(self.typical_p)
        });
        let bound = distances[order[reached.unwrap_or(order.len() - 1)]];
        let first = &order[..fewest.min(order.len())];
        keep(scores, |token, _| distances[token] <= bound || first.contains(&token));
    }
}

impl Generator {
    /// Gumbel keys of scores: the tokens of the largest keys, largest first, are a sample without
    /// replacement from the distribution of the logits (Gumbel-top-k; Kool et al. 2019, section
    /// 2.3).
    pub(crate) fn keys(&mut self, scores: &[f32]) -> Vec<f32> {
        let key = |&score: &f32| {
            if score.is_finite() { score - (-self.uniform().ln()).ln() as f32 } else { score }
        };
        scores.iter().map(key).collect()
    }

    /// A uniform number of 53 bits in [0, 1).
    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Draws a token from the distribution of the logits; returns its place.
    pub(crate) fn draw(&mut self, scores: &[f32]) -> usize {
        let largest = largest(scores);
        let weight = |score: f32| f64::from(score - largest).exp();
        let total: f64 = scores.iter().map(|&score| weight(score)).sum();
        let mut rest = self.uniform() * total;
        let mut drawn = 0;
        for (token, &score) in
            scores.iter().enumerate().filter(|(_, score)| **score > f32::NEG_INFINITY)
        {
            drawn = token;
            rest -= weight(score);
            if rest < 0.0 {
                break;
            }
        }
        drawn
    }
}

fn descending(a: &f32, b: &f32) -> Ordering {
    b.total_cmp(a)
}

/// The `n`-th largest score; minus infinity if there are fewer.
fn nth_largest(scores: &[f32], n: usize) -> f32 {
    if !(1..=scores.len()).contains(&n) {
        return f32::NEG_INFINITY;
    }
    *scores.to_vec().select_nth_unstable_by(n - 1, descending).1
}

fn largest(scores: &[f32]) -> f32 {
    scores.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

fn normalized(scores: &[f32]) -> Vec<f32> {
    let mut log_probabilities = scores.to_vec();
    log_softmax(&mut log_probabilities);
    log_probabilities
}

/// The entropy.
fn entropy(log_probabilities: &[f32]) -> f32 {
    let possible = log_probabilities.iter().filter(|log| log.is_finite());
    -possible.map(|log| log * log.exp()).sum::<f32>()
}

fn keep(scores: &mut [f32], stays: impl Fn(usize, f32) -> bool) {
    for (token, score) in scores.iter_mut().enumerate() {
        if !stays(token, *score) {
            *score = f32::NEG_INFINITY;
        }
    }
}

/// Keeps tokens of at least a probability that can depend on the entropy, and the `fewest` most
/// probable.
fn keep_probable(scores: &mut [f32], fewest: usize, bound: impl Fn(f32) -> f32) {
    let log_probabilities = normalized(scores);
    let (bound, least) = (bound(entropy(&log_probabilities)), nth_largest(scores, fewest));
    keep(scores, |token, score| log_probabilities[token].exp() >= bound || score >= least);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// transformers' warpers on recorded logits: options, number of tokens always kept, logits,
    /// probabilities.
    fn recorded() -> Vec<(Sampling, usize, Vec<f32>, Vec<f64>)> {
        let text =
            std::fs::read_to_string(cognate_testing::testdata("golden/decoding/warpers.json"))
                .unwrap();
        let file: Value = serde_json::from_str(&text).unwrap();
        let numbers =
            |value: &Value| value.as_array().unwrap().iter().map(Value::as_f64).collect::<Vec<_>>();
        let logits: Vec<_> = numbers(&file["logits"])
            .into_iter()
            .map(|logit| logit.map_or(f32::NEG_INFINITY, |logit| logit as f32))
            .collect();
        let row = |row: &Value| {
            let option = |name: &str, default: f32| {
                row["options"].get(name).map_or(default, |value| value.as_f64().unwrap() as f32)
            };
            let sampling = Sampling {
                temperature: option("temperature", 1.0),
                top_k: option("top_k", 50.0) as usize,
                top_p: option("top_p", 1.0),
                min_p: option("min_p", 0.0),
                typical_p: option("typical_p", 1.0),
                epsilon_cutoff: option("epsilon_cutoff", 0.0),
                eta_cutoff: option("eta_cutoff", 0.0),
                seed: 0,
            };
            let fewest = row["fewest"].as_u64().unwrap() as usize;
            (
                sampling,
                fewest,
                logits.clone(),
                numbers(&row["probabilities"]).into_iter().flatten().collect(),
            )
        };
        file["warped"].as_array().unwrap().iter().map(row).collect()
    }

    #[test]
    fn warped_probabilities_equal_transformers() {
        let rows = recorded();
        assert!(rows.len() > 45);
        let mut failures = Vec::new();
        for (sampling, fewest, mut logits, expected) in rows {
            sampling.warp(&mut logits, fewest);
            let found: Vec<_> =
                normalized(&logits).into_iter().map(|log| f64::from(log).exp()).collect();
            let worst = found
                .iter()
                .zip(&expected)
                .map(|(found, expected)| (found - expected).abs())
                .fold(0.0, f64::max);
            if worst > 1e-6 || found.len() != expected.len() {
                failures.push(format!("{sampling:?}, at least {fewest}: {worst:e}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    /// Pearson's statistic over cells that expect at least five draws, and the cells' number.
    fn chi_square(counts: &[u32], probabilities: &[f64], draws: u32) -> (f64, usize) {
        let expected = probabilities.iter().map(|probability| probability * f64::from(draws));
        let cells: Vec<_> =
            counts.iter().zip(expected).filter(|(_, expected)| *expected >= 5.0).collect();
        (
            cells
                .iter()
                .map(|(count, expected)| (f64::from(**count) - expected).powi(2) / expected)
                .sum(),
            cells.len(),
        )
    }

    #[test]
    fn frequencies_are_those_of_the_probabilities() {
        const DRAWS: u32 = 20_000;
        for (sampling, fewest, mut logits, probabilities) in recorded() {
            sampling.warp(&mut logits, fewest);
            let mut generator = Sampling { seed: 11, ..sampling }.generator(5, 2);
            let mut counts = vec![0; logits.len()];
            (0..DRAWS).for_each(|_| counts[generator.draw(&logits)] += 1);
            let impossible = counts
                .iter()
                .zip(&logits)
                .filter(|(count, logit)| **count > 0 && !logit.is_finite())
                .count();
            assert_eq!(impossible, 0, "{sampling:?}");
            let (statistic, cells) = chi_square(&counts, &probabilities, DRAWS);
            // Wilson and Hilferty's quantile of 1 in 10,000.
            let freedom = (cells.max(2) - 1) as f64;
            let bound = freedom
                * (1.0 - 2.0 / (9.0 * freedom) + 3.719 * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
            assert!(
                statistic <= bound,
                "{sampling:?}: {statistic} over {cells} cells, at most {bound}"
            );
        }
    }

    #[test]
    fn sentences_and_samples_have_different_numbers() {
        let draws = |seed, sentence, sequence| {
            let mut generator =
                Sampling { seed, ..Sampling::default() }.generator(sentence, sequence);
            [(); 20].map(|()| generator.draw(&[0.0; 100]))
        };
        assert_eq!(draws(1, 2, 3), draws(1, 2, 3));
        let others =
            [draws(1, 2, 3), draws(2, 2, 3), draws(1, 3, 3), draws(1, 2, 4), draws(1, 2, 0)];
        for (index, one) in others.iter().enumerate() {
            assert!(others[index + 1..].iter().all(|other| other != one));
        }
    }
}
