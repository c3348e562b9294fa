//! The graphs of a decoder-only model, which continues its own tokens.
//!
//! Prompts of a batch are padded on the left. `attention_mask` marks the tokens, past ones
//! included, that are not padding. Optimum's graph also reads the positions of the new tokens;
//! Cognate's computes them from the mask.

use crate::attention::KeyValue;
use crate::decoder::{DecoderInputs, Past, Prompts, decoder};
use crate::dropout::Dropout;
use crate::entry::{Attentions, output};
use crate::interface::{ATTENTION_MASK, HuggingFaceNames, INPUT_IDS, LOGITS, Names, POSITION_IDS};
use crate::{Config, Layout};
use cognate_graph::{Builder, DType, Dim, Error, Graph, Tensor};

/// `input_ids: i64 [batch, tgt]`, `attention_mask: i64 [batch, past + tgt]`,
/// `past.{l}.*: [batch, key_heads, past, d_k]` -> `logits: [batch, tgt, vocab]`, `present.{l}.*`.
/// The past may have length 0.
///
/// In the Hugging Face layout `past_key_values.{l}.*`, and also
/// `position_ids: i64 [batch_size, sequence_length]`.
pub(crate) fn step(
    config: &Config,
    layout: Layout,
    attentions: Attentions,
) -> Result<Graph, Error> {
    let builder = Builder::new("model");
    let is_optimum = layout.is_optimum();
    let [batch, past, tgt] = match is_optimum {
        true => ["batch_size", "past_sequence_length", "sequence_length"],
        false => ["batch", "past", "tgt"],
    }
    .map(Dim::from);
    let ids = builder.input(INPUT_IDS, DType::I64, [&batch, &tgt]);
    let attention_mask = builder.input(ATTENTION_MASK, DType::I64, [&batch, &(&past + &tgt)]);
    let positions = if is_optimum {
        builder.input(POSITION_IDS, DType::I64, [&batch, &tgt])
    } else {
        counted(attention_mask, [&past, &tgt])
    };
    let shape = [batch, config.decoder.key_heads.into(), past, config.decoder.d_k.into()];
    let pasts = (0..config.decoder.n_layers).map(|layer_index| {
        let names = if is_optimum {
            HuggingFaceNames::past_alone(layer_index)
        } else {
            Names::past(layer_index)
        };
        let [key, value] = names.map(|name| builder.input(&name, DType::F32, shape.to_vec()));
        KeyValue { key, value }
    });
    let past = Past::Joined(pasts.collect());
    continue_tokens(
        &builder,
        config,
        attentions,
        (ids, Prompts { attention_mask: Some(attention_mask), positions }),
        past,
    );
    builder.finish()
}

/// `input_ids, attention_mask: i64 [batch, tgt]` -> `logits: [batch, tgt, vocab]`,
/// `decoder_attentions.{l}: [batch, heads, tgt, tgt]`.
pub(crate) fn teacher_forced(config: &Config) -> Result<Graph, Error> {
    let builder = Builder::new("teacher_forced");
    let [ids, attention_mask] =
        [INPUT_IDS, ATTENTION_MASK].map(|name| builder.input(name, DType::I64, ["batch", "tgt"]));
    let positions = counted(attention_mask, [&Dim::from(0), &ids.dim(1)]);
    continue_tokens(
        &builder,
        config,
        Attentions::All,
        (ids, Prompts { attention_mask: Some(attention_mask), positions }),
        Past::None,
    );
    builder.finish()
}

/// The decoder and its outputs.
fn continue_tokens<'g>(
    builder: &'g Builder,
    config: &Config,
    attentions: Attentions,
    (ids, prompts): (Tensor<'g>, Prompts<'g>),
    past: Past<'g>,
) {
    let has_past = matches!(past, Past::Joined(_));
    let (cross, prompts, dropout) = (Vec::new(), Some(prompts), Dropout::none());
    let outputs = decoder(
        &builder.root(),
        config,
        &DecoderInputs { ids, attention_mask: None, cross, past, prompts, dropout },
    );
    builder.output(LOGITS, outputs.logits);
    for (layer_index, &present) in outputs.present.iter().enumerate().filter(|_| has_past) {
        output(builder, Names::present(layer_index), present);
    }
    attentions.output_decoder(builder, &outputs);
}

/// The positions of the last `tgt` of `past + tgt` tokens, counted over those that are not padding;
/// 0 for padding on the left.
fn counted<'g>(attention_mask: Tensor<'g>, [past, tgt]: [&Dim; 2]) -> Tensor<'g> {
    let builder = attention_mask.builder();
    let _scope = builder.root().at("positions").enter();
    let one = builder.integer(1);
    let count = attention_mask.cumulative_sum();
    (one.less_or_equal(count).select(count, one) - one).slice(1, past, past + tgt)
}
