//! `config.json` and tensor names of T5Gemma (Zhang et al. 2025): an encoder and a decoder like
//! those of Gemma 2.

use super::fields::Fields;
use super::pair;
use crate::config::EncoderModel;
use crate::{Config, Head, OutputProjection, Parts, Stack};
use serde_json::{Map, Value};

/// The `config.json` of one half, `encoder` or `decoder`, as a `config.json` of Gemma 2.
pub(super) fn half(object: &Map<String, Value>, name: &str) -> Result<Map<String, Value>, String> {
    let mut half = pair::half(object, name)?;
    half.insert("model_type".into(), "gemma2".into());
    // transformers' class gives its vocabulary to both halves.
    half.insert(
        "vocab_size".into(),
        object.get("vocab_size").cloned().unwrap_or_else(|| 256_000.into()),
    );
    // Decoding starts with `bos_token_id`, unless the outer object names another token.
    if let Some(token) = half.remove("decoder_start_token_id") {
        half.insert("bos_token_id".into(), token);
    }
    Ok(half)
}

/// The model of two halves, each read as a decoder; only the first if the class has no decoder.
pub(super) fn join(
    fields: Fields,
    class: &str,
    encoder: Config,
    decoder: Config,
) -> Result<Config, String> {
    fields.refuse_other("tie_encoder_decoder", false);
    let output = match (fields.flag("tie_word_embeddings", true), decoder.output) {
        (true, _) => OutputProjection::Tied,
        // transformers 4 ties the output to the first table that it finds.
        (false, OutputProjection::Tied) if fields.transformers() < 5 => OutputProjection::Source,
        (false, _) if fields.transformers() >= 5 => OutputProjection::Own,
        (false, output) => output,
    };
    if output == OutputProjection::Source && encoder.d_model != decoder.d_model {
        let [ours, theirs] = [decoder.d_model, encoder.d_model];
        fields.contradict(format!(
            "tie_word_embeddings false ties the output to the encoder's table of width {theirs}, and the decoder has {ours}; set \
             tie_word_embeddings of the decoder to false"
        ));
    }
    let encoder = Config {
        parts: Parts::Encoder(Head::None),
        encoder: encoder.decoder,
        decoder: Stack { n_layers: 0, ..encoder.decoder },
        ..encoder
    };
    let is_alone = fields.is_encoder_alone();
    fields.refuse_other("is_encoder_decoder", !is_alone);
    let kinds = ["ForConditionalGeneration", "Model", "EncoderModel"];
    if let Some(found) = fields
        .architecture()
        .filter(|found| found.strip_prefix(class).is_none_or(|kind| !kinds.contains(&kind)))
    {
        fields.refuse(format!(
            "architectures {found:?} is not supported; expected {}",
            kinds.map(|kind| format!("{class}{kind}")).join(", ")
        ));
    }
    fields.finish()?;
    if is_alone {
        return Ok(encoder);
    }
    Ok(Config {
        parts: Parts::Both,
        max_positions: encoder.max_positions.min(decoder.max_positions),
        source_vocab: encoder.vocab,
        encoder: encoder.encoder,
        encoder_model: Some(Box::new(EncoderModel { config: encoder, projected: false })),
        output,
        ..decoder
    })
}

/// Parts of paths and of tensor names.
const PARTS: [(&str, &str); 13] = [
    ("encoder_attn", "cross_attn"),
    ("out_proj", "o_proj"),
    ("fc1", "mlp.gate_proj"),
    ("fc_gate", "mlp.up_proj"),
    ("fc2", "mlp.down_proj"),
    ("self_attn_layer_norm", "pre_self_attn_layernorm"),
    ("self_attn_post_layer_norm", "post_self_attn_layernorm"),
    ("cross_attn_layer_norm", "pre_cross_attn_layernorm"),
    ("cross_attn_post_layer_norm", "post_cross_attn_layernorm"),
    ("final_layer_norm", "pre_feedforward_layernorm"),
    ("final_post_layer_norm", "post_feedforward_layernorm"),
    ("coder.layer_norm", "coder.norm"),
    ("lm_head", "lm_head.out_proj"),
];

/// Possible names of the tensor at `path`, the usual one first.
pub(super) fn names(path: &str) -> Vec<String> {
    let name =
        PARTS.iter().fold(path.to_owned(), |name, (ours, theirs)| name.replace(ours, theirs));
    // The class of both stacks without a head, and that of the encoder, have no prefix.
    if path.starts_with("lm_head") { vec![name] } else { vec![format!("model.{name}"), name] }
}
