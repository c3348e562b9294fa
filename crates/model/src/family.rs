//! `config.json`: the only place that knows families.
//!
//! Each family is a struct of the fields that its `config.json` has in Hugging Face's transformers, and a conversion to
//! [`Config`] that refuses what is not supported by naming the field. Unknown fields are ignored, as transformers does.

use crate::{Activation, Config, Error, ErrorKind, Positions, Sinusoids, Stack};
use serde::{Deserialize, Serialize};

/// A family, told by `model_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// The paper's model, as the presets make it.
    Cognate,
    /// MarianMT (Junczys-Dowmunt et al. 2018) as transformers keeps it.
    Marian,
}

/// Fields common to the supported families.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Fields {
    model_type: String,
    vocab_size: usize,
    d_model: usize,
    encoder_layers: usize,
    decoder_layers: usize,
    encoder_attention_heads: usize,
    decoder_attention_heads: usize,
    encoder_ffn_dim: usize,
    decoder_ffn_dim: usize,
    max_position_embeddings: usize,
    activation_function: String,
    #[serde(default)]
    scale_embedding: bool,
    decoder_start_token_id: usize,
    eos_token_id: usize,
    pad_token_id: usize,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    #[serde(default = "yes")]
    share_encoder_decoder_embeddings: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    decoder_vocab_size: Option<usize>,
    /// Of the presets' own form: `sinusoidal` or `learned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    position_embedding_type: Option<String>,
    is_encoder_decoder: Option<bool>,
}

fn yes() -> bool {
    true
}

/// Names by which activations go in `config.json`; the first of each is the one that is written.
const ACTIVATIONS: [(&str, Activation); 5] = [
    ("relu", Activation::Relu),
    ("gelu", Activation::Gelu),
    ("swish", Activation::Swish),
    ("silu", Activation::Swish),
    ("tanh", Activation::Tanh),
];

/// Reads the text of a `config.json`.
pub(crate) fn parse(text: &str) -> Result<(Family, Config), Error> {
    let wrong = |message: String| Error::new(ErrorKind::Config, "config.json", message);
    let value: serde_json::Value = serde_json::from_str(text).map_err(|error| wrong(format!("not JSON: {error}")))?;
    let family = match value.get("model_type").map(|model_type| (model_type, model_type.as_str())) {
        Some((_, Some("marian"))) => Family::Marian,
        Some((_, Some("cognate"))) => Family::Cognate,
        Some((found, _)) => return Err(wrong(format!("model_type {found} is not supported; expected \"marian\" or \"cognate\""))),
        None => return Err(wrong("model_type is missing; expected \"marian\" or \"cognate\"".into())),
    };
    let fields: Fields = serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string().as_str() {
        // A field that is missing is named by the error itself.
        "." => wrong(error.inner().to_string()),
        field => wrong(format!("{field}: {}", error.inner())),
    })?;
    let activation = ACTIVATIONS.iter().find(|(name, _)| *name == fields.activation_function).map(|(_, activation)| *activation);
    let activation = activation.ok_or_else(|| {
        let names: Vec<_> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
        wrong(format!("activation_function {:?} is not supported; expected one of {}", fields.activation_function, names.join(", ")))
    })?;
    if !fields.tie_word_embeddings || !fields.share_encoder_decoder_embeddings {
        let field = if fields.tie_word_embeddings { "share_encoder_decoder_embeddings" } else { "tie_word_embeddings" };
        return Err(wrong(format!("{field} false is not supported; expected true")));
    }
    if let Some(size) = fields.decoder_vocab_size.filter(|&size| size != fields.vocab_size) {
        return Err(wrong(format!("decoder_vocab_size {size} is not supported; expected vocab_size {}", fields.vocab_size)));
    }
    let positions = match (family, fields.position_embedding_type.as_deref()) {
        (Family::Marian, _) => Positions::Sinusoidal(Sinusoids::Halves),
        (Family::Cognate, None | Some("sinusoidal")) => Positions::Sinusoidal(Sinusoids::Interleaved),
        (Family::Cognate, Some("learned")) => Positions::Learned,
        (Family::Cognate, Some(other)) => {
            return Err(wrong(format!("position_embedding_type {other:?} is not supported; expected \"sinusoidal\" or \"learned\"")));
        }
    };
    let config = Config {
        vocab: fields.vocab_size,
        d_model: fields.d_model,
        max_positions: fields.max_position_embeddings,
        encoder: Stack { n_layers: fields.encoder_layers, heads: fields.encoder_attention_heads, d_ff: fields.encoder_ffn_dim },
        decoder: Stack { n_layers: fields.decoder_layers, heads: fields.decoder_attention_heads, d_ff: fields.decoder_ffn_dim },
        activation,
        positions,
        scale_embedding: fields.scale_embedding,
        output_bias: family == Family::Marian,
        epsilon: 1e-5,
        start_token: fields.decoder_start_token_id,
        eos_token: fields.eos_token_id,
        pad_token: fields.pad_token_id,
    };
    Ok((family, config.checked()?))
}

/// The `config.json` of a model that is no checkpoint's: the inverse of [`parse`] for [`Family::Cognate`].
pub(crate) fn render(config: &Config) -> String {
    let activation = ACTIVATIONS.iter().find(|(_, activation)| *activation == config.activation);
    let fields = Fields {
        model_type: "cognate".into(),
        vocab_size: config.vocab,
        d_model: config.d_model,
        encoder_layers: config.encoder.n_layers,
        decoder_layers: config.decoder.n_layers,
        encoder_attention_heads: config.encoder.heads,
        decoder_attention_heads: config.decoder.heads,
        encoder_ffn_dim: config.encoder.d_ff,
        decoder_ffn_dim: config.decoder.d_ff,
        max_position_embeddings: config.max_positions,
        activation_function: activation.expect("every activation has a name").0.into(),
        scale_embedding: config.scale_embedding,
        decoder_start_token_id: config.start_token,
        eos_token_id: config.eos_token,
        pad_token_id: config.pad_token,
        tie_word_embeddings: true,
        share_encoder_decoder_embeddings: true,
        decoder_vocab_size: None,
        position_embedding_type: Some(if config.positions == Positions::Learned { "learned" } else { "sinusoidal" }.into()),
        is_encoder_decoder: Some(true),
    };
    serde_json::to_string_pretty(&fields).expect("plain fields are JSON") + "\n"
}

impl Family {
    /// Names under which a checkpoint may keep the parameter at `path`, the usual one first.
    pub(crate) fn stored_names(self, path: &str) -> Vec<String> {
        match (self, path) {
            (Family::Cognate, _) | (Family::Marian, "final_logits_bias") => vec![path.into()],
            // Tied tensors are saved under any of their names.
            (Family::Marian, "shared.weight") => {
                ["model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"]
                    .map(String::from)
                    .into()
            }
            (Family::Marian, _) => vec![format!("model.{path}")],
        }
    }
}
