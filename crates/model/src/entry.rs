//! Entry graphs: the interfaces of a model to engines, all built by the same `encoder()`
//! and `decoder()`.

mod alone;
mod causal;
mod embeddings;
mod hugging_face;
mod loss;
mod shared_cache;

pub(crate) use alone::alone;
pub(crate) use causal::step as causal_step;
pub use embeddings::EmbeddingNames;
pub(crate) use embeddings::embeddings;
pub(crate) use loss::loss;
pub use loss::{Loss, LossNames};
pub(crate) use shared_cache::step as shared_cache_step;

use crate::attention::KeyValue;
use crate::decoder::{DecoderInputs, DecoderOutputs, Past, cross_key_values, decoder};
use crate::dropout::Dropout;
use crate::encoder::{EncoderOutputs, encoder};
use crate::front::Source;
use crate::interface::{
    ATTENTION_MASK, DECODER_INPUT_IDS, ENCODER_HIDDEN_STATES, INPUT_IDS, LOGITS, Names,
};
use crate::{Config, Front, Layout, Parts};
use cognate_graph::{Builder, DType, Dim, Error, Graph, Tensor};
use std::thread;

/// The attention weights among a graph's outputs, one output per layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attentions {
    /// None.
    #[default]
    Omit,
    /// Cross-attention: `cross_attentions.{layer}`.
    Cross,
    /// All: also `encoder_attentions.{layer}` and `decoder_attentions.{layer}`. Graphs with shared
    /// caches have no `decoder_attentions`.
    All,
}

impl Attentions {
    /// Adds the encoder's outputs.
    fn output_encoder(self, builder: &Builder, outputs: &EncoderOutputs<'_>) {
        if self == Self::All {
            output_each(builder, Names::encoder_attentions, &outputs.attentions);
        }
    }

    /// Adds the decoder's outputs.
    fn output_decoder(self, builder: &Builder, outputs: &DecoderOutputs<'_>) {
        if self != Self::Omit {
            output_each(builder, Names::cross_attentions, &outputs.cross_attentions);
        }
        if self == Self::All {
            output_each(builder, Names::decoder_attentions, &outputs.self_attentions);
        }
    }
}

fn output_each(builder: &Builder, name: fn(usize) -> String, layers: &[Tensor<'_>]) {
    layers
        .iter()
        .enumerate()
        .for_each(|(layer_index, &weights)| builder.output(&name(layer_index), weights));
}

/// A graph with all parameters of the model.
pub(crate) fn whole(config: &Config) -> Result<Graph, Error> {
    match config.parts {
        Parts::Both | Parts::Decoder => teacher_forced(config),
        Parts::Encoder(head) => alone(config, head, Layout::Cognate, Attentions::Omit),
    }
}

/// The encoder and decoder graphs of a layout.
pub(crate) fn graphs(
    config: &Config,
    layout: Layout,
    attentions: Attentions,
) -> Result<[Graph; 2], Error> {
    // For a deep model each graph takes milliseconds.
    let encoder = || match layout {
        Layout::Cognate | Layout::SharedCache | Layout::Generate => encode(config, attentions),
        Layout::HuggingFace | Layout::Triton => hugging_face::encode(config, attentions),
    };
    let decoder = || match layout {
        Layout::Cognate => step(config, attentions, "tgt".into()),
        Layout::Generate => step(config, attentions, 1.into()),
        Layout::HuggingFace | Layout::Triton => hugging_face::step(config, attentions),
        Layout::SharedCache => shared_cache::step(config, attentions),
    };
    thread::scope(|scope| {
        let encoder = scope.spawn(encoder);
        let decoder = decoder()?;
        Ok([encoder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?, decoder])
    })
}

/// The inputs of the [`Source`] -> `encoder_hidden_states: [batch, src, d_model]`,
/// `cross.{l}.{key,value}`.
pub(crate) fn encode(config: &Config, attentions: Attentions) -> Result<Graph, Error> {
    let builder = Builder::new("encoder");
    let source = Source::declare(&builder, config, ["batch", "src"]);
    let outputs = encoder(&builder.root(), config, source, &Dropout::none());
    builder.output(ENCODER_HIDDEN_STATES, outputs.hidden);
    for (layer_index, cross) in
        cross_key_values(&builder.root(), config, outputs.hidden).into_iter().enumerate()
    {
        output(&builder, Names::cross(layer_index), cross);
    }
    attentions.output_encoder(&builder, &outputs);
    builder.finish()
}

/// `input_ids: i64 [batch, beams, tgt]`, `attention_mask: i64 [batch, src]`,
/// `cross.{l}.*`, `past.{l}.*` -> `logits: [batch, beams, tgt, vocab]`, `present.{l}.*`.
/// The past may have length 0.
pub(crate) fn step(config: &Config, attentions: Attentions, tgt: Dim) -> Result<Graph, Error> {
    let builder = Builder::new("decoder");
    let ids = builder.input(INPUT_IDS, DType::I64, ["batch".into(), "beams".into(), tgt]);
    let attention_mask = source_mask(&builder, config, ATTENTION_MASK, ["batch", "src"]);
    let (heads, d_k) = (Dim::from(config.decoder.key_heads), Dim::from(config.decoder.d_k));
    let input = |[key, value]: [String; 2], shape: &[Dim]| KeyValue {
        key: builder.input(&key, DType::F32, shape.to_vec()),
        value: builder.input(&value, DType::F32, shape.to_vec()),
    };
    let layers = 0..config.decoder.n_layers;
    let cross_shape = ["batch".into(), heads.clone(), "src".into(), d_k.clone()];
    let cross =
        layers.clone().map(|layer_index| input(Names::cross(layer_index), &cross_shape)).collect();
    let past_shape = ["batch".into(), "beams".into(), heads, "past".into(), d_k];
    let past = layers.map(|layer_index| input(Names::past(layer_index), &past_shape)).collect();
    let outputs = decoder(
        &builder.root(),
        config,
        &DecoderInputs {
            ids,
            attention_mask,
            cross,
            past: Past::Joined(past),
            prompts: None,
            dropout: Dropout::none(),
        },
    );
    builder.output(LOGITS, outputs.logits);
    for (layer_index, &present) in outputs.present.iter().enumerate() {
        output(&builder, Names::present(layer_index), present);
    }
    attentions.output_decoder(&builder, &outputs);
    builder.finish()
}

/// The inputs of the [`Source`], `decoder_input_ids: i64 [batch, tgt]` -> `encoder_hidden_states`,
/// `logits: [batch, tgt, vocab]`, `cross_attentions.{l}: [batch, heads, tgt, src]`. A decoder-only
/// model has other inputs and outputs.
pub(crate) fn teacher_forced(config: &Config) -> Result<Graph, Error> {
    if config.parts == Parts::Decoder {
        return causal::teacher_forced(config);
    }
    let builder = Builder::new("teacher_forced");
    let source = Source::declare(&builder, config, ["batch", "src"]);
    let target = builder.input(DECODER_INPUT_IDS, DType::I64, ["batch", "tgt"]);
    let hidden = encoder(&builder.root(), config, source, &Dropout::none()).hidden;
    let cross = cross_key_values(&builder.root(), config, hidden);
    let attention_mask = source.attention_mask();
    let outputs = decoder(
        &builder.root(),
        config,
        &DecoderInputs {
            ids: target,
            attention_mask,
            cross,
            past: Past::None,
            prompts: None,
            dropout: Dropout::none(),
        },
    );
    builder.output(ENCODER_HIDDEN_STATES, hidden);
    builder.output(LOGITS, outputs.logits);
    Attentions::Cross.output_decoder(&builder, &outputs);
    builder.finish()
}

/// The mask of the source's tokens as an input of a decoder; features have none.
fn source_mask<'g>(
    builder: &'g Builder,
    config: &Config,
    name: &str,
    axes: [&str; 2],
) -> Option<Tensor<'g>> {
    (config.front == Front::Tokens).then(|| builder.input(name, DType::I64, axes))
}

fn output<'g>(builder: &'g Builder, [key, value]: [String; 2], tensors: KeyValue<'g>) {
    builder.output(&key, tensors.key);
    builder.output(&value, tensors.value);
}
