//! The graph of an encoder-only model. Inputs and outputs have Optimum's names in every layout.

use crate::dropout::Dropout;
use crate::encoder::encoder;
use crate::entry::Attentions;
use crate::front::Source;
use crate::head::head;
use crate::{Config, Head, Layout};
use cognate_graph::{Builder, Error, Graph};

/// `input_ids, attention_mask(, token_type_ids): i64 [batch, src]` ->
/// `last_hidden_state: [batch, src, d_model]` and `pooler_output: [batch, d_model]`, or `logits`.
pub(crate) fn alone(
    config: &Config,
    reads: Head,
    layout: Layout,
    attentions: Attentions,
) -> Result<Graph, Error> {
    let builder = Builder::new("model");
    let axes =
        if layout.is_optimum() { ["batch_size", "sequence_length"] } else { ["batch", "src"] };
    let outputs =
        encoder(&builder.root(), config, Source::declare(&builder, config, axes), &Dropout::none());
    for (name, tensor) in head(&builder.root(), config, reads, outputs.hidden) {
        builder.output(name, tensor);
    }
    attentions.output_encoder(&builder, &outputs);
    builder.finish()
}
