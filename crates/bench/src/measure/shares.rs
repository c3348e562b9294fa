//! `cognate-bench measure shares`: the shares of the parts of a translation in its time.

use super::{Single, print_line};
use anyhow::{Context, Result};
use cognate_runtime::{start_times, times};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

/// Measure the time of each part of a translation, on one thread
///
/// Reads lines from standard input. Only for exports with `--target ort`: the operators of others
/// are the engine's.
#[derive(clap::Args)]
pub struct Shares {
    #[command(flatten)]
    pub translator: Single,
}

/// Times in seconds.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// From text to text.
    pub total: f64,
    /// The part of it from text to tokens, and from tokens to text.
    pub tokenizer: f64,
    pub encoder: f64,
    pub products: f64,
    pub output_layer: f64,
    pub attention: f64,
    /// Sums, normalisations, activations and embeddings of the decoder.
    pub others: f64,
}

impl Answer {
    /// The time outside of graphs and the tokenizer: batches, searches, and the engine's calls.
    pub fn outside(&self) -> f64 {
        self.total
            - self.tokenizer
            - self.encoder
            - self.products
            - self.output_layer
            - self.attention
            - self.others
    }
}

/// Runs the command.
pub fn run(options: &Shares, out: &mut dyn Write) -> Result<()> {
    let translator = options.translator.open(None)?;
    let lines =
        io::stdin().lines().collect::<io::Result<Vec<String>>>().context("standard input")?;
    // Warm-up.
    translator.translate(&lines[..lines.len().min(100)])?;
    start_times();
    let start = Instant::now();
    let found = translator.translate(&lines)?;
    let total = start.elapsed().as_secs_f64();
    let spent = times();
    let (start, model) = (Instant::now(), translator.model());
    for (line, found) in lines.iter().zip(&found) {
        black_box(model.source_ids(line)?);
        for text in &found.hypotheses {
            black_box(model.tokenizer().decode(&text.hypothesis.tokens)?);
        }
    }
    let tokenizer = start.elapsed().as_secs_f64();
    let [encoder, products, output_layer, attention, others] =
        [spent.encoder, spent.products, spent.output_layer, spent.attention, spent.others]
            .map(|time| time.as_secs_f64());
    print_line(
        out,
        &Answer { total, tokenizer, encoder, products, output_layer, attention, others },
    )
}
