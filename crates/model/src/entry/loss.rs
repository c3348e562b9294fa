//! The loss of given targets: what training makes small.
//!
//! `loss = Σ over labels t of -Σ_v q_t(v) ln p_t(v)`, `q_t = (1 - ε) onehot(label) + ε / vocab`   (Szegedy et al. 2016, section 7)
//!
//! Sums, not means: batches of any size, from several places, add up, and are divided by their tokens once.

use crate::Config;
use crate::Error;
use crate::decoder::{DecoderInputs, Past, cross_key_values, decoder};
use crate::dropout::{Dropout, DropoutRates, SEED};
use crate::encoder::encoder;
use cognate_graph::{Builder, DType, Graph, Shape, Tensor};

/// What is trained for.
///
/// Inputs: `input_ids, attention_mask: i64 [batch, src]`, `decoder_input_ids, labels: i64 [batch, tgt]`, and with dropout
/// `dropout_seed: i64 []`. A label below 0 counts nothing.
///
/// Outputs, each `[]`: `loss` in f32, the sum of the smoothed losses of all labels; `negative_log_likelihood` in f32, the same without
/// smoothing; `tokens` in i64, how many labels count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// The share of probability that is spread over the whole vocabulary, `0 <= ε < 1`; 0.1 in the paper.
    pub label_smoothing: f32,
    /// What is left out.
    pub dropout: DropoutRates,
}

/// The names of the loss graph's inputs and outputs; part of the contract of exported training graphs.
#[derive(Debug)]
pub struct LossNames;

impl LossNames {
    /// Source tokens, i64 `[batch, src]`.
    pub const SOURCE: &str = "input_ids";
    /// 1 for source tokens and 0 for padding, i64 `[batch, src]`.
    pub const SOURCE_MASK: &str = "attention_mask";
    /// What the decoder reads, i64 `[batch, tgt]`.
    pub const TARGET: &str = "decoder_input_ids";
    /// What it is to predict, i64 `[batch, tgt]`; below 0 where nothing is.
    pub const LABELS: &str = "labels";
    /// What dropout depends on, i64 `[]`; there is no such input without dropout.
    pub const DROPOUT_SEED: &str = SEED;
    /// The sum of the smoothed losses, f32 `[]`.
    pub const LOSS: &str = "loss";
    /// The sum of the losses without smoothing, f32 `[]`.
    pub const NEGATIVE_LOG_LIKELIHOOD: &str = "negative_log_likelihood";
    /// How many labels count, i64 `[]`.
    pub const TOKENS: &str = "tokens";
}

/// The loss graph.
pub(crate) fn loss(config: &Config, options: &Loss) -> Result<Graph, Error> {
    options.dropout.check()?;
    let smoothing = options.label_smoothing;
    if !(0.0..1.0).contains(&smoothing) {
        let message = format!("wants 0 or more and less than 1, found {smoothing}");
        return Err(Error::new(crate::ErrorKind::Config, "label_smoothing", message));
    }
    let builder = Builder::new("loss");
    let ids = builder.input(LossNames::SOURCE, DType::I64, ["batch", "src"]);
    let attention_mask = builder.input(LossNames::SOURCE_MASK, DType::I64, ["batch", "src"]);
    let target = builder.input(LossNames::TARGET, DType::I64, ["batch", "tgt"]);
    let labels = builder.input(LossNames::LABELS, DType::I64, ["batch", "tgt"]);
    let root = builder.root();
    let dropout = Dropout::new(&builder, options.dropout);
    let hidden = encoder(&root, config, ids, attention_mask, &dropout);
    let cross = cross_key_values(&root, config, hidden);
    let outputs = decoder(&root, config, &DecoderInputs { ids: target, attention_mask, cross, past: Past::None, dropout });
    {
        let _scope = root.at("cross_entropy").enter();
        let [smoothed, plain] = cross_entropy(outputs.logits, labels, smoothing);
        builder.output(LossNames::LOSS, smoothed);
        builder.output(LossNames::NEGATIVE_LOG_LIKELIHOOD, plain);
        builder.output(LossNames::TOKENS, counts(labels).cast(DType::I64).sum(&[0, 1]).reshape(Shape::default()));
    }
    Ok(builder.finish()?)
}

/// Whether labels count.
fn counts(labels: Tensor<'_>) -> Tensor<'_> {
    labels.builder().integer(0).less_or_equal(labels)
}

/// `logits: [batch, tgt, vocab]`, `labels: i64 [batch, tgt]` -> the sums with and without smoothing, `[]`.
///
/// With `ln p(v) = x_v - ln Σ eˣ` the smoothed loss is `ln Σ eˣ - (1 - ε) x_label - ε mean(x)`: no table of `vocab` numbers a label
/// is made beside the logits, and none but the softmax on the way back.
fn cross_entropy<'g>(logits: Tensor<'g>, labels: Tensor<'g>, smoothing: f32) -> [Tensor<'g>; 2] {
    let builder = logits.builder();
    let (shape, rows) = (labels.ty().shape, labels.ty().shape.elements());
    let vocab = logits.dim(2);
    let counted = counts(labels);
    let label = counted.select(labels, builder.integer(0));
    // The place of each row's label among all logits.
    let width = builder.integer(vocab.as_constant().unwrap_or(1));
    let places = builder.range(0, &rows).reshape(shape.clone()) * width + label;
    let labelled = logits.reshape([rows * &vocab]).gather(places);
    let total = logits.log_sum_exp().reshape(shape.clone());
    let sum = |losses: Tensor<'g>| (losses * counted.cast(DType::F32)).sum(&[0, 1]).reshape(Shape::default());
    let plain = sum(total - labelled);
    if smoothing == 0.0 {
        return [plain, plain];
    }
    let share = smoothing / vocab.as_constant().unwrap_or(1) as f32;
    let everywhere = logits.sum(&[2]).reshape(shape) * share;
    [sum(total - labelled * (1.0 - smoothing) - everywhere), plain]
}
