//! The loss of given targets.
//!
//! `loss = Σ over labels t of -Σ_v q_t(v) ln p_t(v)`, `q_t = (1 - ε) onehot(label) + ε / vocab`
//! (Szegedy et al. 2016, section 7)
//!
//! Losses are sums, not means, so those of several batches or workers can be added and divided once
//! by the number of tokens.
//!
//! With R-Drop (Liang et al. 2021) each sentence passes through the model twice, with different
//! dropout, and the loss is half of the paper's, as of one pass:
//! `½ (loss_1 + loss_2) + α/4 Σ over labels of (KL(p_1 ‖ p_2) + KL(p_2 ‖ p_1))`

use crate::Config;
use crate::Error;
use crate::decoder::{DecoderInputs, DecoderOutputs, Past, Projection, cross_key_values, decoder};
use crate::dropout::{Dropout, DropoutRates, SEED};
use crate::encoder::encoder;
use crate::front::Source;
use crate::interface::{ATTENTION_MASK, DECODER_INPUT_IDS, INPUT_IDS, LABELS};
use crate::layers::capped;
use cognate_graph::{Builder, DType, Dim, Graph, Shape, Tensor, concat};

/// Options of the training loss.
///
/// Inputs: `input_ids, attention_mask: i64 [batch, src]`,
/// `decoder_input_ids, labels: i64 [batch, tgt]`, and with dropout `dropout_seed: i64 []`. Labels
/// below 0 are ignored.
///
/// Outputs, each `[]`: `loss` in f32, the sum of the smoothed losses of all labels;
/// `negative_log_likelihood` in f32, the sum without smoothing; `tokens` in i64, the number of
/// labels that are not ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// The probability distributed over the whole vocabulary, `0 <= ε < 1`; 0.1 in the paper.
    pub label_smoothing: f32,
    /// Dropout rates.
    pub dropout: DropoutRates,
    /// R-Drop's `α`, at least 0; above 0 it requires dropout.
    pub consistency: f32,
}

/// Names of the loss graph's inputs and outputs; part of the contract of exported training graphs.
#[derive(Debug)]
pub struct LossNames;

impl LossNames {
    /// Source tokens, i64 `[batch, src]`.
    pub const SOURCE: &str = INPUT_IDS;
    /// 1 for source tokens and 0 for padding, i64 `[batch, src]`.
    pub const SOURCE_MASK: &str = ATTENTION_MASK;
    /// Decoder inputs, i64 `[batch, tgt]`.
    pub const TARGET: &str = DECODER_INPUT_IDS;
    /// Tokens to predict, i64 `[batch, tgt]`; below 0 if ignored.
    pub const LABELS: &str = LABELS;
    /// Seed of dropout, i64 `[]`; absent without dropout.
    pub const DROPOUT_SEED: &str = SEED;
    /// The sum of the smoothed losses, f32 `[]`.
    pub const LOSS: &str = "loss";
    /// The sum of the losses without smoothing, f32 `[]`.
    pub const NEGATIVE_LOG_LIKELIHOOD: &str = "negative_log_likelihood";
    /// Number of labels that are not ignored, i64 `[]`.
    pub const TOKENS: &str = "tokens";
}

/// The loss graph.
pub(crate) fn loss(config: &Config, options: &Loss) -> Result<Graph, Error> {
    options.dropout.check()?;
    let smoothing = options.label_smoothing;
    if !(0.0..1.0).contains(&smoothing) {
        let message = format!("expected 0 or more and less than 1, found {smoothing}");
        return Err(Error::new(crate::ErrorKind::Config, "label_smoothing", message));
    }
    let alpha = options.consistency;
    if !(0.0..f32::INFINITY).contains(&alpha)
        || (alpha > 0.0 && options.dropout == DropoutRates::default())
    {
        let message = format!("expected 0, or a number above 0 with dropout, found {alpha}");
        return Err(Error::new(crate::ErrorKind::Config, "consistency", message));
    }
    let builder = Builder::new("loss");
    let source = Source::declare(&builder, config, ["batch", "src"]);
    let target = builder.input(LossNames::TARGET, DType::I64, ["batch", "tgt"]);
    let labels = builder.input(LossNames::LABELS, DType::I64, ["batch", "tgt"]);
    let given = labels;
    let twice = |x| if alpha > 0.0 { concat(0, &[x, x]) } else { x };
    let (source, [target, labels]) = (source.map(twice), [target, labels].map(twice));
    let root = builder.root();
    let dropout = Dropout::new(&builder, options.dropout);
    let hidden = encoder(&root, config, source, &dropout).hidden;
    let cross = cross_key_values(&root, config, hidden);
    let attention_mask = source.attention_mask();
    let outputs = decoder(
        &root,
        config,
        &DecoderInputs {
            ids: target,
            attention_mask,
            cross,
            past: Past::None,
            prompts: None,
            dropout,
        },
    );
    {
        let _scope = root.at("cross_entropy").enter();
        let [mut smoothed, mut plain] = cross_entropy(config, &outputs, labels, smoothing);
        if alpha > 0.0 {
            smoothed = smoothed * 0.5 + divergence(outputs.logits, labels) * (alpha / 4.0);
            plain = plain * 0.5;
        }
        builder.output(LossNames::LOSS, smoothed);
        builder.output(LossNames::NEGATIVE_LOG_LIKELIHOOD, plain);
        builder.output(
            LossNames::TOKENS,
            counts(given).cast(DType::I64).sum(&[0, 1]).reshape(Shape::default()),
        );
    }
    Ok(builder.finish()?)
}

/// `Σ KL(p_1 ‖ p_2) + KL(p_2 ‖ p_1)` over the labels, `[]`, where `p_1` and `p_2` are those of the
/// first and the second half of `logits: [2 batch, tgt, vocab]`.
///
/// It is `Σ_v (p_1 - p_2) (ln p_1 - ln p_2)`. Logits can replace the logarithms, because
/// `Σ_v (p_1 - p_2) = 0`.
fn divergence<'g>(logits: Tensor<'g>, labels: Tensor<'g>) -> Tensor<'g> {
    let batch = Dim::symbol("batch");
    let first = |x: Tensor<'g>| x.slice(0, 0, &batch);
    let difference = |x: Tensor<'g>| first(x) - x.slice(0, &batch, &batch * 2);
    let products = difference(logits.softmax()) * difference(logits);
    let labels = first(labels);
    (products.sum(&[2]).reshape(labels.ty().shape) * counts(labels).cast(DType::F32))
        .sum(&[0, 1])
        .reshape(Shape::default())
}

/// Whether each label is not ignored.
fn counts(labels: Tensor<'_>) -> Tensor<'_> {
    labels.builder().integer(0).less_or_equal(labels)
}

/// The losses with and without smoothing, `[]`; `labels: i64 [batch, tgt]`.
///
/// With logits `x = W h + b`, `-ln p(v) = ln Σ eˣ - x_v`, so the smoothed loss is
/// `ln Σ eˣ - (1 - ε) x_label - ε mean(x)`. The label's logit and the mean of all logits are
/// computed as products with `h`: of the `vocab` logits per label only the sum of exponentials is
/// read, and the backward pass writes only their softmax.
///
/// With a cap `c` the label's logit is `c(x_label)`, and the mean is that of all logits.
fn cross_entropy<'g>(
    config: &Config,
    outputs: &DecoderOutputs<'g>,
    labels: Tensor<'g>,
    smoothing: f32,
) -> [Tensor<'g>; 2] {
    let (hidden, cap) = (outputs.hidden, config.caps.logits);
    let Projection { weight, bias } = Projection::of(&hidden.builder().root(), config);
    let builder = hidden.builder();
    let shape = labels.ty().shape;
    let counted = counts(labels);
    let label = counted.select(labels, builder.integer(0));
    let one_each = |x: Tensor<'g>| x.reshape(shape.clone());
    let of_label = one_each((hidden * weight.gather(label)).sum(&[2]));
    let of_label = capped(bias.map_or(of_label, |bias| of_label + bias.gather(label)), cap);
    let total = one_each(outputs.logits.log_sum_exp());
    let sum = |losses: Tensor<'g>| {
        (losses * counted.cast(DType::F32)).sum(&[0, 1]).reshape(Shape::default())
    };
    let plain = sum(total - of_label);
    if smoothing == 0.0 {
        return [plain, plain];
    }
    let of_all = one_each(match cap {
        Some(_) => outputs.logits.sum(&[2]),
        None => hidden.linear(weight.sum(&[0]), bias.map(|bias| bias.sum(&[0]))),
    });
    let vocab = weight.dim(0).as_constant().unwrap_or(1) as f32;
    [sum(total - of_label * (1.0 - smoothing) - of_all * (smoothing / vocab)), plain]
}
