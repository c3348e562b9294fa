//! The decoder: `[batch, beams, tgt]` ids -> `[batch, beams, tgt, vocab]` logits.
//!
//! Beams are an axis of their own. In self-attention each beam has its own past; in cross-attention the beams of a
//! sentence are query positions of one attention, so that cross keys and values are not copied for each beam.

use crate::Config;
use crate::attention::{KeyValue, attend, causal_mask, merge_heads, padding_mask, split_heads};
use crate::embedding::{embed, shared_embedding};
use crate::layers::{add_and_norm, feed_forward, linear};
use cognate_graph::{Dim, Scope, Tensor};

/// What the decoder reads.
pub(crate) struct DecoderInputs<'g> {
    /// `i64 [batch, beams, tgt]`
    pub(crate) ids: Tensor<'g>,
    /// `i64 [batch, src]`
    pub(crate) attention_mask: Tensor<'g>,
    /// For each layer `[batch, heads, src, d_k]`, from [`cross_key_values`].
    pub(crate) cross: Vec<KeyValue<'g>>,
    /// For each layer `[batch, beams, heads, past, d_k]`; none in teacher forcing.
    pub(crate) past: Option<Vec<KeyValue<'g>>>,
}

/// What the decoder gives.
pub(crate) struct DecoderOutputs<'g> {
    /// `[batch, beams, tgt, vocab]`
    pub(crate) logits: Tensor<'g>,
    /// For each layer `[batch, beams, heads, past + tgt, d_k]`.
    pub(crate) present: Vec<KeyValue<'g>>,
    /// For each layer the weights `[batch, beams, heads, tgt, src]`.
    pub(crate) cross_attentions: Vec<Tensor<'g>>,
}

/// The keys and values that each decoder layer reads from `memory: [batch, src, d_model]`: `[batch, heads, src, d_k]`.
pub(crate) fn cross_key_values<'g>(root: &Scope<'g>, config: &Config, memory: Tensor<'g>) -> Vec<KeyValue<'g>> {
    (0..config.decoder.n_layers)
        .map(|layer_index| {
            let scope = root.at("decoder.layers").at(layer_index).at("encoder_attn");
            let _scope = scope.enter();
            KeyValue::project(&scope, memory, config.decoder.heads)
        })
        .collect()
}

/// The decoder stack (Vaswani et al. 2017, section 3.1) with the output projection, tied to the embedding (section 3.4).
pub(crate) fn decoder<'g>(root: &Scope<'g>, config: &Config, inputs: &DecoderInputs<'g>) -> DecoderOutputs<'g> {
    let scope = root.at("decoder");
    let tgt = inputs.ids.dim(2);
    let past_len = inputs.past.as_ref().map_or(Dim::from(0), |past| past[0].key.dim(3));
    let causal = causal_mask(root, &past_len, &tgt);
    let padding = padding_mask(inputs.attention_mask);
    let mut x = embed(root, &scope, config, inputs.ids, &past_len);
    let (mut present, mut cross_attentions) = (Vec::new(), Vec::new());
    for (layer_index, &cross) in inputs.cross.iter().enumerate() {
        let layer = scope.at("layers").at(layer_index);
        let past = inputs.past.as_ref().map(|past| past[layer_index]);
        let (attended, seen) = self_attention(&layer.at("self_attn"), config, x, past, causal);
        x = add_and_norm(&layer.at("self_attn_layer_norm"), config, x, attended);
        let (attended, weights) = cross_attention(&layer.at("encoder_attn"), config, x, cross, padding);
        x = add_and_norm(&layer.at("encoder_attn_layer_norm"), config, x, attended);
        let transformed = feed_forward(&layer, config, config.decoder.d_ff, x);
        x = add_and_norm(&layer.at("final_layer_norm"), config, x, transformed);
        present.push(seen);
        cross_attentions.push(weights);
    }
    let _scope = root.at("lm_head").enter();
    let bias = config.output_bias.then(|| root.parameter("final_logits_bias", [config.vocab]));
    DecoderOutputs { logits: x.linear(shared_embedding(root, config), bias), present, cross_attentions }
}

fn self_attention<'g>(
    scope: &Scope<'g>,
    config: &Config,
    x: Tensor<'g>,
    past: Option<KeyValue<'g>>,
    mask: Tensor<'g>,
) -> (Tensor<'g>, KeyValue<'g>) {
    let _scope = scope.enter();
    let query = split_heads(linear(&scope.at("q_proj"), x, config.d_model), config.decoder.heads);
    let new = KeyValue::project(scope, x, config.decoder.heads);
    let seen = past.map_or(new, |past| new.after(past));
    let (context, _) = attend(query, seen, mask);
    (linear(&scope.at("out_proj"), merge_heads(context), config.d_model), seen)
}

fn cross_attention<'g>(
    scope: &Scope<'g>,
    config: &Config,
    x: Tensor<'g>,
    cross: KeyValue<'g>,
    mask: Tensor<'g>,
) -> (Tensor<'g>, Tensor<'g>) {
    let _scope = scope.enter();
    let (batch, beams, tgt) = (x.dim(0), x.dim(1), x.dim(2));
    let (heads, d_model) = (Dim::from(config.decoder.heads), Dim::from(config.d_model));
    let query = linear(&scope.at("q_proj"), x, config.d_model).reshape([&batch, &(&beams * &tgt), &d_model]);
    let (context, weights) = attend(split_heads(query, config.decoder.heads), cross, mask);
    let context = merge_heads(context).reshape([&batch, &beams, &tgt, &d_model]);
    let src = cross.key.dim(2);
    let weights = weights.reshape([batch, heads, beams, tgt, src]).transpose(&[0, 2, 1, 3, 4]);
    (linear(&scope.at("out_proj"), context, config.d_model), weights)
}
