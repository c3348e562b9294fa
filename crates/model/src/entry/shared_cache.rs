//! The decoder with caches that beams share: each step writes into them, and nothing is moved.
//!
//! Each beam of a sentence is a row, `row = sentence · beams + beam`, with a cache of fixed
//! capacity for each layer. A step writes position `past`. When a beam continues another, its past
//! stays where it is: `cache_beams` contains the beam of the sentence that holds each position.
//!
//! A decoder-only model has prompts of different lengths: `cache_beams` is -1 at padding.

use super::Attentions;
use crate::interface::{ATTENTION_MASK, CACHE_BEAMS, INPUT_IDS, LOGITS, Names};

use crate::attention::KeyValue;
use crate::decoder::{DecoderInputs, Past, Prompts, decoder};
use crate::dropout::Dropout;
use crate::{Config, Parts};
use cognate_graph::{Builder, DType, Dim, Error, Graph, Tensor};

/// `input_ids: i64 [batch, beams]`, `attention_mask: i64 [batch, src]`, `cross.{l}.*`,
/// `past.{l}.*: [batch · beams, key_heads, capacity, d_k]`, `cache_beams: i64 [batch, beams, past]`
/// -> `logits: [batch · beams, vocab]`, `present.{l}.*`: the caches with position `past` written.
///
/// A decoder-only model has neither the mask nor `cross.{l}.*`.
pub(crate) fn step(config: &Config, attentions: Attentions) -> Result<Graph, Error> {
    let is_alone = config.parts == Parts::Decoder;
    let builder = Builder::new(if is_alone { "model" } else { "decoder" });
    let ids = builder.input(INPUT_IDS, DType::I64, ["batch", "beams"]);
    let source_mask = || super::source_mask(&builder, config, ATTENTION_MASK, ["batch", "src"]);
    let attention_mask = if is_alone { None } else { source_mask() };
    let (batch, beams) = (ids.dim(0), ids.dim(1));
    let rows = &batch * &beams;
    let (heads, d_k) = (Dim::from(config.decoder.key_heads), Dim::from(config.decoder.d_k));
    let input = |[key, value]: [String; 2], shape: &[Dim]| KeyValue {
        key: builder.input(&key, DType::F32, shape.to_vec()),
        value: builder.input(&value, DType::F32, shape.to_vec()),
    };
    let layers = 0..config.decoder.n_layers;
    let cross_shape = [batch.clone(), heads.clone(), "src".into(), d_k.clone()];
    let cross = |layer_index| input(Names::cross(layer_index), &cross_shape);
    let cross = if is_alone { Vec::new() } else { layers.clone().map(cross).collect() };
    let cache_shape = [rows.clone(), heads, "capacity".into(), d_k];
    let caches = layers.map(|layer_index| input(Names::past(layer_index), &cache_shape)).collect();
    let holders = builder.input(CACHE_BEAMS, DType::I64, ["batch", "beams", "past"]);
    let inputs = DecoderInputs {
        ids: ids.reshape([&batch, &beams, &1.into()]),
        attention_mask,
        cross,
        past: Past::Cached { caches, beams: holders },
        prompts: is_alone.then(|| Prompts { attention_mask: None, positions: counted(holders) }),
        dropout: Dropout::none(),
    };
    let outputs = decoder(&builder.root(), config, &inputs);
    builder.output(LOGITS, outputs.logits.reshape([rows, Dim::from(config.vocab)]));
    for (layer_index, &present) in outputs.present.iter().enumerate() {
        super::output(&builder, Names::present(layer_index), present);
    }
    attentions.output_decoder(&builder, &outputs);
    builder.finish()
}

/// The position of each new token, `[batch, beams, 1]`: the number of tokens before it, without
/// padding.
fn counted(holders: Tensor<'_>) -> Tensor<'_> {
    let builder = holders.builder();
    let _scope = builder.root().at("positions").enter();
    let (zero, one) = (builder.integer(0), builder.integer(1));
    zero.less_or_equal(holders).select(one, zero).sum(&[2])
}
