//! What the machine could do at most, measured in the same run: no call is faster than reading every weight that it needs once a
//! step, nor than multiplying every row with it.
//!
//! Each number is the best that several programs reach: for reading `cognate-bench measure read` and PyTorch, for products PyTorch and ONNX
//! Runtime. Weights of a few megabytes stay in the processor's caches from step to step, in part or whole; so reading is measured with
//! as many bytes as the weights of a step have.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::shape::{Column, NEW_TOKENS, SOURCE_TOKENS, Shape};
use super::ways::{Place, Weights};
use crate::processors;
use xtask::workspace::capture;

/// Measured on some threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes read in a second, of as many as a step's weights have in each of [`Weights::ALL`].
    pub(crate) bytes: [f64; 3],
    /// Operations of a product of f32 matrices in a second, two for each multiplication and addition.
    pub(crate) f32: f64,
    /// Those of 8-bit integers, where a program has them.
    pub(crate) int8: Option<f64>,
}

/// What a program says that measures.
#[derive(Debug, Deserialize)]
struct Answer {
    bytes_per_second: [f64; 3],
    f32: Option<f64>,
    int8: Option<f64>,
}

impl Limits {
    pub(crate) fn measure(place: &Place<'_>, shape: &Shape, threads: usize) -> Result<Limits> {
        let sizes = Weights::ALL.map(|weights| ((shape.decoder_weights() as f64 * weights.bytes()) as u64).to_string()).join(",");
        let threads_text = threads.to_string();
        let mut read = processors::bound(place.bench, threads);
        read.args(["measure", "read", "--threads", &threads_text, "--bytes", &sizes]);
        let mut script = processors::bound(place.python, threads);
        // Before the engines read it.
        script.arg(place.scripts.join("limits.py")).args([&threads_text, &sizes]).env("OMP_NUM_THREADS", &threads_text);
        let read: Answer = serde_json::from_str(&capture(&mut read)?).context("cognate-bench measure read: the answer is not whole")?;
        let script: Answer = serde_json::from_str(&capture(&mut script)?).context("limits.py: the answer is not whole")?;
        let limits = Limits { bytes: [0.0; 3], f32: 0.0, int8: None }.with(&read).with(&script);
        ensure!(limits.f32 > 0.0 && limits.bytes.iter().all(|bytes| *bytes > 0.0), "nothing was measured: {limits:?}");
        Ok(limits)
    }

    fn with(self, answer: &Answer) -> Limits {
        let other = Limits { bytes: answer.bytes_per_second, f32: answer.f32.unwrap_or_default(), int8: answer.int8 };
        self.or_higher(other)
    }

    /// The higher of both, number by number: what else the machine did is no limit of it.
    pub(crate) fn or_higher(self, other: Limits) -> Limits {
        let int8 = self.int8.into_iter().chain(other.int8).reduce(f64::max);
        let bytes = [0, 1, 2].map(|index| self.bytes[index].max(other.bytes[index]));
        Limits { bytes, f32: self.f32.max(other.f32), int8 }
    }

    /// The most tokens in a second: the encoder once, a step for each new token; attention and vectors are left out.
    pub(crate) fn tokens_per_second(&self, shape: &Shape, weights: Weights, column: Column) -> f64 {
        let [f32, int8, int4] = self.bytes;
        let whole = self.int8.unwrap_or(f64::INFINITY);
        let (bytes, peak) = match weights {
            Weights::F32 => (f32, self.f32),
            Weights::Int8 => (int8, whole),
            Weights::Int4 => (int4, whole),
        };
        let seconds = |elements: u64, rows: usize| {
            let (elements, rows) = (elements as f64, rows as f64);
            (elements * weights.bytes() / bytes).max(2.0 * elements * rows / peak)
        };
        let encoder = seconds(shape.encoder_weights(), column.batch * SOURCE_TOKENS);
        let step = seconds(shape.decoder_weights(), column.batch * column.beams);
        (column.batch * NEW_TOKENS) as f64 / (encoder + NEW_TOKENS as f64 * step)
    }

    /// A sentence.
    pub(crate) fn text(&self) -> String {
        let [f32, int8, int4] = self.bytes.map(|bytes| format!("{:.1}", bytes / 1e9));
        let whole = self.int8.map(|whole| format!(", {:.0} in 8-bit integers", whole / 1e9)).unwrap_or_default();
        let single = self.f32 / 1e9;
        format!(
            "The machine reads {f32} GB of f32 weights a second, {int8} of 8-bit and {int4} of 4-bit ones, and computes {single:.0} billion\n\
             operations a second in f32{whole}.\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::SHAPES;
    use super::*;

    #[test]
    fn small_batches_wait_for_memory_and_large_ones_for_products() {
        // 153.6 MB a step take 7.1 ms; 2 x 38.4 million x 128 operations take 45 ms. The encoder multiplies 24 rows for a sentence.
        let limits = Limits { bytes: [21.6e9, 43.2e9, 86.4e9], f32: 219e9, int8: None };
        let of = |weights, batch, beams| limits.tokens_per_second(&SHAPES[0], weights, Column { batch, beams });
        let encoder = |sentences: f64| 2.0 * 22_020_096.0 * 24.0 * sentences / 219e9;
        let expected = 32.0 / (encoder(1.0) + 32.0 * 153_616_384.0 / 21.6e9);
        assert!((of(Weights::F32, 1, 1) - expected).abs() < 1e-6, "{}", of(Weights::F32, 1, 1));
        let step = 2.0 * 38_404_096.0 * 128.0 / 219e9;
        assert!((of(Weights::F32, 32, 4) - 1024.0 / (encoder(32.0) + 32.0 * step)).abs() < 1e-6, "{}", of(Weights::F32, 32, 4));
        // What is smaller is read faster, as caches hold some of it.
        let expected = 32.0 / ((22_020_096.0 + 32.0 * 38_404_096.0) / 43.2e9);
        assert!((of(Weights::Int8, 1, 1) - expected).abs() < 1e-6, "{}", of(Weights::Int8, 1, 1));
        let expected = 32.0 / ((11_010_048.0 + 32.0 * 19_202_048.0) / 86.4e9);
        assert!((of(Weights::Int4, 1, 1) - expected).abs() < 1e-6, "{}", of(Weights::Int4, 1, 1));
    }

    #[test]
    fn the_best_of_all_programs_is_the_limit() {
        let answer = |text| serde_json::from_str::<Answer>(text).unwrap();
        let nothing = Limits { bytes: [0.0; 3], f32: 0.0, int8: None };
        let limits = nothing.with(&answer(r#"{"bytes_per_second": [3, 1, 5]}"#));
        let limits = limits.with(&answer(r#"{"bytes_per_second": [2, 2, 2], "f32": 7, "int8": null}"#));
        assert_eq!((limits.bytes, limits.f32, limits.int8), ([3.0, 2.0, 5.0], 7.0, None));
    }
}
