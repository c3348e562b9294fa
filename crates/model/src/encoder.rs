//! The encoder: its [`Source`] -> `[batch, src, d_model]` hidden states.

use crate::Config;
use crate::attention::{Memory, padding_mask, self_attention, with_itself};
use crate::dropout::Dropout;
use crate::embedding::Side;
use crate::front::Source;
use crate::layers::{after_stack, feed_forward, residual};
use crate::positions::{Order, orders};
use crate::span::Span;
use cognate_graph::{Dim, Scope, Tensor};

/// The encoder's outputs.
pub(crate) struct EncoderOutputs<'g> {
    /// `[batch, src, d_model]`
    pub(crate) hidden: Tensor<'g>,
    /// For each layer the weights `[batch, heads, src, src]`.
    pub(crate) attentions: Vec<Tensor<'g>>,
}

/// The encoder stack (Vaswani et al. 2017, section 3.1).
pub(crate) fn encoder<'g>(
    root: &Scope<'g>,
    config: &Config,
    source: Source<'g>,
    dropout: &Dropout<'g>,
) -> EncoderOutputs<'g> {
    let (config, stack) = (config.of_encoder(), Side::Encoder.at(root));
    let mask = source.attention_mask().map(padding_mask);
    let mask = if config.windows.is_empty() { mask } else { mask.map(with_itself) };
    let (first, src) = (Dim::from(0), source.len(config));
    let orders = orders(
        root,
        config,
        Side::Encoder,
        mask,
        Span { past: &first, tgt: &src, positions: None, cached: false },
    );
    let mut x = dropout.embedding(source.embed(root, config).sum);
    let mut attentions = Vec::new();
    for (layer_index, order) in orders.into_iter().enumerate() {
        let (transformed, weights) =
            layer(&stack.at("layers").at(layer_index), config, x, order, dropout);
        x = transformed;
        attentions.extend(weights);
    }
    EncoderOutputs { hidden: after_stack(&stack, config, x), attentions }
}

/// Returns a layer's output and its attention weights.
fn layer<'g>(
    scope: &Scope<'g>,
    config: &Config,
    x: Tensor<'g>,
    order: Order<'g>,
    dropout: &Dropout<'g>,
) -> (Tensor<'g>, Option<Tensor<'g>>) {
    let (x, attended) = residual((scope, "self_attn"), config, x, dropout, |x| {
        self_attention(
            &scope.at("self_attn"),
            config,
            config.encoder,
            x,
            Memory::None,
            order,
            dropout,
        )
    });
    let (x, ()) = residual((scope, "final"), config, x, dropout, |x| {
        (feed_forward(scope, config, config.encoder.d_ff, x, dropout), ())
    });
    (x, attended.weights)
}
