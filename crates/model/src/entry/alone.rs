//! The graph of an encoder-only model. Inputs and outputs have Optimum's names in every layout.

use crate::dropout::Dropout;
use crate::embedding::InputTokens;
use crate::encoder::encoder;
use crate::entry::Attentions;
use crate::head::head;
use crate::interface::{ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS};
use crate::{Config, Head, Layout, TokenTypes};
use cognate_graph::{Builder, DType, Error, Graph};

/// `input_ids, attention_mask(, token_type_ids): i64 [batch, src]` ->
/// `last_hidden_state: [batch, src, d_model]` and `pooler_output: [batch, d_model]`, or `logits`.
pub(crate) fn alone(config: &Config, reads: Head, layout: Layout, attentions: Attentions) -> Result<Graph, Error> {
    let builder = Builder::new("model");
    let axes = if layout == Layout::HuggingFace { ["batch_size", "sequence_length"] } else { ["batch", "src"] };
    let [ids, attention_mask] = [INPUT_IDS, ATTENTION_MASK].map(|name| builder.input(name, DType::I64, axes));
    let is_given = matches!(config.token_types, TokenTypes::Given(_));
    let types = is_given.then(|| builder.input(TOKEN_TYPE_IDS, DType::I64, axes));
    let outputs = encoder(&builder.root(), config, InputTokens { ids, types }, attention_mask, &Dropout::none());
    for (name, tensor) in head(&builder.root(), config, reads, outputs.hidden) {
        builder.output(name, tensor);
    }
    attentions.output_encoder(&builder, &outputs);
    builder.finish()
}
