//! A translation step by step, as printed by `cognate explain` and shown on a page.
//!
//! `words = mean over rows of exp(-Σ w ln w)`: the number of tokens over which a head spreads.

use crate::{Token, Weights};
use serde::{Deserialize, Serialize};

/// A translation step by step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// The inputs of the first layers.
    pub embeddings: Embeddings,
    /// A summary of each layer's attention, in the order of [`crate::Attention::ALL`].
    pub layers: [Vec<Summary>; 3],
    /// The layer of the steps' cross-attention, from 0.
    pub alignment_layer: usize,
    /// The steps of decoding.
    pub steps: Vec<Step>,
    /// The beam search of the translation, if any.
    pub beams: Option<Beams>,
}

/// The norms of embeddings and positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Embeddings {
    /// The norms of a model with its original weights.
    Known {
        /// The size of an embedding.
        d_model: usize,
        /// Whether rows of the table are multiplied by `√d_model`.
        is_scaled: bool,
        /// For each input token of the encoder.
        source: Vec<Norms>,
        /// For each input token of the decoder.
        target: Vec<Norms>,
    },
    /// The reason why they are unknown.
    Unknown(String),
}

/// Euclidean norms at one position.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Norms {
    /// Of the token's embedding, with the model's scale.
    pub token: f32,
    /// Of the position, if one is added.
    pub position: Option<f32>,
    /// Of the input of the first layer.
    pub sum: f32,
}

/// A summary of a layer's attention: means over rows and heads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The weights of the token itself, the previous and the next one; in self-attention only.
    pub own: Option<[f32; 3]>,
    /// The weight of the first token.
    pub first: f32,
    /// The weight of the last token.
    pub last: f32,
    /// The number of tokens over which a head spreads.
    pub words: f32,
    /// The head with the smallest spread, from 0.
    pub sharpest: usize,
    /// The spread of that head.
    pub sharpest_words: f32,
}

/// One step of decoding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The most probable next tokens of the model, the most probable first.
    pub likeliest: Vec<Likely>,
    /// The probability of the output token, if it is known.
    pub written: Option<f32>,
    /// The source positions with the largest attention, with the mean weight over the layer's
    /// heads.
    pub looks_at: Vec<(usize, f32)>,
}

/// A possible next token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Likely {
    /// The token.
    pub token: Token,
    /// The probability.
    pub probability: f32,
}

/// The tree of a beam search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beams {
    /// The number of beams.
    pub width: usize,
    /// The tokens, each after its parent; the first is the start token.
    pub nodes: Vec<Node>,
    /// The finished hypotheses, the best first.
    pub finished: Vec<Finished>,
}

/// A token of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The token.
    pub token: Token,
    /// The index of the previous token in [`Beams::nodes`].
    pub parent: Option<usize>,
    /// The model's log-probability of all tokens up to this one.
    pub log_probability: f32,
    /// The rank of the finished hypothesis that ends here.
    pub rank: Option<usize>,
}

/// A finished hypothesis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// Its text.
    pub text: String,
    /// Its score.
    pub score: f32,
}

impl Explained {
    /// The first contradiction to a sentence with these numbers of tokens: of the source, and those
    /// that the decoder read and wrote.
    pub(crate) fn misfit(&self, [source, read, written]: [usize; 3]) -> Option<String> {
        let counts = match &self.embeddings {
            Embeddings::Known { source: norms, target, .. } => {
                vec![("norms", source, norms.len()), ("norms", read, target.len())]
            }
            Embeddings::Unknown(_) => Vec::new(),
        };
        let steps = [("steps", written, self.steps.len())];
        if let Some((what, expected, found)) =
            counts.into_iter().chain(steps).find(|(_, expected, found)| expected != found)
        {
            return Some(format!("expected {expected} {what}, found {found}"));
        }
        if let Some((place, _)) =
            self.steps.iter().flat_map(|step| &step.looks_at).find(|(place, _)| *place >= source)
        {
            return Some(format!("expected places below {source}, found {place}"));
        }
        let Beams { nodes, finished, .. } = self.beams.as_ref()?;
        let is_wrong = |(index, node): &(usize, &Node)| {
            node.parent.map_or(*index > 0, |parent| parent >= *index)
                || node.rank.is_some_and(|rank| rank >= finished.len())
        };
        let (index, _) = nodes.iter().enumerate().find(is_wrong)?;
        Some(format!("token {index} of the tree: its parent or its hypothesis is missing"))
    }
}

impl Beams {
    /// The children of a node in the order of decoding.
    pub fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        (node + 1..self.nodes.len()).filter(move |&child| self.nodes[child].parent == Some(node))
    }
}

impl Summary {
    /// The summary of each layer; `is_own` for self-attention, whose row `r` is the token of column
    /// `r`.
    pub fn of(weights: &Weights, is_own: bool) -> Vec<Self> {
        let [layers, heads, ..] = weights.shape();
        let summary = |layer| {
            let maps: Vec<Map<'_>> = (0..heads)
                .map(|head| Map { values: weights.head(layer, head), columns: weights.shape()[3] })
                .collect();
            let mean =
                |of: &dyn Fn(&Map<'_>) -> f32| maps.iter().map(of).sum::<f32>() / heads as f32;
            let spreads: Vec<f32> = maps.iter().map(Map::spread).collect();
            let sharpest =
                (0..heads).min_by(|&a, &b| spreads[a].total_cmp(&spreads[b])).unwrap_or(0);
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
        let weight = |(index, row): (usize, &[f32])| {
            index.checked_add_signed(offset).and_then(|column| row.get(column).copied())
        };
        self.rows().enumerate().filter_map(weight).sum::<f32>() / self.rows().len() as f32
    }

    /// The mean of `exp(entropy)` over its rows.
    fn spread(&self) -> f32 {
        let of_row = |row: &[f32]| {
            row.iter()
                .filter(|&&weight| weight > 0.0)
                .map(|&weight| -weight * weight.ln())
                .sum::<f32>()
                .exp()
        };
        self.rows().map(of_row).sum::<f32>() / self.rows().len() as f32
    }
}
