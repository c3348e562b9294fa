//! `config.json` of models that consist of two models: an encoder of images or of text, and a decoder
//! of text (transformers' `VisionEncoderDecoderModel`, such as TrOCR, Li et al. 2023, and
//! `EncoderDecoderModel`, Rothe et al. 2020).

use super::{Bart, Bert, Family, Gpt};
use crate::config::EncoderModel;
use crate::{Config, Embeddings, Front, Head, Parts, TokenTypes};
use serde_json::{Map, Value};

/// The `model_type` of models that read text and of those that read images.
pub(super) const MODEL_TYPES: [&str; 2] = ["encoder-decoder", "vision-encoder-decoder"];

/// Fails if a family cannot be this half of a model.
pub(super) fn check(encoder: &Family, decoder: &Family) -> Result<(), String> {
    if !matches!(encoder, Family::Bert(_) | Family::Vit(_)) {
        return Err("encoder: expected one of bert, bert-generation, camembert, deit, distilbert, mpnet, roberta, vit, xlm-roberta".into());
    }
    match decoder {
        Family::Bart(bart) if *bart != Bart::M2m100 => Ok(()),
        Family::Bert(Bert::Generation | Bert::Original | Bert::Roberta)
        | Family::Gpt(Gpt::Gpt2) => Ok(()),
        _ => Err(
            "decoder: expected one of trocr, bart, bert, bert-generation, blenderbot, \
                  blenderbot-small, camembert, gpt2, marian, mbart, pegasus, plbart, roberta, xlm-roberta"
                .into(),
        ),
    }
}

/// Whether the decoder has the encoder's weights, where both have such a parameter.
pub(super) fn is_tied(
    object: &Map<String, Value>,
    encoder: &Family,
    decoder: &Family,
) -> Result<bool, String> {
    let field = "tie_encoder_decoder";
    match object.get(field) {
        None | Some(Value::Null | Value::Bool(false)) => Ok(false),
        Some(Value::Bool(true)) if matches!(encoder, Family::Bert(_)) && encoder == decoder => {
            Ok(true)
        }
        Some(Value::Bool(true)) => {
            Err(format!("{field} true: expected an encoder and a decoder of one family"))
        }
        Some(found) => Err(format!("{field}: expected true or false, found {found}")),
    }
}

/// Fields of the outer object that belong to the decoder.
const TOKENS: [&str; 4] =
    ["decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id"];

/// The `config.json` of one half, `encoder` or `decoder`.
pub(super) fn half(object: &Map<String, Value>, name: &str) -> Result<Map<String, Value>, String> {
    let mut half = match object.get(name) {
        Some(Value::Object(half)) => half.clone(),
        None | Some(Value::Null) => return Err(format!("{name} is missing; expected an object")),
        Some(found) => return Err(format!("{name}: expected an object, found {found}")),
    };
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
    let reads_images = matches!(encoder.front, Front::Pixels(_));
    if reads_images != (object["model_type"] == MODEL_TYPES[1]) {
        return Err(match reads_images {
            true => "encoder: expected a model of text, such as bert".into(),
            false => "encoder: expected a model of images, vit or deit".into(),
        });
    }
    let width =
        object["decoder"].get("cross_attention_hidden_size").filter(|width| !width.is_null());
    if let Some(width) = width.filter(|width| !sized || **width != encoder.d_model) {
        let wanted = if sized { encoder.d_model.to_string() } else { "null".into() };
        return Err(format!(
            "decoder: cross_attention_hidden_size {width} is not supported; expected {wanted}"
        ));
    }
    if !reads_images && encoder.pad_token >= decoder.vocab {
        let (pad, vocab) = (encoder.pad_token, decoder.vocab);
        return Err(format!(
            "encoder: pad_token_id {pad} is outside the decoder's vocabulary of {vocab}"
        ));
    }
    let projected = width.is_none() && encoder.d_model != decoder.d_model;
    // All tokens are in the first segment.
    let in_first = |types| match types {
        TokenTypes::Given(rows) => TokenTypes::First(rows),
        others => others,
    };
    let encoder = Config {
        parts: Parts::Encoder(Head::None),
        embeddings: Embeddings::Separate,
        token_types: in_first(encoder.token_types),
        ..encoder
    };
    Ok(Config {
        front: encoder.front,
        source_vocab: if reads_images { decoder.source_vocab } else { encoder.source_vocab },
        encoder: encoder.encoder,
        encoder_model: Some(Box::new(EncoderModel { config: encoder, projected })),
        parts: Parts::Both,
        embeddings: Embeddings::Separate,
        token_types: in_first(decoder.token_types),
        ..decoder
    })
}

/// The path of the encoder's or decoder's parameter that is the other one's, if both are tied.
pub(super) fn twin(path: &str) -> Option<String> {
    match path.split_once('.')? {
        _ if path.contains("encoder_attn") => None,
        ("encoder", rest) => Some(format!("decoder.{rest}")),
        ("decoder", rest) => Some(format!("encoder.{rest}")),
        _ => None,
    }
}
