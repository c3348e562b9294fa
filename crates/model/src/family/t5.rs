//! `config.json` of the families derived from T5, and the properties that it does not contain.

use super::T5;
use super::fields::{Fields, Tokens};
use crate::config::{ROTARY_BASE, SizeNames, StackNames};
use crate::{
    Activation, AttentionScore, Biases, Caps, Config, EmbeddingNorm, Embeddings, Front, Norm,
    NormPlacement, OutputBias, OutputProjection, Parts, Positions, RelativeLayers, RotaryScaling,
    Stack, TokenTypes,
};

const ENCODER: StackNames =
    StackNames { n_layers: "num_layers", heads: "num_heads", d_k: "d_kv", d_ff: "d_ff" };
const NAMES: SizeNames = SizeNames {
    source_vocab: "vocab_size",
    d_model: "d_model",
    positions: "max_position_embeddings",
    encoder: ENCODER,
    decoder: StackNames { n_layers: "num_decoder_layers", ..ENCODER },
};

pub(super) fn config(family: T5, fields: &Fields) -> Config {
    let vocab = fields.size("vocab_size");
    let heads = fields.size("num_heads");
    let (n_layers, d_k, d_ff) =
        (fields.size("num_layers"), fields.size("d_kv"), fields.size("d_ff"));
    let encoder = Stack { n_layers, heads, key_heads: heads, d_k, d_ff };
    let n_layers = fields.optional_size("num_decoder_layers").unwrap_or(encoder.n_layers);
    let tied = fields.flag("tie_word_embeddings", family != T5::Mt5);
    // transformers 5 writes for every model that it is tied, and scales no mT5.
    let scaled = match family {
        T5::Mt5 if fields.transformers() >= 5 => false,
        _ => fields.flag("scale_decoder_outputs", tied),
    };
    let (activation, gated) = feed_forward(family, fields);
    // Encoder-only models have no start token.
    let start = if family == T5::Original && !fields.is_encoder_alone() { None } else { Some(0) };
    let tokens = fields.tokens(Tokens { start, bos: None, eos: Some(1), pad: Some(0) });
    let config = Config {
        front: Front::Tokens,
        encoder_model: None,
        vocab,
        source_vocab: vocab,
        d_model: fields.size("d_model"),
        max_positions: None,
        parts: Parts::Both,
        encoder,
        decoder: Stack { n_layers, ..encoder },
        activation,
        gated,
        biases: Biases::None,
        score: AttentionScore::Dot,
        score_width: None,
        caps: Caps::default(),
        positions: Positions::Relative {
            buckets: fields.optional_size("relative_attention_num_buckets").unwrap_or(32),
            max_distance: fields.optional_size("relative_attention_max_distance").unwrap_or(128),
            of: if family == T5::Umt5 { RelativeLayers::Each } else { RelativeLayers::First },
        },
        rotary_base: ROTARY_BASE,
        rotary_scaling: RotaryScaling::None,
        table_width: None,
        windows: Vec::new(),
        norm: Norm::Rms,
        norm_from_one: false,
        placement: NormPlacement::Pre,
        embedding_norm: EmbeddingNorm::None,
        epsilon: fields.positive("layer_norm_epsilon", 1e-6),
        embeddings: Embeddings::Shared,
        token_types: TokenTypes::None,
        scale_embedding: false,
        output: if tied { OutputProjection::Tied } else { OutputProjection::Own },
        scale_output: scaled,
        output_transform: None,
        output_bias: OutputBias::None,
        start_token: tokens[0],
        eos_token: tokens[1],
        pad_token: tokens[2],
    };
    config.check(&NAMES, |problem| fields.contradict(problem));
    config
}

/// The activation and whether it is gated: `feed_forward_proj`, or the two fields that transformers
/// derives from it.
fn feed_forward(family: T5, fields: &Fields) -> (Activation, bool) {
    let default = if family == T5::Original { "relu" } else { "gated-gelu" };
    let projection = fields.text("feed_forward_proj").unwrap_or(default);
    let (is_gated, act) = match projection.split_once('-') {
        None => (false, projection),
        // The first models of version 1.1 call the tanh approximation GELU.
        Some(("gated", "gelu")) => (true, "gelu_new"),
        Some(("gated", act)) if !act.contains('-') => (true, act),
        Some(_) => {
            fields.refuse(format!("feed_forward_proj {projection:?} is not supported; expected \"ACTIVATION\" or \"gated-ACTIVATION\""));
            return (Activation::Relu, false);
        }
    };
    let is_gated = fields.flag("is_gated_act", is_gated);
    match fields.text("dense_act_fn") {
        Some(act) => (fields.activation("dense_act_fn", act), is_gated),
        None => (fields.activation("feed_forward_proj", act), is_gated),
    }
}
