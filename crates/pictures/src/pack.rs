//! Weights as text with random access: 6 bits per character, as in base64.
//!
//! A weight has 4 characters, `round(weight · (2²⁴ - 1))`, with an error of at most 1e-7, as in
//! f32. If all weights are too long, each row keeps its largest, each after its column in 3
//! characters; the mean of the heads is then stored as one more head.

use crate::Weights;
use crate::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const ONE: f64 = ((1 << 24) - 1) as f64;
const WEIGHT: usize = 4;
const COLUMN: usize = 3;

/// The weights in a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Packed {
    shape: [usize; 4],
    /// The number of weights kept of each row; all if `None`.
    kept: Option<usize>,
    data: String,
}

/// The number of characters of all weights.
pub(crate) fn whole(shape: [usize; 4]) -> usize {
    WEIGHT * shape.iter().product::<usize>()
}

/// The number of rows, the means included.
pub(crate) fn rows(shape: [usize; 4]) -> usize {
    shape[0] * (shape[1] + 1) * shape[2]
}

/// The number of weights of each row that fit into `characters`; at least one.
pub(crate) fn room(characters: usize, rows: usize) -> usize {
    (characters / rows.max(1) / (COLUMN + WEIGHT)).max(1)
}

impl Packed {
    /// All weights.
    pub(crate) fn whole(weights: &Weights) -> Self {
        let mut data = String::with_capacity(whole(weights.shape()));
        weights.values().iter().for_each(|&weight| push(&mut data, rounded(weight), WEIGHT));
        Self { shape: weights.shape(), kept: None, data }
    }

    /// The `kept` largest of each row.
    pub(crate) fn largest(weights: &Weights, kept: usize) -> Self {
        let [layers, heads, _, columns] = weights.shape();
        let kept = kept.min(columns);
        let mut data = String::new();
        for layer in 0..layers {
            let mean = weights.mean(layer);
            let maps = (0..heads).map(|head| weights.head(layer, head)).chain([&mean[..]]);
            for row in maps.flat_map(|map| map.chunks(columns)) {
                let mut order: Vec<usize> = (0..columns).collect();
                order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
                for &column in &order[..kept] {
                    push(&mut data, column as u32, COLUMN);
                    push(&mut data, rounded(row[column]), WEIGHT);
                }
            }
        }
        Self { shape: weights.shape(), kept: Some(kept), data }
    }

    /// The weights; 0 if they were not kept.
    ///
    /// # Errors
    /// If the text has a wrong length or invalid characters.
    pub(crate) fn weights(&self) -> Result<Weights> {
        let wrong =
            || Error::new(ErrorKind::Page, "the page's weights are damaged; write it again");
        let [layers, heads, n_rows, columns] = self.shape;
        let text = self.data.as_bytes();
        let Some(kept) = self.kept else {
            if text.len() != whole(self.shape) {
                return Err(wrong());
            }
            let weights = text
                .chunks(WEIGHT)
                .map(|digits| Some(weight(number(digits)?)))
                .collect::<Option<Vec<_>>>();
            return Weights::new(self.shape, weights.ok_or_else(wrong)?);
        };
        let row_length = kept * (COLUMN + WEIGHT);
        if text.len() != rows(self.shape) * row_length || kept == 0 {
            return Err(wrong());
        }
        let mut values = vec![0.0; self.shape.iter().product()];
        for (index, row) in text.chunks(row_length).enumerate() {
            let (map, row_index) = (index / n_rows, index % n_rows);
            let (layer, head) = (map / (heads + 1), map % (heads + 1));
            if head == heads || layer == layers {
                continue;
            }
            for entry in row.chunks(COLUMN + WEIGHT) {
                let (column, weight) = number(&entry[..COLUMN])
                    .zip(number(&entry[COLUMN..]).map(weight))
                    .ok_or_else(wrong)?;
                let column =
                    Some(column as usize).filter(|column| *column < columns).ok_or_else(wrong)?;
                values[((layer * heads + head) * n_rows + row_index) * columns + column] = weight;
            }
        }
        Weights::new(self.shape, values)
    }
}

fn rounded(weight: f32) -> u32 {
    (f64::from(weight).clamp(0.0, 1.0) * ONE).round() as u32
}

fn weight(rounded: u32) -> f32 {
    (f64::from(rounded) / ONE) as f32
}

fn push(text: &mut String, number: u32, length: usize) {
    (0..length)
        .rev()
        .for_each(|place| text.push(char::from(DIGITS[(number >> (6 * place)) as usize & 63])));
}

fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| {
        Some(number << 6 | DIGITS.iter().position(|known| known == digit)? as u32)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_back() {
        let values: Vec<f32> = (0..24).map(|index| (index * 7 % 24) as f32 / 24.0).collect();
        let weights = Weights::new([2, 2, 2, 3], values).unwrap();
        let close = |a: f32, b: f32| (a - b).abs() < 1e-7;
        let whole = Packed::whole(&weights);
        assert_eq!(whole.data.len(), 96);
        assert!(
            whole
                .weights()
                .unwrap()
                .values()
                .iter()
                .zip(weights.values())
                .all(|(&a, &b)| close(a, b))
        );
        let some = Packed::largest(&weights, 2);
        assert_eq!(some.data.len(), 2 * 3 * 2 * 2 * 7);
        for (found, row) in
            some.weights().unwrap().values().chunks(3).zip(weights.values().chunks(3))
        {
            let least = row.iter().copied().fold(f32::INFINITY, f32::min);
            assert!(
                found.iter().zip(row).all(|(&a, &b)| if b == least {
                    a == 0.0
                } else {
                    close(a, b)
                }),
                "{found:?} {row:?}"
            );
        }
        let first: Vec<f32> = Packed::largest(&weights, 9).weights().unwrap().values().to_vec();
        assert!(first.iter().zip(weights.values()).all(|(&a, &b)| close(a, b)));
    }

    #[test]
    fn damage_is_found() {
        let weights = Weights::new([1, 1, 1, 2], vec![0.25, 0.75]).unwrap();
        for damage in [
            |text: &mut String| text.truncate(text.len() - 1),
            |text: &mut String| text.replace_range(..1, "-"),
        ] {
            for mut packed in [Packed::whole(&weights), Packed::largest(&weights, 1)] {
                damage(&mut packed.data);
                assert_eq!(packed.weights().unwrap_err().kind(), ErrorKind::Page);
            }
        }
    }
}
