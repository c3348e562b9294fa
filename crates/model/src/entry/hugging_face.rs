//! The graphs of the Hugging Face layout. Names and order of inputs and outputs are Optimum's, so
//! that Optimum and transformers.js run them.
//!
//! Optimum's merged decoder computes or reads cross keys in the two branches of an `If`. This graph
//! has no branches: it computes the keys of the source positions `past_encoder_sequence_length..`
//! and appends them to the past. On the first step the past is empty and these are all positions;
//! later they are none.
//!
//! Axis 0 is called `batch_size`, as transformers.js expects.

use crate::Config;
use crate::attention::KeyValue;
use crate::decoder::{DecoderInputs, Past, bridge, decoder};
use crate::dropout::Dropout;
use crate::embedding::Side;
use crate::encoder::encoder;
use crate::entry::{Attentions, source_mask};
use crate::front::Source;
use crate::interface::{
    ENCODER_ATTENTION_MASK, ENCODER_HIDDEN_STATES, HuggingFaceNames, INPUT_IDS, LAST_HIDDEN_STATE,
    LOGITS,
};
use cognate_graph::{Builder, DType, Dim, Error, Graph};

const BATCH: &str = "batch_size";
const SOURCE: &str = "encoder_sequence_length";
const TARGET: &str = "decoder_sequence_length";
const PAST: &str = "past_decoder_sequence_length";
/// Optimum uses `SOURCE` here too. The two differ on the first step, and engines that trust
/// names would fail.
const PAST_SOURCE: &str = "past_encoder_sequence_length";

/// The inputs of the [`Source`] -> `last_hidden_state`.
pub(crate) fn encode(config: &Config, attentions: Attentions) -> Result<Graph, Error> {
    let builder = Builder::new("encoder_model");
    let outputs = encoder(
        &builder.root(),
        config,
        Source::declare(&builder, config, [BATCH, SOURCE]),
        &Dropout::none(),
    );
    builder.output(LAST_HIDDEN_STATE, outputs.hidden);
    attentions.output_encoder(&builder, &outputs);
    builder.finish()
}

/// `encoder_attention_mask, input_ids, encoder_hidden_states`, pasts ->
/// `logits: [batch_size, decoder_sequence_length, vocab]`, presents. All pasts have length 0 on
/// the first step.
pub(crate) fn step(config: &Config, attentions: Attentions) -> Result<Graph, Error> {
    let builder = Builder::new("decoder_model_merged");
    let root = builder.root();
    let attention_mask = source_mask(&builder, config, ENCODER_ATTENTION_MASK, [BATCH, SOURCE]);
    let ids = builder.input(INPUT_IDS, DType::I64, [BATCH, TARGET]);
    let hidden = builder.input(
        ENCODER_HIDDEN_STATES,
        DType::F32,
        [Dim::from(BATCH), SOURCE.into(), config.of_encoder().d_model.into()],
    );
    let uncovered = bridge(&root, config, hidden.slice(1, PAST_SOURCE, SOURCE));
    let (mut past, mut cross) = (Vec::new(), Vec::new());
    for layer_index in 0..config.decoder.n_layers {
        let heads = [config.decoder.key_heads, config.decoder.d_k].map(Dim::from);
        let input = |name: &str, len: &str| {
            builder.input(name, DType::F32, [&BATCH.into(), &heads[0], &len.into(), &heads[1]])
        };
        let [key, value, cross_key, cross_value] = HuggingFaceNames::past(layer_index);
        past.push(KeyValue { key: input(&key, PAST), value: input(&value, PAST) });
        let scope = Side::Decoder.at(&root).at("layers").at(layer_index).at("encoder_attn");
        let covered = KeyValue {
            key: input(&cross_key, PAST_SOURCE),
            value: input(&cross_value, PAST_SOURCE),
        };
        let _scope = scope.enter();
        cross.push(KeyValue::project(&scope, config, config.decoder, uncovered).after(covered));
    }
    let outputs = decoder(
        &root,
        config,
        &DecoderInputs {
            ids,
            attention_mask,
            cross: cross.clone(),
            past: Past::Joined(past),
            prompts: None,
            dropout: Dropout::none(),
        },
    );
    builder.output(LOGITS, outputs.logits);
    for (layer_index, (present, cross)) in outputs.present.iter().zip(cross).enumerate() {
        let tensors = [present.key, present.value, cross.key, cross.value];
        HuggingFaceNames::present(layer_index)
            .iter()
            .zip(tensors)
            .for_each(|(name, tensor)| builder.output(name, tensor));
    }
    attentions.output_decoder(&builder, &outputs);
    builder.finish()
}
