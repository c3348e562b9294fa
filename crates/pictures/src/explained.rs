//! What a model does with a sentence, step by step: the numbers that `cognate explain` tells, and that stand in a page.
//!
//! `words = mean over rows of exp(-Σ w ln w)`: over how many words a head spreads, from 1 to all of them.

use crate::{Example, Token, Weights};
use serde::{Deserialize, Serialize};

/// What a model does with a sentence, beside what it attends to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// What the first layers read.
    pub embeddings: Embeddings,
    /// What each layer looks at, in the order of [`crate::Attention::ALL`].
    pub layers: [Vec<Summary>; 3],
    /// The layer whose cross-attention the steps tell, from 0.
    pub alignment_layer: usize,
    /// What comes next, for each word that is written.
    pub steps: Vec<Step>,
    /// The search that found the translation, if it kept several hypotheses.
    pub beams: Option<Beams>,
}

/// The sizes of embeddings and positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Embeddings {
    /// Of a model whose weights are as they were trained.
    Known {
        /// The numbers of an embedding.
        d_model: usize,
        /// Whether rows of the table are multiplied by the root of `d_model`.
        is_scaled: bool,
        /// For each token that the encoder reads.
        source: Vec<Norms>,
        /// For each token that the decoder reads.
        target: Vec<Norms>,
    },
    /// Why they are not known.
    Unknown(String),
}

/// Euclidean norms at one place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Norms {
    /// Of the token's embedding, scaled as the model scales it.
    pub token: f32,
    /// Of the position, where one is added.
    pub position: Option<f32>,
    /// Of what the first layer reads.
    pub sum: f32,
}

/// What a layer looks at, on average over rows and heads; all weights of a row sum to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The weights of the word itself, of the one before it and of the one after it; in self-attention only.
    pub own: Option<[f32; 3]>,
    /// The weight of the first word.
    pub first: f32,
    /// The weight of the last one.
    pub last: f32,
    /// Over how many words a head spreads.
    pub words: f32,
    /// The head that spreads least, from 0.
    pub sharpest: usize,
    /// Over how many words that one does.
    pub sharpest_words: f32,
}

/// One word of the translation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The likeliest next words under the model alone, the likeliest first.
    pub likeliest: Vec<Likely>,
    /// The probability of what is written, where it is known.
    pub written: Option<f32>,
    /// The source words that it looks at most, by their places from 0, with the mean weight over the layer's heads.
    pub looks_at: Vec<(usize, f32)>,
}

/// A word that may come next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Likely {
    /// The word.
    pub token: Token,
    /// From 0 to 1.
    pub probability: f32,
}

/// A beam search: every hypothesis that ran, as a tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beams {
    /// How many hypotheses it kept at each step.
    pub width: usize,
    /// The words, each behind the one before it; the first is the start token.
    pub nodes: Vec<Node>,
    /// The finished hypotheses, the best first.
    pub finished: Vec<Finished>,
}

/// A word of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The word.
    pub token: Token,
    /// The word before it, by its place in [`Beams::nodes`].
    pub parent: Option<usize>,
    /// The log-probability of all words from the start to this one, under the model alone.
    pub log_probability: f32,
    /// Which of the finished hypotheses ends here.
    pub rank: Option<usize>,
}

/// A finished hypothesis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// Its text.
    pub text: String,
    /// By what it is ranked.
    pub score: f32,
}

impl Explained {
    /// What of it does not fit the words of its sentence.
    pub(crate) fn misfit<W>(&self, example: &Example<W>) -> Option<String> {
        let (source, read, written) = (example.source.tokens.len(), example.target.read.len(), example.target.written.len());
        let counts = match &self.embeddings {
            Embeddings::Known { source: norms, target, .. } => vec![("norms", source, norms.len()), ("norms", read, target.len())],
            Embeddings::Unknown(_) => Vec::new(),
        };
        let steps = [("steps", written, self.steps.len())];
        if let Some((what, expected, found)) = counts.into_iter().chain(steps).find(|(_, expected, found)| expected != found) {
            return Some(format!("expected {expected} {what}, found {found}"));
        }
        if let Some((place, _)) = self.steps.iter().flat_map(|step| &step.looks_at).find(|(place, _)| *place >= source) {
            return Some(format!("expected places below {source}, found {place}"));
        }
        let Beams { nodes, finished, .. } = self.beams.as_ref()?;
        let is_wrong = |(index, node): &(usize, &Node)| {
            node.parent.map_or(*index > 0, |parent| parent >= *index) || node.rank.is_some_and(|rank| rank >= finished.len())
        };
        let (index, _) = nodes.iter().enumerate().find(is_wrong)?;
        Some(format!("word {index} of the tree: expected the word before it and its hypothesis to be there"))
    }
}

impl Beams {
    /// The words that come after one of them, in the order in which they came.
    pub fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        (node + 1..self.nodes.len()).filter(move |&child| self.nodes[child].parent == Some(node))
    }
}

impl Summary {
    /// The summary of each layer; `is_own` of self-attention, whose row `r` is the word at column `r`.
    pub fn of(weights: &Weights, is_own: bool) -> Vec<Self> {
        let [layers, heads, ..] = weights.shape();
        let summary = |layer| {
            let maps: Vec<Map<'_>> =
                (0..heads).map(|head| Map { values: weights.head(layer, head), columns: weights.shape()[3] }).collect();
            let mean = |of: &dyn Fn(&Map<'_>) -> f32| maps.iter().map(of).sum::<f32>() / heads as f32;
            let spreads: Vec<f32> = maps.iter().map(Map::spread).collect();
            let sharpest = (0..heads).min_by(|&a, &b| spreads[a].total_cmp(&spreads[b])).unwrap_or(0);
            Self {
                own: is_own.then(|| [0, -1, 1].map(|offset| mean(&|map| map.diagonal(offset)))),
                first: mean(&|map| map.column(0)),
                last: mean(&|map| map.column(map.columns - 1)),
                words: spreads.iter().sum::<f32>() / heads as f32,
                sharpest,
                sharpest_words: spreads[sharpest],
            }
        };
        (0..layers).map(summary).collect()
    }
}

/// One head: `[rows, columns]`.
struct Map<'w> {
    values: &'w [f32],
    columns: usize,
}

impl Map<'_> {
    fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks(self.columns)
    }

    /// The mean weight of a column.
    fn column(&self, column: usize) -> f32 {
        self.rows().map(|row| row[column]).sum::<f32>() / self.rows().len() as f32
    }

    /// The mean weight of the column `row + offset`; rows without it count 0.
    fn diagonal(&self, offset: isize) -> f32 {
        let weight = |(index, row): (usize, &[f32])| index.checked_add_signed(offset).and_then(|column| row.get(column).copied());
        self.rows().enumerate().filter_map(weight).sum::<f32>() / self.rows().len() as f32
    }

    /// Over how many words it spreads: the mean of `exp(entropy)` over its rows.
    fn spread(&self) -> f32 {
        let of_row = |row: &[f32]| row.iter().filter(|&&weight| weight > 0.0).map(|&weight| -weight * weight.ln()).sum::<f32>().exp();
        self.rows().map(of_row).sum::<f32>() / self.rows().len() as f32
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_spreads() {
        let even = [1.0 / 3.0; 9];
        let sharp = [0.5, 0.5, 0.0, 0.25, 0.5, 0.25, 0.0, 0.0, 1.0];
        let weights = Weights::new([1, 2, 3, 3], [even, sharp].concat()).unwrap();
        let [summary] = Summary::of(&weights, true)[..] else { panic!("one layer") };
        // Two words, 2^1.5, one.
        let words = (2.0 + 2f32.powf(1.5) + 1.0) / 3.0;
        let expected = [
            (1.0 / 3.0 + 2.0 / 3.0) / 2.0,
            (2.0 / 9.0 + 0.25 / 3.0) / 2.0,
            (2.0 / 9.0 + 0.75 / 3.0) / 2.0,
            (1.0 / 3.0 + 0.25) / 2.0,
            (1.0 / 3.0 + 1.25 / 3.0) / 2.0,
            (3.0 + words) / 2.0,
            words,
        ];
        let found = [&summary.own.unwrap()[..], &[summary.first, summary.last, summary.words, summary.sharpest_words]].concat();
        assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{found:?} {expected:?}");
        assert_eq!((summary.sharpest, Summary::of(&weights, false)[0].own), (1, None));
    }
}
