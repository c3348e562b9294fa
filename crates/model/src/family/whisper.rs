//! `config.json` of Whisper (Radford et al. 2022).

use super::bart::{NAMES, stack};
use super::fields::{Fields, Tokens};
use crate::config::{ROTARY_BASE, SizeNames};
use crate::{
    AttentionScore, Biases, Caps, Config, EmbeddingNorm, Embeddings, Front, Norm, NormPlacement,
    OutputBias, OutputProjection, Parts, Positions, RotaryScaling, TokenTypes,
};

/// The largest number of mel filters; published models have 80 or 128.
const MOST_MELS: usize = 512;

pub(super) fn config(fields: &Fields) -> Config {
    let names = SizeNames { positions: "max_target_positions", ..NAMES };
    let (d_model, vocab) = (fields.size("d_model"), fields.size("vocab_size"));
    if let Some(class) = fields.architecture().filter(|class| {
        !["ForConditionalGeneration", "Model", "Encoder"]
            .iter()
            .any(|kind| class.strip_prefix("Whisper") == Some(kind))
    }) {
        fields.refuse(format!(
            "architectures {class:?} is not supported; expected WhisperForConditionalGeneration"
        ));
    }
    let [start_token, eos_token, pad_token] = fields.tokens(Tokens {
        start: Some(50_257),
        bos: None,
        eos: Some(50_256),
        pad: Some(50_256),
    });
    let (n_mels, positions) = (fields.size("num_mel_bins"), fields.size("max_source_positions"));
    for (field, size, largest) in [
        ("num_mel_bins", n_mels, MOST_MELS),
        ("max_source_positions", positions, crate::config::MOST_POSITIONS),
    ] {
        if !(1..=largest).contains(&size) {
            fields.contradict(format!("{field}: expected 1 to {largest}, found {size}"));
        }
    }
    let activation = fields
        .activation("activation_function", fields.text("activation_function").unwrap_or("gelu"));
    let config = Config {
        front: Front::Frames {
            n_mels: n_mels.min(MOST_MELS),
            positions: positions.min(crate::config::MOST_POSITIONS),
        },
        encoder_model: None,
        vocab,
        source_vocab: vocab,
        d_model,
        max_positions: Some(fields.size("max_target_positions")),
        parts: Parts::Both,
        encoder: stack(fields, d_model, &NAMES.encoder),
        decoder: stack(fields, d_model, &NAMES.decoder),
        activation,
        gated: false,
        biases: Biases::ExceptKeys,
        score: AttentionScore::ScaledDot,
        score_width: None,
        caps: Caps::default(),
        positions: Positions::Learned { offset: 0 },
        rotary_base: ROTARY_BASE,
        rotary_scaling: RotaryScaling::None,
        table_width: None,
        windows: Vec::new(),
        norm: Norm::Layer,
        norm_from_one: false,
        placement: NormPlacement::Pre,
        embedding_norm: EmbeddingNorm::None,
        epsilon: 1e-5,
        embeddings: Embeddings::Separate,
        token_types: TokenTypes::None,
        // transformers reads `scale_embedding` and does not use it.
        scale_embedding: false,
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
    config.check(&names, |problem| fields.contradict(problem));
    config
}
