//! What distinguishes one Transformer from another.
//!
//! A [`Config`] has been checked when it exists: heads divide widths, sizes are positive, tokens lie in the vocabulary.
//! Where the values come from (a family's `config.json`, a preset) is known to `family.rs` alone.

use crate::{Error, ErrorKind};

/// The sizes and choices of one model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Rows of the embedding that encoder, decoder and output share.
    pub vocab: usize,
    /// Width of the hidden states.
    pub d_model: usize,
    /// The longest source and target, in tokens.
    pub max_positions: usize,
    /// The encoder's layers.
    pub encoder: Stack,
    /// The decoder's layers.
    pub decoder: Stack,
    /// The feed-forward's non-linearity.
    pub activation: Activation,
    /// How positions are told apart.
    pub positions: Positions,
    /// Whether embeddings are multiplied by `√d_model` (Vaswani et al. 2017, section 3.4).
    pub scale_embedding: bool,
    /// Whether a learned bias is added to the logits.
    pub output_bias: bool,
    /// Added to the variance in layer normalisation.
    pub epsilon: f32,
    /// The token that decoding starts from.
    pub start_token: usize,
    /// The token that ends a sentence.
    pub eos_token: usize,
    /// The token that fills a batch's short sentences.
    pub pad_token: usize,
}

/// A stack of equal layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The number of layers.
    pub n_layers: usize,
    /// Attention heads in a layer.
    pub heads: usize,
    /// Width inside the feed-forward.
    pub d_ff: usize,
}

/// Non-linearities of the feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `x Φ(x)`, with Φ the normal distribution (Hendrycks & Gimpel 2016), computed by the error function.
    Gelu,
    /// `x σ(x)`, also called SiLU.
    Swish,
    /// `tanh(x)`
    Tanh,
}

/// How positions are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// Sines and cosines of geometric frequencies (Vaswani et al. 2017, section 3.5).
    Sinusoidal(Sinusoids),
    /// A learned row for each position.
    Learned,
}

/// Where sines and cosines stand in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sinusoids {
    /// Alternating, as the paper writes them.
    Interleaved,
    /// All sines, then all cosines, as Marian and fairseq keep them.
    Halves,
}

impl Config {
    /// Reads the text of a `config.json` of a supported family.
    ///
    /// # Errors
    /// If the text is malformed, contradicts itself or asks for what is not supported; the message names the field.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        crate::family::parse(text).map(|(_, config)| config)
    }

    /// Checks what every graph relies on. Field names are those of `config.json`.
    pub(crate) fn checked(self) -> Result<Self, Error> {
        let wrong = |message: String| Err(Error::new(ErrorKind::Config, "config.json", message));
        let sizes = [
            ("vocab_size", self.vocab),
            ("d_model", self.d_model),
            ("max_position_embeddings", self.max_positions),
            ("encoder_layers", self.encoder.n_layers),
            ("decoder_layers", self.decoder.n_layers),
            ("encoder_attention_heads", self.encoder.heads),
            ("decoder_attention_heads", self.decoder.heads),
            ("encoder_ffn_dim", self.encoder.d_ff),
            ("decoder_ffn_dim", self.decoder.d_ff),
        ];
        for (field, size) in sizes {
            if !(1..=LARGEST_SIZE).contains(&size) {
                return wrong(format!("{field} wants 1 to {LARGEST_SIZE}, found {size}"));
            }
        }
        for (field, layers) in [("encoder_layers", self.encoder.n_layers), ("decoder_layers", self.decoder.n_layers)] {
            if layers > MOST_LAYERS {
                return wrong(format!("{field} wants at most {MOST_LAYERS}, found {layers}"));
            }
        }
        for (field, heads) in [("encoder_attention_heads", self.encoder.heads), ("decoder_attention_heads", self.decoder.heads)] {
            if !self.d_model.is_multiple_of(heads) {
                return wrong(format!("d_model {} is not divisible by {field} {heads}", self.d_model));
            }
        }
        if matches!(self.positions, Positions::Sinusoidal(_)) && !self.d_model.is_multiple_of(2) {
            return wrong(format!("d_model wants an even number for sinusoidal positions, found {}", self.d_model));
        }
        let tokens = [("decoder_start_token_id", self.start_token), ("eos_token_id", self.eos_token), ("pad_token_id", self.pad_token)];
        for (field, token) in tokens {
            if token >= self.vocab {
                return wrong(format!("{field} {token} is outside the vocabulary of {}", self.vocab));
            }
        }
        Ok(self)
    }
}

/// No size of a published model comes near; beyond it products of two sizes could overflow.
const LARGEST_SIZE: usize = 1 << 24;

/// The deepest stack that graphs are built for.
const MOST_LAYERS: usize = 1024;
