//! The decoder: ids `[batch, tgt]` -> logits `[batch, tgt, vocab]`, or with beams
//! `[batch, beams, tgt]` -> `[batch, beams, tgt, vocab]`.
//!
//! Beams are an axis. In self-attention each beam has its own past; in cross-attention the beams of
//! a sentence are query positions of one attention.

use crate::attention::{
    KeyValue, Memory, causal_mask, cross_attention, padding_mask, self_attention,
};
use crate::dropout::Dropout;
use crate::embedding::{InputTokens, Side, between_widths, embed, table};
use crate::layers::{after_stack, capped, feed_forward, linear, residual, transformed};
use crate::positions::orders;
use crate::span::Span;
use crate::{Config, OutputBias, OutputProjection, Parts};
use cognate_graph::{Dim, Scope, Tensor};

/// The decoder's inputs.
pub(crate) struct DecoderInputs<'g> {
    /// `i64 [batch, (beams,) tgt]`
    pub(crate) ids: Tensor<'g>,
    /// `i64 [batch, src]`, if sources are padded.
    pub(crate) attention_mask: Option<Tensor<'g>>,
    /// For each layer `[batch, heads, src, d_k]`, from [`cross_key_values`]; empty in a
    /// decoder-only model.
    pub(crate) cross: Vec<KeyValue<'g>>,
    /// Of a decoder-only model.
    pub(crate) prompts: Option<Prompts<'g>>,
    /// The past of self-attention.
    pub(crate) past: Past<'g>,
    /// Dropout in training.
    pub(crate) dropout: Dropout<'g>,
}

/// Prompts of different lengths, padded on the left.
#[derive(Clone, Copy)]
pub(crate) struct Prompts<'g> {
    /// `i64 [batch, past + tgt]`: 1 for tokens and 0 for padding. Caches mark padding themselves.
    pub(crate) attention_mask: Option<Tensor<'g>>,
    /// `i64 [batch, (beams,) tgt]`
    pub(crate) positions: Tensor<'g>,
}

/// The keys and values of earlier tokens.
pub(crate) enum Past<'g> {
    /// None: teacher forcing.
    None,
    /// For each layer `[batch, (beams,) key_heads, past, d_k]`, to which new keys and
    /// values are appended.
    Joined(Vec<KeyValue<'g>>),
    /// For each layer a cache `[batch · beams, key_heads, capacity, d_k]`, into which the keys and
    /// values of one new token per beam are written.
    Cached {
        caches: Vec<KeyValue<'g>>,
        /// i64 `[batch, beams, past]`: the beam of the sentence that holds each position, negative
        /// for padding.
        beams: Tensor<'g>,
    },
}

impl Past<'_> {
    fn len(&self) -> Dim {
        match self {
            Past::None => Dim::from(0),
            Past::Joined(past) => past
                .first()
                .map(|past| past.key.dim(past.key.ty().shape.rank().saturating_sub(2)))
                .unwrap_or_default(),
            Past::Cached { beams, .. } => beams.dim(2),
        }
    }
}

/// The decoder's outputs.
pub(crate) struct DecoderOutputs<'g> {
    /// The input of the output projection: `[batch, (beams,) tgt, d_model]`
    pub(crate) hidden: Tensor<'g>,
    /// `[batch, (beams,) tgt, vocab]`
    pub(crate) logits: Tensor<'g>,
    /// For each layer `[batch, (beams,) key_heads, past + tgt, d_k]`.
    pub(crate) present: Vec<KeyValue<'g>>,
    /// For each layer the weights `[batch, (beams,) heads, tgt, src]`; empty in a decoder-only
    /// model.
    pub(crate) cross_attentions: Vec<Tensor<'g>>,
    /// For each layer the weights `[batch, (beams,) heads, tgt, past + tgt]`; empty with caches.
    pub(crate) self_attentions: Vec<Tensor<'g>>,
}

/// The cross-attention keys and values of each decoder layer, `[batch, heads, src, d_k]`, from
/// `memory: [batch, src, d_model]`, whose width can differ if the encoder is another model.
pub(crate) fn cross_key_values<'g>(
    root: &Scope<'g>,
    config: &Config,
    memory: Tensor<'g>,
) -> Vec<KeyValue<'g>> {
    let memory = bridge(root, config, memory);
    (0..config.decoder.n_layers)
        .map(|layer_index| {
            let scope = root.at("decoder.layers").at(layer_index).at("encoder_attn");
            let _scope = scope.enter();
            KeyValue::project(&scope, config, config.decoder, memory)
        })
        .collect()
}

/// The encoder's states, projected to the width that cross-attention reads.
pub(crate) fn bridge<'g>(root: &Scope<'g>, config: &Config, memory: Tensor<'g>) -> Tensor<'g> {
    let is_projected = config.encoder_model.as_ref().is_some_and(|encoder| encoder.projected);
    if is_projected {
        linear(&root.at("enc_to_dec_proj"), config, memory, config.d_model)
    } else {
        memory
    }
}

/// The decoder stack (Vaswani et al. 2017, section 3.1) with the output projection.
pub(crate) fn decoder<'g>(
    root: &Scope<'g>,
    config: &Config,
    inputs: &DecoderInputs<'g>,
) -> DecoderOutputs<'g> {
    let stack = Side::Decoder.at(root);
    let tgt = inputs.ids.ty().shape.dims().last().cloned().unwrap_or_default();
    let past_len = inputs.past.len();
    let (own_mask, positions) = inputs
        .prompts
        .map_or((None, None), |prompts| (prompts.attention_mask, Some(prompts.positions)));
    // A single query attends to all positions: no mask.
    let cached = matches!(inputs.past, Past::Cached { .. });
    let mask = (!cached).then(|| causal_mask(root, &past_len, &tgt, own_mask));
    let orders = orders(
        root,
        config,
        Side::Decoder,
        mask,
        Span { past: &past_len, tgt: &tgt, positions, cached },
    );
    let padding = inputs.attention_mask.map(padding_mask);
    let dropout = &inputs.dropout;
    let tokens = InputTokens { positions, ..InputTokens::new(inputs.ids) };
    let mut x = dropout.embedding(embed(root, config, Side::Decoder, tokens, &past_len).sum);
    let (mut present, mut cross_attentions, mut self_attentions) =
        (Vec::new(), Vec::new(), Vec::new());
    for (layer_index, order) in orders.into_iter().enumerate() {
        let layer = stack.at("layers").at(layer_index);
        let past = match &inputs.past {
            Past::None => Memory::None,
            Past::Joined(past) => Memory::Joined(past[layer_index]),
            Past::Cached { caches, beams } => {
                Memory::Cached { cache: caches[layer_index], beams: *beams }
            }
        };
        let (attended, to_itself) = residual((&layer, "self_attn"), config, x, dropout, |x| {
            self_attention(&layer.at("self_attn"), config, config.decoder, x, past, order, dropout)
        });
        let (attended, weights) = match inputs.cross.get(layer_index) {
            Some(&cross) => {
                let (attended, weights) =
                    residual((&layer, "encoder_attn"), config, attended, dropout, |x| {
                        cross_attention(
                            &layer.at("encoder_attn"),
                            config,
                            config.decoder,
                            x,
                            cross,
                            padding,
                            dropout,
                        )
                    });
                (attended, Some(weights))
            }
            None => (attended, None),
        };
        let (transformed, ()) = residual((&layer, "final"), config, attended, dropout, |x| {
            (feed_forward(&layer, config, config.decoder.d_ff, x, dropout), ())
        });
        x = transformed;
        present.push(to_itself.seen);
        self_attentions.extend(to_itself.weights);
        cross_attentions.extend(weights);
    }
    let hidden = after_stack(&stack, config, x);
    let hidden = between_widths(
        &stack,
        config,
        "project_out",
        hidden,
        config.table_width.unwrap_or(config.d_model),
    );
    let hidden = match config.output_transform {
        Some(activation) => transformed(root, config, activation, hidden),
        None => hidden,
    };
    let projection = Projection::of(root, config);
    let _scope = root.at("lm_head").enter();
    let hidden =
        if config.scale_output { hidden * (config.d_model as f32).powf(-0.5) } else { hidden };
    let logits = capped(hidden.linear(projection.weight, projection.bias), config.caps.logits);
    DecoderOutputs { hidden, logits, present, cross_attentions, self_attentions }
}

/// The output projection: `[..., d_model]` -> `[..., vocab]`
#[derive(Clone, Copy)]
pub(crate) struct Projection<'g> {
    /// `[vocab, d_model]`
    pub(crate) weight: Tensor<'g>,
    /// `[vocab]`
    pub(crate) bias: Option<Tensor<'g>>,
}

impl<'g> Projection<'g> {
    pub(crate) fn of(root: &Scope<'g>, config: &Config) -> Self {
        let weight = match config.output {
            OutputProjection::Tied => table(root, config, Side::Decoder),
            OutputProjection::Source => table(root, config.of_encoder(), Side::Encoder),
            OutputProjection::Own => root
                .at("lm_head")
                .parameter("weight", [config.vocab, config.table_width.unwrap_or(config.d_model)]),
        };
        let bias = match (config.parts, config.output_bias) {
            (Parts::Encoder(_), _) | (_, OutputBias::Learned) => {
                Some(root.at("lm_head").parameter("bias", [config.vocab]))
            }
            (_, OutputBias::Fixed) => Some(root.parameter("final_logits_bias", [config.vocab])),
            (_, OutputBias::None) => None,
        };
        Self { weight, bias }
    }
}
