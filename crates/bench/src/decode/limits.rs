//! The limits of the machine, measured in the same run: a call takes at least the time of reading
//! all weights once a step, and of multiplying all rows by them.
//!
//! Each number is the best of several programs: for reading `cognate-bench measure read` and
//! PyTorch, for products PyTorch and ONNX Runtime. Weights of a few megabytes partly stay in the
//! processor's caches, so reading is measured with the size of the weights of a step.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::shape::{Column, Shape};
use super::ways::{Place, Weights};
use crate::processors;
use xtask::workspace::capture;

/// The limits with a number of threads.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes read per second, for the size of a step's weights in each of [`Weights::ALL`].
    pub bytes: [f64; 4],
    /// Operations of f32 matrix products per second, two for each multiplication and addition.
    pub f32: f64,
    /// Operations of products of 8-bit integers, if a program has them.
    pub int8: Option<f64>,
}

/// The answer of a measuring program.
#[derive(Debug, Deserialize)]
pub struct Answer {
    pub bytes_per_second: [f64; 4],
    pub f32: Option<f64>,
    pub int8: Option<f64>,
}

impl Limits {
    pub fn measure(place: &Place<'_>, shape: &Shape, threads: usize) -> Result<Limits> {
        let sizes = Weights::ALL
            .map(|weights| ((shape.decoder_weights() as f64 * weights.bytes()) as u64).to_string())
            .join(",");
        let threads_text = threads.to_string();
        let mut read = processors::bound(place.bench, threads);
        read.args(["measure", "read", "--threads", &threads_text, "--bytes", &sizes]);
        let mut script = processors::bound(place.python, threads);
        // Engines read the variable when they are loaded.
        script
            .arg(place.scripts.join("limits.py"))
            .args([&threads_text, &sizes])
            .env("OMP_NUM_THREADS", &threads_text);
        let read: Answer = serde_json::from_str(&capture(&mut read)?)
            .context("cognate-bench measure read: incomplete answer")?;
        let script: Answer =
            serde_json::from_str(&capture(&mut script)?).context("limits.py: incomplete answer")?;
        let limits = Limits { bytes: [0.0; 4], f32: 0.0, int8: None }.with(&read).with(&script);
        ensure!(
            limits.f32 > 0.0 && limits.bytes.iter().all(|bytes| *bytes > 0.0),
            "no limits were measured: {limits:?}"
        );
        Ok(limits)
    }

    pub fn with(self, answer: &Answer) -> Limits {
        let other = Limits {
            bytes: answer.bytes_per_second,
            f32: answer.f32.unwrap_or_default(),
            int8: answer.int8,
        };
        self.or_higher(other)
    }

    /// The higher of both, number by number: other load on the machine is not a limit.
    pub fn or_higher(self, other: Limits) -> Limits {
        let int8 = self.int8.into_iter().chain(other.int8).reduce(f64::max);
        let bytes = [0, 1, 2, 3].map(|index| self.bytes[index].max(other.bytes[index]));
        Limits { bytes, f32: self.f32.max(other.f32), int8 }
    }

    /// The maximum number of tokens per second: the encoder once, a step for each new token,
    /// without attention and operations on vectors. In a greedy step the output layer may multiply
    /// 8-bit integers, if the program `finds_best` tokens.
    pub fn tokens_per_second(
        &self,
        shape: &Shape,
        weights: Weights,
        column: Column,
        finds_best: bool,
    ) -> f64 {
        let whole = self.int8.unwrap_or(f64::INFINITY);
        let seconds = |weights: Weights, elements: u64, rows: usize| {
            let [f32, bf16, int8, int4] = self.bytes;
            let (bytes, peak) = match weights {
                Weights::F32 => (f32, self.f32),
                // No program reports the speed of these products.
                Weights::Bf16 => (bf16, f64::INFINITY),
                Weights::Int8 => (int8, whole),
                Weights::Int4 => (int4, whole),
            };
            let (elements, rows) = (elements as f64, rows as f64);
            (elements * weights.bytes() / bytes).max(2.0 * elements * rows / peak)
        };
        let [n_source, n_new] = shape.lengths;
        let encoder = seconds(weights, shape.encoder_weights(), column.batch * n_source);
        let rows = column.batch * column.beams;
        let step = match weights {
            Weights::F32 | Weights::Bf16 if finds_best && column.beams == 1 => {
                let output = shape.output_weights();
                seconds(weights, shape.decoder_weights() - output, rows)
                    + seconds(Weights::Int8, output, rows)
            }
            _ => seconds(weights, shape.decoder_weights(), rows),
        };
        (column.batch * n_new) as f64 / (encoder + n_new as f64 * step)
    }

    /// The limits as a sentence.
    pub fn text(&self) -> String {
        let [f32, bf16, int8, int4] = self.bytes.map(|bytes| format!("{:.1}", bytes / 1e9));
        let whole = self
            .int8
            .map(|whole| format!(", {:.0} in 8-bit integers", whole / 1e9))
            .unwrap_or_default();
        let single = self.f32 / 1e9;
        format!(
            "The machine reads {f32} GB of f32 weights a second, {bf16} of bf16, {int8} of 8-bit and {int4} of 4-bit ones, and computes {single:.0} billion\n\
             operations a second in f32{whole}.\n"
        )
    }
}
