//! `config.json` of the families derived from BART, and the properties that it does not contain.

use super::Bart;
use super::fields::{Fields, Tokens};
use crate::config::{ROTARY_BASE, SizeNames, StackNames};
use crate::{
    Activation, AttentionScore, Biases, Caps, Config, EmbeddingNorm, Embeddings, Front, Norm,
    NormPlacement, OutputBias, OutputProjection, Parts, Positions, RotaryScaling, Sinusoids, Stack,
    TokenTypes,
};

/// Properties of a family that its `config.json` does not contain.
struct Implied {
    placement: NormPlacement,
    embedding_norm: EmbeddingNorm,
    positions: Positions,
    output_bias: OutputBias,
    /// Defaults of `scale_embedding` and `activation_function`.
    scale_embedding: bool,
    activation: Activation,
    tokens: Tokens,
}

impl Bart {
    fn implied(self) -> Implied {
        use {EmbeddingNorm::*, NormPlacement::*};
        let learned = |offset| Positions::Learned { offset };
        let halves = Positions::Sinusoidal(Sinusoids::Halves);
        let (placement, embedding_norm, positions) = match self {
            Bart::Original | Bart::Plbart => (Post, Sum, learned(2)),
            Bart::Blenderbot => (Pre, None, learned(0)),
            Bart::BlenderbotSmall => (Post, DecoderTokens, learned(0)),
            Bart::M2m100 => (Pre, None, Positions::Counted),
            Bart::Marian => (Post, None, halves),
            Bart::Mbart => (Pre, Sum, learned(2)),
            Bart::Pegasus => (Pre, None, halves),
            Bart::Trocr => (Post, Sum, learned(2)),
        };
        // Start, end, padding.
        let (start, eos, pad) = match self {
            Bart::Original | Bart::M2m100 | Bart::Trocr => (Some(2), Some(2), Some(1)),
            Bart::Blenderbot | Bart::BlenderbotSmall => (Some(1), Some(2), Some(0)),
            Bart::Marian => (Some(58_100), Some(0), Some(58_100)),
            Bart::Mbart | Bart::Plbart => (Option::None, Some(2), Some(1)),
            Bart::Pegasus => (Some(0), Some(1), Some(0)),
        };
        Implied {
            tokens: Tokens {
                start,
                bos: if matches!(self, Bart::Mbart | Bart::Plbart) {
                    Some(0)
                } else {
                    Option::None
                },
                eos,
                pad,
            },
            placement,
            embedding_norm,
            positions,
            output_bias: match self {
                Bart::M2m100 | Bart::Trocr => OutputBias::None,
                _ => OutputBias::Fixed,
            },
            scale_embedding: matches!(self, Bart::M2m100 | Bart::Plbart),
            activation: if self == Bart::M2m100 { Activation::Relu } else { Activation::Gelu },
        }
    }
}

/// The names of sizes, also of Cognate's own models.
pub(super) const NAMES: SizeNames = SizeNames {
    source_vocab: "vocab_size",
    d_model: "d_model",
    positions: "max_position_embeddings",
    encoder: StackNames {
        n_layers: "encoder_layers",
        heads: "encoder_attention_heads",
        d_k: "d_model",
        d_ff: "encoder_ffn_dim",
    },
    decoder: StackNames {
        n_layers: "decoder_layers",
        heads: "decoder_attention_heads",
        d_k: "d_model",
        d_ff: "decoder_ffn_dim",
    },
};

pub(super) fn config(family: Bart, fields: &Fields) -> Config {
    let mut implied = family.implied();
    let is_decoder = family == Bart::Trocr;
    let names = if is_decoder { SizeNames { encoder: NAMES.decoder, ..NAMES } } else { NAMES };
    if is_decoder && !fields.flag("use_learned_position_embeddings", true) {
        implied.positions = Positions::Counted;
    }
    if is_decoder && !fields.flag("layernorm_embedding", true) {
        implied.embedding_norm = EmbeddingNorm::None;
    }
    let d_model = fields.size("d_model");
    let source_vocab = fields.size("vocab_size");
    let tied = fields.flag("tie_word_embeddings", true);
    let (embeddings, vocab) = match family {
        Bart::Marian => marian_embeddings(fields, source_vocab),
        Bart::Original | Bart::M2m100 | Bart::Mbart | Bart::Plbart if !tied => {
            (Embeddings::Separate, source_vocab)
        }
        _ => (Embeddings::Shared, source_vocab),
    };
    let tokens = fields.tokens(implied.tokens);
    let max_positions = match (fields.size("max_position_embeddings"), implied.positions) {
        // transformers extends this table on demand; this is the maximum of the published models.
        (positions, Positions::Counted) => positions.max(1024),
        (positions, _) => positions,
    };
    let config = Config {
        front: Front::Tokens,
        encoder_model: None,
        vocab,
        source_vocab,
        d_model,
        max_positions: Some(max_positions),
        parts: Parts::Both,
        encoder: stack(fields, d_model, &names.encoder),
        decoder: stack(fields, d_model, &NAMES.decoder),
        activation: match fields.text("activation_function") {
            Some(name) => fields.activation("activation_function", name),
            None => implied.activation,
        },
        gated: false,
        biases: Biases::All,
        score: AttentionScore::ScaledDot,
        score_width: None,
        caps: Caps::default(),
        positions: implied.positions,
        rotary_base: ROTARY_BASE,
        rotary_scaling: RotaryScaling::None,
        table_width: None,
        windows: Vec::new(),
        norm: Norm::Layer,
        norm_from_one: false,
        placement: implied.placement,
        embedding_norm: implied.embedding_norm,
        epsilon: 1e-5,
        embeddings,
        token_types: TokenTypes::None,
        scale_embedding: fields.flag("scale_embedding", implied.scale_embedding),
        output: if tied { OutputProjection::Tied } else { OutputProjection::Own },
        scale_output: false,
        output_transform: None,
        output_bias: implied.output_bias,
        start_token: tokens[0],
        eos_token: tokens[1],
        pad_token: tokens[2],
    };
    config.check(&names, |problem| fields.contradict(problem));
    config
}

/// A stack whose heads divide `d_model`.
pub(super) fn stack(fields: &Fields, d_model: usize, names: &StackNames) -> Stack {
    Stack {
        n_layers: fields.size(names.n_layers),
        heads: fields.size(names.heads),
        key_heads: fields.size(names.heads),
        d_k: fields.width_of_heads(d_model, names),
        d_ff: fields.size(names.d_ff),
    }
}

/// Marian's embedding tables: one, or one per language.
fn marian_embeddings(fields: &Fields, vocab: usize) -> (Embeddings, usize) {
    let target = fields.optional_size("decoder_vocab_size").unwrap_or(vocab);
    if !fields.flag("share_encoder_decoder_embeddings", true) {
        return (Embeddings::Separate, target);
    }
    if target != vocab {
        fields.contradict(format!(
            "decoder_vocab_size: expected vocab_size {vocab} with shared embeddings, found {target}"
        ));
    }
    (Embeddings::Shared, vocab)
}
