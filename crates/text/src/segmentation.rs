//! Subword regularisation (Kudo 2018, section 3.3): random alternative segmentations of the words
//! of encoded text.
//!
//! `P(x_1 .. x_n) ∝ Π p(x_i)^α` over all ways to split a word into pieces of a unigram vocabulary
//!
//! Forward filtering computes `f(end) = ln Σ exp(α ln p(piece) + f(end - |piece|))`; backward
//! sampling draws the last piece of a word by its share of `f`, then the one before it.

use std::collections::HashMap;

use tokenizers::ModelWrapper;

use crate::error::{Cause, Result};
use crate::tokenizer::{Engine, Tokenizer};

/// The piece of characters without a piece.
const UNKNOWN: &str = "<unk>";

/// Draws segmentations from the unigram model of one side of a [`Tokenizer`].
#[derive(Clone, Debug)]
pub struct SegmentationSampler {
    /// By id; `None` for special tokens, which are never split.
    pieces: Vec<Option<String>>,
    /// Ids and `α ln p` by piece.
    scores: HashMap<String, (u32, f64)>,
    /// Length of the longest piece in bytes.
    longest: usize,
}

impl SegmentationSampler {
    /// The samplers of sources and targets. `alpha > 0`; smaller values make segmentations more
    /// uniform.
    ///
    /// # Errors
    /// If the tokenizer of a side is not a unigram model in a `tokenizer.json`.
    pub fn of(tokenizer: &Tokenizer, alpha: f64) -> Result<[Self; 2]> {
        let failed = || Cause::NoUnigram { file: tokenizer.file.clone() };
        let side = |engine| Self::of_engine(engine, alpha).ok_or_else(failed);
        Ok([side(&tokenizer.engine)?, side(tokenizer.target_engine())?])
    }

    fn of_engine(engine: &Engine, alpha: f64) -> Option<Self> {
        let Engine::Library(library) = engine else { return None };
        let ModelWrapper::Unigram(model) = library.get_model() else { return None };
        let special = library.get_added_tokens_decoder();
        let is_cut = |piece: &str, id: u32| piece != UNKNOWN && !special.contains_key(&id);
        let all = || model.iter().zip(0u32..);
        let pieces =
            all().map(|((piece, _), id)| is_cut(piece, id).then(|| piece.clone())).collect();
        let scores = all()
            .filter(|((piece, _), id)| is_cut(piece, *id))
            .map(|((piece, score), id)| (piece.clone(), (id, alpha * score)));
        let scores: HashMap<_, _> = scores.collect();
        let longest = scores.keys().map(String::len).max().unwrap_or(0);
        Some(Self { pieces, scores, longest })
    }

    /// Other ids of the same text: each word is split again, special tokens are unchanged. `number`
    /// returns random numbers in [0, 1).
    pub fn sample(&self, ids: &[u32], number: &mut impl FnMut() -> f64) -> Vec<u32> {
        let (mut sampled, mut word) = (Vec::with_capacity(ids.len()), String::new());
        for &id in ids {
            let piece = self.pieces.get(id as usize).and_then(Option::as_deref);
            if piece.is_none_or(|piece| piece.starts_with('▁')) {
                self.cut(&word, &mut sampled, number);
                word.clear();
            }
            match piece {
                Some(piece) => word.push_str(piece),
                None => sampled.push(id),
            }
        }
        self.cut(&word, &mut sampled, number);
        sampled
    }

    /// Adds the ids of a word's pieces.
    fn cut(&self, word: &str, sampled: &mut Vec<u32>, number: &mut impl FnMut() -> f64) {
        let ends: Vec<usize> =
            word.char_indices().map(|(end, _)| end).chain([word.len()]).collect();
        // By end: the pieces that end there, with their starts and logarithms of weights, and the
        // logarithm of the sum of weights.
        let mut sums = vec![(Vec::new(), 0.0)];
        for end in 1..ends.len() {
            let starts =
                (0..end).rev().take_while(|&start| ends[end] - ends[start] <= self.longest);
            let found = starts.filter_map(|start| {
                let (id, score) = *self.scores.get(&word[ends[start]..ends[end]])?;
                Some((start, id, score + sums[start].1))
            });
            let found: Vec<(usize, u32, f64)> = found.collect();
            let most = found.iter().map(|(.., weight)| *weight).fold(f64::NEG_INFINITY, f64::max);
            let sum = if most.is_finite() {
                most + found.iter().map(|(.., weight)| (weight - most).exp()).sum::<f64>().ln()
            } else {
                most
            };
            sums.push((found, sum));
        }
        let (first, mut end) = (sampled.len(), ends.len() - 1);
        while end > 0 {
            let (found, sum) = &sums[end];
            let mut left = number();
            let chosen = found.iter().find(|(.., weight)| {
                left -= (weight - sum).exp();
                left < 0.0
            });
            // Due to rounding the shares may sum to slightly less than 1.
            let (start, id, _) =
                *chosen.or(found.last()).expect("pieces that stood in the text spell it");
            sampled.push(id);
            end = start;
        }
        sampled[first..].reverse();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{TokenizerTrainer, TrainingSettings};

    /// All ways to split `word` into pieces, with the products of their weights.
    fn ways(sampler: &SegmentationSampler, word: &str) -> Vec<(Vec<u32>, f64)> {
        if word.is_empty() {
            return vec![(Vec::new(), 1.0)];
        }
        let pieces = sampler.scores.iter().filter(|(piece, _)| word.starts_with(piece.as_str()));
        let with = |(piece, (id, score)): (&String, &(u32, f64))| {
            let rest = ways(sampler, &word[piece.len()..]);
            rest.into_iter()
                .map(|(ids, weight)| ([vec![*id], ids].concat(), weight * score.exp()))
                .collect::<Vec<_>>()
        };
        pieces.flat_map(with).collect()
    }

    /// Frequencies of 20,000 draws compared with the shares of all ways to split a word: each
    /// within 4.5 standard deviations.
    #[test]
    fn segmentations_come_as_often_as_their_probabilities_say() {
        let mut trainer =
            TokenizerTrainer::new(TrainingSettings { vocab_size: 40, ..Default::default() })
                .unwrap();
        ["größer und größte", "der größte Hund", "große Hunde und der Hund", "ein größerer Grund"]
            .iter()
            .for_each(|line| {
                trainer.add(line).unwrap();
            });
        let trained = trainer.train().unwrap();
        let tokenizer = trained.tokenizer();
        let ids: Vec<u32> =
            tokenizer.encode("größte x Hunde").unwrap().into_iter().map(|id| id as u32).collect();
        for alpha in [0.2, 1.0] {
            let [sampler, _] = SegmentationSampler::of(tokenizer, alpha).unwrap();
            let mut state = 1_u64;
            let mut number = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 11) as f64 / (1_u64 << 53) as f64
            };
            let (n_draws, mut counts) = (20_000, HashMap::<Vec<u32>, u32>::new());
            for _ in 0..n_draws {
                let sampled = sampler.sample(&ids, &mut number);
                let unknown = sampled.iter().position(|id| *id == 1).unwrap();
                assert_eq!(sampled.last(), Some(&0), "</s> stays");
                *counts.entry(sampled[..unknown].to_vec()).or_default() += 1;
            }
            // `▁` before the unknown letter is a separate word.
            let mut expected = ways(&sampler, "▁größte");
            let space = sampler.scores["▁"].0;
            expected.iter_mut().for_each(|(ids, _)| ids.push(space));
            let total: f64 = expected.iter().map(|(_, weight)| weight).sum();
            assert!(expected.len() > 2, "{expected:?}");
            assert_eq!(
                counts
                    .keys()
                    .filter(|found| !expected.iter().any(|(ids, _)| ids == *found))
                    .count(),
                0
            );
            for (ids, weight) in expected {
                let share = weight / total;
                let found = f64::from(counts.get(&ids).copied().unwrap_or_default());
                let deviation = (share * (1.0 - share) * f64::from(n_draws)).sqrt();
                assert!(
                    (found - share * f64::from(n_draws)).abs() < 4.5 * deviation + 1.0,
                    "α {alpha}, {ids:?}: {found}, share {share}"
                );
            }
        }
    }

    #[test]
    fn merges_are_refused() {
        let settings = TrainingSettings {
            vocab_size: 20,
            algorithm: crate::Algorithm::Bpe,
            ..Default::default()
        };
        let mut trainer = TokenizerTrainer::new(settings).unwrap();
        trainer.add("a man and a woman").unwrap();
        let error = SegmentationSampler::of(trainer.train().unwrap().tokenizer(), 0.5).unwrap_err();
        insta::assert_snapshot!(error, @"the trained tokenizer.json: expected a tokenizer.json with a unigram model, which sampling of segmentations requires");
    }
}
