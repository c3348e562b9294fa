//! `config.json` of models that consist of two models: an encoder of images and a decoder of text
//! (transformers' `VisionEncoderDecoderModel`, such as TrOCR; Li et al. 2023).

use crate::config::EncoderModel;
use crate::{Config, Embeddings, Front, Head, Parts};
use serde_json::{Map, Value};

/// The `model_type`.
pub(super) const MODEL_TYPE: &str = "vision-encoder-decoder";

/// Fields of the outer object that belong to the decoder.
const TOKENS: [&str; 4] =
    ["decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id"];

/// The `config.json` of one half, `encoder` or `decoder`.
pub(super) fn half(object: &Map<String, Value>, name: &str) -> Result<Map<String, Value>, String> {
    let Some(Value::Object(half)) = object.get(name) else {
        return Err(format!("{name} is missing; expected an object"));
    };
    let mut half = half.clone();
    // The class depends on the outer object, not on how the half was saved.
    for field in ["architectures", "is_decoder", "add_cross_attention", "is_encoder_decoder"] {
        half.remove(field);
    }
    // The configuration of a decoder such as BART's also describes an encoder, which is not built.
    for size in ["layers", "attention_heads", "ffn_dim"].iter().filter(|_| name == "decoder") {
        let own = half.get(&format!("decoder_{size}")).cloned();
        if let (Some(unread), Some(own)) = (half.get_mut(&format!("encoder_{size}")), own) {
            *unread = own;
        }
    }
    for field in TOKENS.into_iter().filter(|_| name == "decoder") {
        half.extend(
            object
                .get(field)
                .filter(|token| !token.is_null())
                .map(|token| (field.to_owned(), token.clone())),
        );
    }
    Ok(half)
}

/// The model of two halves. `sized`: whether the decoder's cross-attention may have the encoder's
/// width.
pub(super) fn join(
    object: &Map<String, Value>,
    encoder: Config,
    decoder: Config,
    sized: bool,
) -> Result<Config, String> {
    if object.get("tie_encoder_decoder").is_some_and(|tied| *tied == true) {
        return Err("tie_encoder_decoder true is not supported; expected false".into());
    }
    if !matches!(encoder.front, Front::Pixels(_)) {
        return Err("encoder: expected a model of images, vit or deit".into());
    }
    let width = object
        .get("decoder")
        .and_then(|decoder| decoder.get("cross_attention_hidden_size")?.as_u64());
    if let Some(width) = width.filter(|width| !sized || *width != encoder.d_model as u64) {
        let wanted = if sized { encoder.d_model.to_string() } else { "null".into() };
        return Err(format!(
            "decoder: cross_attention_hidden_size {width} is not supported; expected {wanted}"
        ));
    }
    let projected = width.is_none() && encoder.d_model != decoder.d_model;
    let encoder = Config { parts: Parts::Encoder(Head::None), ..encoder };
    Ok(Config {
        front: encoder.front,
        encoder: encoder.encoder,
        encoder_model: Some(Box::new(EncoderModel { config: encoder, projected })),
        parts: Parts::Both,
        embeddings: Embeddings::Separate,
        output_bias: false,
        ..decoder
    })
}
