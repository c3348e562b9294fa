//! The attention weights of all layers and heads: `[layers, heads, rows, columns]`.
//!
//! In JSON they are lists of lists of lists of lists.

use crate::error::{Error, ErrorKind, Result};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeSeq, Serializer};

/// Attention weights `[layers, heads, rows, columns]`; each row of a head sums to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    shape: [usize; 4],
    values: Vec<f32>,
}

impl Weights {
    /// Weights in row-major order.
    ///
    /// # Errors
    /// If the number of values differs from the shape's, or a size other than that of layers is 0.
    pub fn new(shape: [usize; 4], values: Vec<f32>) -> Result<Self> {
        if (shape[0] > 0 && shape.contains(&0)) || shape.iter().product::<usize>() != values.len() {
            let found = values.len();
            return Err(Error::new(
                ErrorKind::Sizes,
                format!(
                    "attention weights: expected {shape:?}, none of them 0, found {found} values"
                ),
            ));
        }
        Ok(Self { shape, values })
    }

    /// Layers, heads, rows, columns.
    pub fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// All weights in row-major order.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The weight at a layer, head, row and column.
    ///
    /// # Panics
    /// If there is none.
    pub fn at(&self, [layer, head, row, column]: [usize; 4]) -> f32 {
        self.head(layer, head)[row * self.shape[3] + column]
    }

    /// One head: `[rows, columns]`.
    ///
    /// # Panics
    /// If there is no such head.
    pub fn head(&self, layer: usize, head: usize) -> &[f32] {
        let [_, heads, rows, columns] = self.shape;
        assert!(head < heads, "head {head} of {heads}");
        let size = rows * columns;
        &self.values[(layer * heads + head) * size..][..size]
    }

    /// The mean over a layer's heads: `[rows, columns]`.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn mean(&self, layer: usize) -> Vec<f32> {
        let [_, heads, rows, columns] = self.shape;
        let mut mean = vec![0.0; rows * columns];
        for head in 0..heads {
            mean.iter_mut()
                .zip(self.head(layer, head))
                .for_each(|(sum, weight)| *sum += weight / heads as f32);
        }
        mean
    }
}

/// The inner lists of a tensor.
struct Nested<'w> {
    shape: &'w [usize],
    values: &'w [f32],
}

impl Serialize for Nested<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [n, rest @ ..] = self.shape else { return self.values.serialize(serializer) };
        let mut list = serializer.serialize_seq(Some(*n))?;
        for part in self.values.chunks(self.values.len().checked_div(*n).unwrap_or(0).max(1)) {
            match rest {
                [] => list.serialize_element(&part[0])?,
                shape => list.serialize_element(&Nested { shape, values: part })?,
            }
        }
        list.end()
    }
}

impl Serialize for Weights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Nested { shape: &self.shape, values: &self.values }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Weights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let layers = Vec::<Vec<Vec<Vec<f32>>>>::deserialize(deserializer)?;
        let layer = layers.first();
        let head = layer.and_then(|heads| heads.first());
        let row = head.and_then(|rows| rows.first());
        let shape = [
            layers.len(),
            layer.map_or(0, Vec::len),
            head.map_or(0, Vec::len),
            row.map_or(0, Vec::len),
        ];
        let is_even = layers.iter().all(|heads| {
            heads.len() == shape[1]
                && heads.iter().all(|rows| {
                    rows.len() == shape[2] && rows.iter().all(|row| row.len() == shape[3])
                })
        });
        if !is_even {
            return Err(D::Error::custom(
                "attention weights: expected lists of one length in each list",
            ));
        }
        Self::new(shape, layers.into_iter().flatten().flatten().flatten().collect())
            .map_err(D::Error::custom)
    }
}
