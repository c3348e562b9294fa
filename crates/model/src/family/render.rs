//! Writes the `config.json` of a model without a checkpoint.

use super::parse;
use crate::{Config, Embeddings, Error, ErrorKind, OutputProjection};
use serde_json::{Map, Value, json};

/// The families to write, in order of preference: transformers' first, so that it can run them.
const MODEL_TYPES: [&str; 4] = ["marian", "pegasus", "blenderbot", "cognate"];

/// The `config.json` of the first family that can represent all of `config`.
///
/// # Errors
/// If none can, or if the configuration is inconsistent.
pub(crate) fn render(config: &Config) -> Result<String, Error> {
    let mut said = Ok(None);
    for model_type in MODEL_TYPES {
        let text = match model_type {
            "cognate" => super::cognate::render(config),
            _ => text(model_type, config),
        };
        said = parse(&text).map(|(_, read)| (read == *config).then_some(text));
        if let Ok(Some(text)) = said {
            return Ok(text);
        }
    }
    // The last family's error is the most complete.
    said?;
    Err(Error::new(ErrorKind::Config, "configuration", "no supported config.json can represent it"))
}

fn text(model_type: &str, config: &Config) -> String {
    let architecture = match model_type {
        "marian" => "MarianMTModel",
        "pegasus" => "PegasusForConditionalGeneration",
        _ => "BlenderbotForConditionalGeneration",
    };
    let mut fields = Map::new();
    fields.insert("architectures".to_owned(), json!([architecture]));
    let mut add = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    add("model_type", json!(model_type));
    add("vocab_size", json!(config.source_vocab));
    add("d_model", json!(config.d_model));
    add("encoder_layers", json!(config.encoder.n_layers));
    add("decoder_layers", json!(config.decoder.n_layers));
    add("encoder_attention_heads", json!(config.encoder.heads));
    add("decoder_attention_heads", json!(config.decoder.heads));
    add("encoder_ffn_dim", json!(config.encoder.d_ff));
    add("decoder_ffn_dim", json!(config.decoder.d_ff));
    add("max_position_embeddings", json!(config.max_positions));
    add("activation_function", json!(config.activation.name()));
    add("scale_embedding", json!(config.scale_embedding));
    add("decoder_start_token_id", json!(config.start_token));
    add("eos_token_id", json!(config.eos_token));
    add("pad_token_id", json!(config.pad_token));
    // transformers' defaults for these would force or forbid unrelated tokens.
    add("bos_token_id", Value::Null);
    add("forced_eos_token_id", Value::Null);
    add("num_hidden_layers", json!(config.encoder.n_layers));
    add("is_encoder_decoder", json!(true));
    if config.embeddings == Embeddings::Separate || model_type == "marian" {
        add("share_encoder_decoder_embeddings", json!(config.embeddings == Embeddings::Shared));
        add("decoder_vocab_size", json!(config.vocab));
    }
    if config.output == OutputProjection::Own {
        fields.insert("tie_word_embeddings".to_owned(), json!(false));
    }
    format!("{:#}\n", Value::Object(fields))
}
