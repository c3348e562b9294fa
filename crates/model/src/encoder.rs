//! The encoder: `[batch, src]` ids -> `[batch, src, d_model]` hidden states.

use crate::Config;
use crate::attention::{KeyValue, attend, merge_heads, padding_mask, split_heads};
use crate::embedding::embed;
use crate::layers::{add_and_norm, feed_forward, linear};
use cognate_graph::{Dim, Scope, Tensor};

/// The encoder stack (Vaswani et al. 2017, section 3.1): `ids, attention_mask: i64 [batch, src]`.
pub(crate) fn encoder<'g>(root: &Scope<'g>, config: &Config, ids: Tensor<'g>, attention_mask: Tensor<'g>) -> Tensor<'g> {
    let scope = root.at("encoder");
    let mask = padding_mask(attention_mask);
    let embedded = embed(root, &scope, config, ids, &Dim::from(0));
    (0..config.encoder.n_layers).fold(embedded, |x, layer_index| layer(&scope.at("layers").at(layer_index), config, x, mask))
}

fn layer<'g>(scope: &Scope<'g>, config: &Config, x: Tensor<'g>, mask: Tensor<'g>) -> Tensor<'g> {
    let attended = self_attention(&scope.at("self_attn"), config, x, mask);
    let x = add_and_norm(&scope.at("self_attn_layer_norm"), config, x, attended);
    let transformed = feed_forward(scope, config, config.encoder.d_ff, x);
    add_and_norm(&scope.at("final_layer_norm"), config, x, transformed)
}

fn self_attention<'g>(scope: &Scope<'g>, config: &Config, x: Tensor<'g>, mask: Tensor<'g>) -> Tensor<'g> {
    let _scope = scope.enter();
    let query = split_heads(linear(&scope.at("q_proj"), x, config.d_model), config.encoder.heads);
    let (context, _) = attend(query, KeyValue::project(scope, x, config.encoder.heads), mask);
    linear(&scope.at("out_proj"), merge_heads(context), config.d_model)
}
