//! Cognate's own models: the paper's Transformer and its variants.
//!
//! Fields have transformers' names where these exist. A missing field has the paper's value;
//! unknown fields are rejected.

use super::bart::{NAMES, stack};
use super::fields::{Fields, Tokens};
use crate::config::ROTARY_BASE;
use crate::{
    Activation, AttentionScore, Biases, Caps, Config, EmbeddingNorm, Embeddings, Front, Norm,
    NormPlacement, OutputBias, OutputProjection, Parts, PositionKind, Positions, RelativeLayers,
    RotaryScaling, Sinusoids, TokenTypes,
};
use serde_json::{Map, Value, json};

const BUCKETS: usize = 32;
const MAX_DISTANCE: usize = 128;
const EPSILON: f32 = 1e-5;

/// Fields that programs write into the `config.json` of every model.
const GENERAL: [&str; 11] = [
    "_name_or_path",
    "architectures",
    "bos_token_id",
    "dtype",
    "model_type",
    "tokenizer_class",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "use_cache",
];

pub(super) fn config(fields: &Fields) -> Config {
    let d_model = fields.size("d_model");
    let source_vocab = fields.size("vocab_size");
    let is_shared = fields.flag("share_encoder_decoder_embeddings", true);
    let (embeddings, vocab) = match fields.optional_size("decoder_vocab_size") {
        Some(vocab) if is_shared && vocab != source_vocab => {
            fields.contradict(format!("decoder_vocab_size: expected vocab_size {source_vocab} with shared embeddings, found {vocab}"));
            (Embeddings::Shared, source_vocab)
        }
        vocab if is_shared => (Embeddings::Shared, vocab.unwrap_or(source_vocab)),
        vocab => (Embeddings::Separate, vocab.unwrap_or(source_vocab)),
    };
    let [start_token, eos_token, pad_token] =
        fields.tokens(Tokens { start: None, bos: None, eos: None, pad: None });
    let (positions, is_bounded) = match fields
        .named("position_embedding_type", PositionKind::Sinusoidal)
    {
        PositionKind::Sinusoidal => (Positions::Sinusoidal(Sinusoids::Interleaved), true),
        PositionKind::Learned => (Positions::Learned { offset: 0 }, true),
        PositionKind::Relative => {
            let buckets = fields.optional_size("relative_attention_num_buckets").unwrap_or(BUCKETS);
            let max_distance =
                fields.optional_size("relative_attention_max_distance").unwrap_or(MAX_DISTANCE);
            (Positions::Relative { buckets, max_distance, of: RelativeLayers::First }, false)
        }
        PositionKind::Rotary => (Positions::Rotary, true),
        PositionKind::Alibi => (Positions::Alibi, false),
    };
    let config = Config {
        front: Front::Tokens,
        encoder_model: None,
        vocab,
        source_vocab,
        d_model,
        max_positions: match fields.optional_size("max_position_embeddings") {
            None if is_bounded => Some(fields.size("max_position_embeddings")),
            limit => limit,
        },
        parts: Parts::Both,
        encoder: stack(fields, d_model, &NAMES.encoder),
        decoder: stack(fields, d_model, &NAMES.decoder),
        activation: match fields.text("activation_function") {
            Some(name) => fields.activation("activation_function", name),
            None => Activation::Relu,
        },
        gated: fields.flag("gated", false),
        biases: fields.flag("biases", true).into(),
        score: fields.named("attention_score", AttentionScore::ScaledDot),
        score_width: None,
        caps: Caps::default(),
        positions,
        rotary_base: fields.positive("rope_theta", ROTARY_BASE),
        rotary_scaling: RotaryScaling::None,
        table_width: None,
        windows: Vec::new(),
        norm: fields.named("norm", Norm::Layer),
        norm_from_one: false,
        placement: fields.named("norm_placement", NormPlacement::Post),
        embedding_norm: EmbeddingNorm::None,
        epsilon: fields.positive("layer_norm_epsilon", EPSILON),
        embeddings,
        token_types: TokenTypes::None,
        scale_embedding: fields.flag("scale_embedding", true),
        output: if fields.flag("tie_word_embeddings", true) {
            OutputProjection::Tied
        } else {
            OutputProjection::Own
        },
        scale_output: false,
        output_transform: None,
        output_bias: OutputBias::None,
        start_token,
        eos_token,
        pad_token,
    };
    fields.refuse_unread(&GENERAL);
    config.check(&NAMES, |problem| fields.contradict(problem));
    config
}

/// Writes the `config.json` of a model without a checkpoint. The paper's values are left out.
pub(crate) fn render(config: &Config) -> String {
    let mut fields = object(json!({
        "model_type": "cognate",
        "vocab_size": config.source_vocab,
        "d_model": config.d_model,
        "encoder_layers": config.encoder.n_layers,
        "decoder_layers": config.decoder.n_layers,
        "encoder_attention_heads": config.encoder.heads,
        "decoder_attention_heads": config.decoder.heads,
        "encoder_ffn_dim": config.encoder.d_ff,
        "decoder_ffn_dim": config.decoder.d_ff,
        "activation_function": config.activation.name(),
        "scale_embedding": config.scale_embedding,
        "decoder_start_token_id": config.start_token,
        "eos_token_id": config.eos_token,
        "pad_token_id": config.pad_token,
        "is_encoder_decoder": true,
    }));
    let kind = match config.positions {
        Positions::Sinusoidal(_) | Positions::Counted => PositionKind::Sinusoidal,
        Positions::Learned { .. } | Positions::LearnedCounted { .. } => PositionKind::Learned,
        Positions::Relative { buckets, max_distance, .. } => {
            fields.insert("relative_attention_num_buckets".into(), buckets.into());
            fields.insert("relative_attention_max_distance".into(), max_distance.into());
            PositionKind::Relative
        }
        Positions::Rotary => PositionKind::Rotary,
        Positions::Alibi => PositionKind::Alibi,
    };
    fields.insert("position_embedding_type".into(), json!(kind));
    // The shortest decimal form, not the exact value of the f32.
    let epsilon = config.epsilon.to_string().parse::<f64>().unwrap_or_default();
    for (is_said, name, value) in [
        (config.max_positions.is_some(), "max_position_embeddings", json!(config.max_positions)),
        (config.norm != Norm::Layer, "norm", json!(config.norm)),
        (config.placement != NormPlacement::Post, "norm_placement", json!(config.placement)),
        (config.epsilon != EPSILON, "layer_norm_epsilon", json!(epsilon)),
        (config.score != AttentionScore::ScaledDot, "attention_score", json!(config.score)),
        (config.rotary_base != ROTARY_BASE, "rope_theta", json!(config.rotary_base)),
        (config.gated, "gated", json!(true)),
        (config.biases == Biases::None, "biases", json!(false)),
        (
            config.embeddings == Embeddings::Separate,
            "share_encoder_decoder_embeddings",
            json!(false),
        ),
        (config.embeddings == Embeddings::Separate, "decoder_vocab_size", json!(config.vocab)),
        (config.output == OutputProjection::Own, "tie_word_embeddings", json!(false)),
    ] {
        if is_said {
            fields.insert(name.into(), value);
        }
    }
    serde_json::to_string_pretty(&fields).expect("plain fields are JSON") + "\n"
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
