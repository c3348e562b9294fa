//! The graph of a model's embeddings, for inspection.

use crate::Config;
use crate::embedding::{InputTokens, Side, embed};
use crate::front::Source;
use crate::interface::{DECODER_INPUT_IDS, INPUT_IDS};
use cognate_graph::{Builder, DType, Dim, Error, Graph};

/// Names of the graph's inputs, i64 `[batch, src]` and `[batch, tgt]`, and of its outputs,
/// `[..., len, d_model]`, for encoder and decoder.
#[derive(Debug)]
pub struct EmbeddingNames;

impl EmbeddingNames {
    /// Token ids.
    pub const IDS: [&str; 2] = [INPUT_IDS, DECODER_INPUT_IDS];
    /// Scaled token embeddings.
    pub const TOKENS: [&str; 2] = ["encoder_tokens", "decoder_tokens"];
    /// Positional encodings; absent if positions are part of attention.
    pub const POSITIONS: [&str; 2] = ["encoder_positions", "decoder_positions"];
    /// Inputs of the first layers.
    pub const SUMS: [&str; 2] = ["encoder_embeddings", "decoder_embeddings"];
}

/// The graph of embeddings.
pub(crate) fn embeddings(config: &Config) -> Result<Graph, Error> {
    let builder = Builder::new("embeddings");
    let source = Source::declare(&builder, config, ["batch", "src"]);
    let ids = builder.input(DECODER_INPUT_IDS, DType::I64, ["batch", "tgt"]);
    let target =
        embed(&builder.root(), config, Side::Decoder, InputTokens::new(ids), &Dim::from(0));
    for (index, embedded) in [source.embed(&builder.root(), config), target].into_iter().enumerate()
    {
        builder.output(EmbeddingNames::TOKENS[index], embedded.tokens);
        if let Some(positions) = embedded.positions {
            builder.output(EmbeddingNames::POSITIONS[index], positions);
        }
        builder.output(EmbeddingNames::SUMS[index], embedded.sum);
    }
    builder.finish()
}
