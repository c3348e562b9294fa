//! What the two stacks read, taken apart: for people who look.

use crate::Config;
use crate::embedding::{InputTokens, Side, embed};
use crate::interface::{DECODER_INPUT_IDS, INPUT_IDS};
use cognate_graph::{Builder, DType, Dim, Error, Graph};

/// The names of the graph's inputs, i64 `[batch, src]` and `[batch, tgt]`, and of its outputs, `[..., len, d_model]` for each side.
#[derive(Debug)]
pub struct EmbeddingNames;

impl EmbeddingNames {
    /// What each side reads: the encoder's, the decoder's.
    pub const IDS: [&str; 2] = [INPUT_IDS, DECODER_INPUT_IDS];
    /// The embeddings of the tokens as they are added.
    pub const TOKENS: [&str; 2] = ["encoder_tokens", "decoder_tokens"];
    /// What is added for their positions; models that tell positions apart by attention have no such outputs.
    pub const POSITIONS: [&str; 2] = ["encoder_positions", "decoder_positions"];
    /// What the first layer reads.
    pub const SUMS: [&str; 2] = ["encoder_embeddings", "decoder_embeddings"];
}

/// The graph of embeddings.
pub(crate) fn embeddings(config: &Config) -> Result<Graph, Error> {
    let builder = Builder::new("embeddings");
    for (index, (side, len)) in [(Side::Encoder, "src"), (Side::Decoder, "tgt")].into_iter().enumerate() {
        let ids = builder.input(EmbeddingNames::IDS[index], DType::I64, ["batch", len]);
        let embedded = embed(&builder.root(), config, side, InputTokens { ids, types: None }, &Dim::from(0));
        builder.output(EmbeddingNames::TOKENS[index], embedded.tokens);
        if let Some(positions) = embedded.positions {
            builder.output(EmbeddingNames::POSITIONS[index], positions);
        }
        builder.output(EmbeddingNames::SUMS[index], embedded.sum);
    }
    builder.finish()
}
