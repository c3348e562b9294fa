//! What the machine could do at most, measured in the same run: no call is faster than reading every weight that it needs once a
//! step, nor than multiplying every row with it.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::report::Column;
use super::shape::{NEW_TOKENS, SOURCE_TOKENS, Shape};
use super::ways::{Place, Weights};
use crate::bench::processors;
use crate::workspace::capture;

/// Measured on some threads, by PyTorch.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Limits {
    /// Bytes read from memory in a second.
    pub(crate) bytes: f64,
    /// Operations of a product of f32 matrices in a second, two for each multiplication and addition.
    pub(crate) f32: f64,
    /// Those of 8-bit integers, where PyTorch has them.
    pub(crate) int8: Option<f64>,
}

impl Limits {
    pub(crate) fn measure(place: &Place<'_>, threads: usize) -> Result<Limits> {
        let said = capture(processors::bound(place.python, threads).arg(place.scripts.join("limits.py")).arg(threads.to_string()))?;
        serde_json::from_str(&said).context("limits.py: the answer is not whole")
    }

    /// The higher of both, number by number: what else the machine did is no limit of it.
    pub(crate) fn or_higher(self, other: Limits) -> Limits {
        let int8 = self.int8.into_iter().chain(other.int8).reduce(f64::max);
        Limits { bytes: self.bytes.max(other.bytes), f32: self.f32.max(other.f32), int8 }
    }

    /// The most tokens in a second: the encoder once, a step for each new token; attention and vectors are left out.
    pub(crate) fn tokens_per_second(&self, shape: &Shape, weights: Weights, column: Column) -> f64 {
        let (size, peak) = match weights {
            Weights::F32 => (4.0, self.f32),
            Weights::Int8 => (1.0, self.int8.unwrap_or(f64::INFINITY)),
            // As if the layer of the output had 4 bits too, and scales none.
            Weights::Int4 => (0.5, self.int8.unwrap_or(f64::INFINITY)),
        };
        let seconds = |weights: u64, rows: usize| {
            let (weights, rows) = (weights as f64, rows as f64);
            (weights * size / self.bytes).max(2.0 * weights * rows / peak)
        };
        let encoder = seconds(shape.encoder_weights(), column.batch * SOURCE_TOKENS);
        let step = seconds(shape.decoder_weights(), column.batch * column.beams);
        (column.batch * NEW_TOKENS) as f64 / (encoder + NEW_TOKENS as f64 * step)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::SHAPES;
    use super::*;

    #[test]
    fn small_batches_wait_for_memory_and_large_ones_for_products() {
        // 153.6 MB a step take 7.1 ms; 2 x 38.4 million x 128 operations take 45 ms. The encoder multiplies 24 rows for a sentence.
        let limits = Limits { bytes: 21.6e9, f32: 219e9, int8: None };
        let of = |batch, beams| limits.tokens_per_second(&SHAPES[0], Weights::F32, Column { batch, beams });
        let encoder = |sentences: f64| 2.0 * 22_020_096.0 * 24.0 * sentences / 219e9;
        let expected = 32.0 / (encoder(1.0) + 32.0 * 153_616_384.0 / 21.6e9);
        assert!((of(1, 1) - expected).abs() < 1e-6, "{}", of(1, 1));
        let step = 2.0 * 38_404_096.0 * 128.0 / 219e9;
        assert!((of(32, 4) - 1024.0 / (encoder(32.0) + 32.0 * step)).abs() < 1e-6, "{}", of(32, 4));
    }
}
