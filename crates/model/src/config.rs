//! The configuration of a Transformer.
//!
//! A [`Config`] is checked when it is made: sizes are positive and bounded, tokens are in the
//! vocabulary. Only `family` knows where the values come from (a family's `config.json`, a preset).

use crate::interface::{INPUT_FEATURES, PIXEL_VALUES};
use crate::{Activation, Error};
use serde::{Deserialize, Serialize};

/// The sizes and variants of a model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The encoder's input.
    pub front: Front,
    /// Number of tokens that the decoder reads and predicts.
    pub vocab: usize,
    /// Number of tokens that the encoder reads; equal to `vocab` if embeddings are shared.
    pub source_vocab: usize,
    /// Width of the hidden states.
    pub d_model: usize,
    /// Maximum length of source and target in tokens; `None` if positions have no limit. With an
    /// [`Config::encoder_model`] that of the target alone.
    pub max_positions: Option<usize>,
    /// The stacks that the model has.
    pub parts: Parts,
    /// The encoder's sizes; without layers in a decoder-only model.
    pub encoder: Stack,
    /// The encoder's own definition, if it is a different model from the decoder; the other fields
    /// are then the decoder's.
    pub encoder_model: Option<Box<EncoderModel>>,
    /// The decoder's sizes; without layers in an encoder-only model.
    pub decoder: Stack,
    /// The feed-forward's activation.
    pub activation: Activation,
    /// Whether the feed-forward's activation is multiplied by a second projection (Shazeer 2020).
    pub gated: bool,
    /// Which linear layers have a bias.
    pub biases: Biases,
    /// The attention score.
    pub score: AttentionScore,
    /// The number whose inverse root scales the products of [`AttentionScore::ScaledDot`], if it is
    /// not the width of a head.
    pub score_width: Option<f32>,
    /// Bounds of scores and logits.
    pub caps: Caps,
    /// The encoding of positions.
    pub positions: Positions,
    /// The base of rotary angles; 10,000 in Su et al. 2021.
    pub rotary_base: f32,
    /// The change of rotary angles for texts longer than those of the original training.
    pub rotary_scaling: RotaryScaling,
    /// For each layer the number of positions up to the query's own, and in the encoder also from
    /// it on, that it attends to (Beltagy et al. 2020, section 3.1); layers with `None` attend to
    /// all.
    pub windows: Vec<Option<usize>>,
    /// The kind of normalisation.
    pub norm: Norm,
    /// Whether the scale of a normalisation is its weight plus 1 (Gemma Team 2024).
    pub norm_from_one: bool,
    /// The placement of normalisations.
    pub placement: NormPlacement,
    /// Whether embeddings are normalised.
    pub embedding_norm: EmbeddingNorm,
    /// The constant added to the variance in normalisations.
    pub epsilon: f32,
    /// The embedding tables.
    pub embeddings: Embeddings,
    /// The width of the decoder's table, if it is not `d_model`: linear layers convert between
    /// them, before the first layer and after the last (Zhang et al. 2022).
    pub table_width: Option<usize>,
    /// Segment embeddings, added to those of tokens.
    pub token_types: TokenTypes,
    /// Whether embeddings are multiplied by `√d_model` (Vaswani et al. 2017, section 3.4).
    pub scale_embedding: bool,
    /// The weight of the output projection.
    pub output: OutputProjection,
    /// Whether the input of the output projection is multiplied by `d_model^-½` (Raffel et al.
    /// 2020, where it is tied).
    pub scale_output: bool,
    /// The activation of a linear layer with normalisation, `norm(act(W h + b))`, before the output
    /// projection of a model with a decoder (Devlin et al. 2019).
    pub output_transform: Option<Activation>,
    /// The bias of the logits.
    pub output_bias: OutputBias,
    /// The token that starts decoding.
    pub start_token: usize,
    /// The token that ends a sentence.
    pub eos_token: usize,
    /// The padding token.
    pub pad_token: usize,
}

/// Bounds that numbers approach, `cap · tanh(x / cap)` (Gemma Team 2024, section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Caps {
    /// Of attention scores, before masks are added.
    pub scores: Option<f32>,
    /// Of logits.
    pub logits: Option<f32>,
}

/// The encoder of a model that consists of two models.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderModel {
    /// Its definition.
    pub config: Config,
    /// Whether its states are projected to the decoder's width.
    pub projected: bool,
}

/// The encoder's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// Token ids.
    Tokens,
    /// Log-mel frames `[batch, n_mels, 2 · positions]`, by two convolutions (Radford et al. 2022).
    Frames {
        /// The number of mel filters.
        n_mels: usize,
        /// The number of the encoder's positions, each of two frames.
        positions: usize,
    },
    /// Pixels `[batch, channels, height, width]`, in patches (Dosovitskiy et al. 2021).
    Pixels(Patches),
}

impl Front {
    /// The name of the encoder's input and its sizes after the batch, unless it reads tokens; for
    /// images, those of the model's own size.
    pub fn features(&self) -> Option<(&'static str, Vec<usize>)> {
        match *self {
            Front::Tokens => None,
            Front::Frames { n_mels, positions } => {
                Some((INPUT_FEATURES, vec![n_mels, 2 * positions]))
            }
            Front::Pixels(Patches { channels, image: [height, width], .. }) => {
                Some((PIXEL_VALUES, vec![channels, height, width]))
            }
        }
    }

    /// The number of the encoder's positions for this input.
    pub fn positions(&self) -> Option<usize> {
        match self {
            Front::Tokens => None,
            Front::Frames { positions, .. } => Some(*positions),
            Front::Pixels(patches) => patches.positions(patches.image),
        }
    }
}

/// Images in patches, and the learned tokens before these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patches {
    /// The number of channels; 3 for RGB.
    pub channels: usize,
    /// The height and width of the images that the positions were learned for; for others they are
    /// interpolated.
    pub image: [usize; 2],
    /// The height and width of a patch.
    pub patch: [usize; 2],
    /// Whether a distillation token follows the class token (Touvron et al. 2021).
    pub distilled: bool,
}

impl Patches {
    /// The numbers of patches for the model's own image size: rows and columns.
    pub fn grid(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.image[axis] / self.patch[axis].max(1))
    }

    /// The number of tokens before the patches.
    pub fn n_tokens(&self) -> usize {
        1 + usize::from(self.distilled)
    }

    /// The numbers of patches of an image, rows and columns; `None` if they are not whole numbers
    /// after removing as many pixels as remain in the model's own size.
    pub fn grid_of(&self, image: [usize; 2]) -> Option<[usize; 2]> {
        let along = |axis: usize| {
            let (size, patch) =
                (image[axis].checked_sub(self.image[axis] % self.patch[axis])?, self.patch[axis]);
            (size > 0 && size.is_multiple_of(patch)).then_some(size / patch)
        };
        Some([along(0)?, along(1)?])
    }

    /// The number of positions of an image; `None` as for [`Patches::grid_of`].
    pub fn positions(&self, image: [usize; 2]) -> Option<usize> {
        let [rows, columns] = self.grid_of(image)?;
        Some(self.n_tokens() + rows * columns)
    }
}

/// The linear layers with a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Biases {
    /// None.
    None,
    /// All.
    All,
    /// All except the projections of keys: a bias there adds the same value to all scores of a
    /// query.
    ExceptKeys,
    /// All except the projections of queries, keys and values.
    ExceptInputs,
    /// Only the projections of queries, keys and values.
    OnlyInputs,
    /// Only those of attention.
    OnlyAttention,
}

impl From<bool> for Biases {
    fn from(all: bool) -> Self {
        if all { Self::All } else { Self::None }
    }
}

/// The stacks of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// An encoder and a decoder (Vaswani et al. 2017).
    Both,
    /// An encoder and its head (Devlin et al. 2019).
    Encoder(Head),
    /// A decoder without cross-attention, which continues its own tokens (Radford et al. 2018).
    Decoder,
}

/// The head of an encoder-only model, applied to the hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// None: the model returns the hidden states.
    None,
    /// `tanh(W h_0 + b)`, with `h_0` the first token's state; returned with the hidden states
    /// (Devlin et al. 2019).
    Pooler,
    /// A score for each class of a text: `W_2 act(W_1 h_0 + b_1) + b_2`.
    Text {
        /// The number of classes.
        labels: usize,
        /// The activation.
        activation: Activation,
    },
    /// A score for each class of an image: `W h_0 + b`, or the mean of it and `W' h_1 + b'`, with
    /// the states of the class token and the distillation token (Touvron et al. 2021).
    Image {
        /// The number of classes.
        labels: usize,
        /// Whether there are two classifiers.
        distilled: bool,
    },
    /// A score for each class of each token: `W h + b`.
    Tokens {
        /// The number of classes.
        labels: usize,
    },
    /// A score for each token of the vocabulary at each position: the output projection of
    /// `norm(act(W h + b))`.
    Vocabulary {
        /// The activation.
        activation: Activation,
    },
}

/// Segment embeddings (Devlin et al. 2019, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenTypes {
    /// None.
    None,
    /// A table of this size, indexed by an input.
    Given(usize),
    /// A table of this size; every token has the first row.
    First(usize),
}

/// The sizes of a stack of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The number of layers.
    pub n_layers: usize,
    /// The number of attention heads per layer.
    pub heads: usize,
    /// The number of heads of keys and values, each of which serves a group of queries' heads
    /// (Ainslie et al. 2023); `heads` in the paper.
    pub key_heads: usize,
    /// Width of a head.
    pub d_k: usize,
    /// Width inside the feed-forward.
    pub d_ff: usize,
}

/// Encodings of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// Sines and cosines of geometric frequencies, added to the embeddings (Vaswani et al.
    /// 2017, section 3.5).
    Sinusoidal(Sinusoids),
    /// A learned row for each position, added to the embeddings.
    Learned {
        /// Number of rows before that of position 0.
        offset: usize,
    },
    /// fairseq's sinusoids: positions count the tokens that are not padding, from `pad_token + 1`;
    /// padding has none.
    Counted,
    /// A learned row for each position, added to the embeddings; positions are counted as in
    /// [`Positions::Counted`] (Liu et al. 2019).
    LearnedCounted {
        /// The number of buckets and the largest distance of [`Positions::Relative`], which the
        /// model also adds (Song et al. 2020).
        relative: Option<[usize; 2]>,
    },
    /// A learned bias per head and bucket of distances, added to the scores of self-attention (Shaw
    /// et al. 2018, in the form of Raffel et al. 2020, section 2.1).
    Relative {
        /// Number of buckets. The encoder uses half of them for keys after the query, half for
        /// keys before it.
        buckets: usize,
        /// All distances from this one on share a bucket.
        max_distance: usize,
        /// The layers with a table of biases.
        of: RelativeLayers,
    },
    /// Queries and keys of self-attention rotated by an angle per position (Su et al.
    /// 2021, section 3.2).
    Rotary,
    /// A penalty on self-attention scores, proportional to the distance, with a fixed slope per
    /// head (Press et al. 2022, section 3).
    Alibi,
}

/// Changes of rotary angles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RotaryScaling {
    /// None.
    None,
    /// Angles are divided by `factor` (Chen et al. 2023).
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Long waves are divided by `factor`, short ones kept, those in between mixed (Llama Team
    /// 2024).
    Llama3 {
        /// The divisor.
        factor: f64,
        /// Waves longer than `positions / low` are long.
        low: f64,
        /// Waves shorter than `positions / high` are short.
        high: f64,
        /// The number of positions of the original training.
        positions: f64,
    },
    /// The same, by the number of turns of a wave within the positions; cosines and sines are
    /// multiplied by `magnitude` (Peng et al. 2024).
    Yarn {
        /// The divisor.
        factor: f64,
        /// The factor of cosines and sines.
        magnitude: f64,
        /// Waves with more turns are short.
        fast: f64,
        /// Waves with fewer turns are long.
        slow: f64,
        /// The number of positions of the original training.
        positions: f64,
        /// Whether the limits are rounded to whole pairs of columns.
        rounded: bool,
    },
}

/// The names of [`Positions`] in configuration files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PositionKind {
    /// Sines and cosines added to the embeddings (Vaswani et al. 2017, section 3.5).
    Sinusoidal,
    /// A learned row for each position.
    Learned,
    /// A learned number for each head and range of distances (Raffel et al. 2020).
    Relative,
    /// Queries and keys rotated by an angle for each position (Su et al. 2021).
    Rotary,
    /// Scores reduced in proportion to the distance (Press et al. 2022).
    Alibi,
}

/// Scores of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionScore {
    /// `q·k / √d_k` (Vaswani et al. 2017, eq. 1).
    ScaledDot,
    /// `q·k` (Luong et al. 2015, section 3.1).
    Dot,
    /// `v·tanh(q + k)`, with a learned `v` for each head (Bahdanau et al. 2015, appendix A.1.2; `q`
    /// and `k` are projected).
    Additive,
}

/// The order of sines and cosines in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sinusoids {
    /// Alternating, as in the paper.
    Interleaved,
    /// All sines, then all cosines, as in Marian.
    Halves,
}

/// The layers with a table of relative biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelativeLayers {
    /// The first layer of a stack; the others use its table.
    First,
    /// Every layer.
    Each,
}

/// Kinds of normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// By mean and variance, with scale and bias (Ba et al. 2016).
    Layer,
    /// By the root of the mean square, with a scale (Zhang & Sennrich 2019).
    Rms,
}

/// The placement of normalisations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormPlacement {
    /// `Norm(x + Sublayer(x))` (Vaswani et al. 2017, section 3.1).
    Post,
    /// `x + Sublayer(Norm(x))`, with a final normalisation after the stack (Xiong et al. 2020).
    Pre,
    /// `x + Norm(Sublayer(Norm(x)))`, with a final normalisation after the stack (Ding et al. 2021,
    /// section 3.2).
    Around,
}

/// The normalisation of embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingNorm {
    /// Not normalised.
    None,
    /// After positions are added.
    Sum,
    /// In the encoder after positions are added, in the decoder before they are.
    DecoderTokens,
}

/// The embedding tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Embeddings {
    /// One table for both stacks: `shared.weight`.
    Shared,
    /// A table per stack: `encoder.embed_tokens.weight` and `decoder.embed_tokens.weight`.
    Separate,
}

/// The weight of the output projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputProjection {
    /// The decoder's embedding table (Press & Wolf 2017).
    Tied,
    /// The encoder's embedding table.
    Source,
    /// `lm_head.weight`.
    Own,
}

/// The bias of the logits of a model with a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputBias {
    /// Logits are products alone.
    None,
    /// `final_logits_bias`, which training leaves as it is (Lewis et al. 2020).
    Fixed,
    /// `lm_head.bias` (Devlin et al. 2019).
    Learned,
}

impl Config {
    /// The encoder's definition.
    pub fn of_encoder(&self) -> &Self {
        self.encoder_model.as_ref().map_or(self, |encoder| &encoder.config)
    }

    /// The maximum number of tokens of a source; `None` if its positions have no limit.
    pub fn source_positions(&self) -> Option<usize> {
        self.of_encoder().max_positions
    }

    /// The token that pads sources, where `pad_token` pads targets: a model of two models of text has
    /// two vocabularies.
    pub fn source_pad(&self, pad_token: i64) -> i64 {
        match &self.encoder_model {
            Some(encoder) if encoder.config.front == Front::Tokens => {
                encoder.config.pad_token as i64
            }
            _ => pad_token,
        }
    }

    /// The number of rows of the position table; 0 without one.
    pub(crate) fn position_rows(&self) -> usize {
        let positions = self.max_positions.unwrap_or(0);
        match self.positions {
            Positions::Sinusoidal(_) | Positions::Rotary => positions,
            Positions::Learned { offset } => positions + offset,
            // The row of position 0 follows that of the padding token.
            Positions::Counted | Positions::LearnedCounted { .. } => positions + self.pad_token + 1,
            Positions::Relative { .. } | Positions::Alibi => 0,
        }
    }

    /// Removes a pooler that is not in the checkpoint.
    pub(crate) fn forget_pooler(&mut self) {
        if self.parts == Parts::Encoder(Head::Pooler) {
            self.parts = Parts::Encoder(Head::None);
        }
    }

    /// Fails if the model has no decoder.
    ///
    /// # Errors
    /// If the model is encoder-only.
    pub fn require_decoder(&self) -> Result<(), Error> {
        match self.parts {
            Parts::Both | Parts::Decoder => Ok(()),
            Parts::Encoder(_) => Err(Error::encoder_alone()),
        }
    }

    /// Fails if the model lacks an encoder or a decoder.
    ///
    /// # Errors
    /// If the model is encoder-only or decoder-only.
    pub fn require_both(&self) -> Result<(), Error> {
        match self.parts {
            Parts::Both => Ok(()),
            Parts::Encoder(_) => Err(Error::encoder_alone()),
            Parts::Decoder => Err(Error::decoder_alone()),
        }
    }

    /// Fails if attention does not support caches that beams share, whose operator computes scores
    /// as products.
    ///
    /// # Errors
    /// If the score is additive.
    pub fn require_shared_caches(&self) -> Result<(), Error> {
        if self.score != AttentionScore::Additive {
            return Ok(());
        }
        let message = "attention_score \"additive\" has no form over caches that beams share (layout shared-cache), whose operator \
             compares by products; use the layout cognate or hf";
        Err(Error::new(crate::ErrorKind::Config, "config.json", message))
    }

    /// The window of a layer.
    pub(crate) fn window(&self, layer_index: usize) -> Option<usize> {
        self.windows.get(layer_index).copied().flatten()
    }

    /// The same model without the decoder.
    pub(crate) fn encoder_alone(self) -> Self {
        let decoder = Stack { n_layers: 0, ..self.encoder };
        Self {
            parts: Parts::Encoder(Head::None),
            vocab: self.source_vocab,
            decoder,
            output_bias: OutputBias::None,
            ..self
        }
    }

    /// Reports everything that would make the graphs invalid to `wrong`, with the family's
    /// `names` of sizes.
    pub(crate) fn check(&self, names: &SizeNames, wrong: impl Fn(String)) {
        let (encoder, decoder) = ((&names.encoder, self.encoder), (&names.decoder, self.decoder));
        let stacks = match self.parts {
            Parts::Both => vec![encoder, decoder],
            Parts::Encoder(_) => vec![encoder],
            Parts::Decoder => vec![decoder],
        };
        let mut sizes = vec![
            ("vocab_size", self.vocab),
            (names.source_vocab, self.source_vocab),
            (names.d_model, self.d_model),
        ];
        if let Parts::Encoder(
            Head::Text { labels, .. } | Head::Image { labels, .. } | Head::Tokens { labels },
        ) = self.parts
        {
            sizes.push(("num_labels", labels));
        }
        if let TokenTypes::Given(types) | TokenTypes::First(types) = self.token_types {
            sizes.push(("type_vocab_size", types));
        }
        sizes.extend(self.max_positions.map(|positions| (names.positions, positions)));
        for (names, stack) in &stacks {
            sizes.extend([
                (names.n_layers, stack.n_layers),
                (names.heads, stack.heads),
                (names.d_k, stack.d_k),
                (names.d_ff, stack.d_ff),
            ]);
        }
        sizes.dedup();
        let mut fits = true;
        for (field, size) in sizes {
            let largest = match field {
                _ if field == names.d_model => LARGEST_WIDTH,
                _ if field == names.positions => MOST_POSITIONS,
                _ => LARGEST_SIZE,
            };
            if !(1..=largest).contains(&size) {
                wrong(format!("{field}: expected 1 to {largest}, found {size}"));
                fits = false;
            }
        }
        for (names, stack) in stacks {
            if (MOST_LAYERS + 1..=LARGEST_SIZE).contains(&stack.n_layers) {
                wrong(format!(
                    "{}: expected at most {MOST_LAYERS}, found {}",
                    names.n_layers, stack.n_layers
                ));
            }
            if fits && !(stack.key_heads > 0 && stack.heads.is_multiple_of(stack.key_heads)) {
                wrong(format!(
                    "{} {} is not divisible by num_key_value_heads {}",
                    names.heads, stack.heads, stack.key_heads
                ));
            }
            if fits && stack.heads * stack.d_k > LARGEST_SIZE {
                wrong(format!(
                    "{} {} times {} {} is more than {LARGEST_SIZE}",
                    names.heads, stack.heads, names.d_k, stack.d_k
                ));
            }
        }
        self.check_positions(names, &wrong);
        let both = self.vocab.min(self.source_vocab);
        let mut tokens = vec![("pad_token_id", self.pad_token, both)];
        let start =
            if self.parts == Parts::Decoder { "bos_token_id" } else { "decoder_start_token_id" };
        if self.require_decoder().is_ok() {
            tokens = vec![
                (start, self.start_token, self.vocab),
                ("eos_token_id", self.eos_token, both),
                tokens[0],
            ];
        }
        for (field, token, vocab) in tokens {
            if token >= vocab {
                wrong(format!("{field} {token} is outside the vocabulary of {vocab}"));
            }
        }
    }

    fn check_positions(&self, names: &SizeNames, wrong: impl Fn(String)) {
        match self.positions {
            // The frequencies are `10000^(-i / (d_model/2 - 1))`.
            Positions::Counted if self.d_model < 4 => {
                wrong(format!(
                    "d_model: expected at least 4 for sinusoidal positions, found {}",
                    self.d_model
                ));
            }
            Positions::Relative { buckets, .. } if !(4..=LARGEST_DISTANCE).contains(&buckets) => {
                wrong(format!(
                    "relative_attention_num_buckets: expected 4 to {LARGEST_DISTANCE}, found {buckets}"
                ));
            }
            // Half of the buckets have one distance each; the others grow logarithmically.
            Positions::Relative { buckets, max_distance, .. }
                if !(buckets / 2 + 1..=LARGEST_DISTANCE).contains(&max_distance) =>
            {
                let least = buckets / 2 + 1;
                wrong(format!(
                    "relative_attention_max_distance: expected {least} to {LARGEST_DISTANCE} for {buckets} buckets, found {max_distance}"
                ));
            }
            // Elements of a head are rotated in pairs.
            Positions::Rotary => {
                for (names, stack) in
                    [(&names.encoder, self.encoder), (&names.decoder, self.decoder)]
                {
                    if !stack.d_k.is_multiple_of(2) {
                        wrong(format!(
                            "{} {}: expected an even head width for rotary positions, found {}",
                            names.heads, stack.heads, stack.d_k
                        ));
                    }
                }
            }
            Positions::Sinusoidal(_)
            | Positions::Learned { .. }
            | Positions::Counted
            | Positions::LearnedCounted { .. }
            | Positions::Relative { .. }
            | Positions::Alibi => {}
        }
    }
}

/// The names of sizes in a family's `config.json`.
pub(crate) struct SizeNames {
    pub(crate) source_vocab: &'static str,
    pub(crate) d_model: &'static str,
    pub(crate) positions: &'static str,
    pub(crate) encoder: StackNames,
    pub(crate) decoder: StackNames,
}

/// The names of a stack's sizes in a family's `config.json`.
#[derive(Clone, Copy)]
pub(crate) struct StackNames {
    pub(crate) n_layers: &'static str,
    pub(crate) heads: &'static str,
    pub(crate) d_k: &'static str,
    pub(crate) d_ff: &'static str,
}

/// The base of rotary angles in Su et al. 2021.
pub(crate) const ROTARY_BASE: f32 = 10_000.0;

/// Above the sizes of all published models; products of two such sizes cannot overflow.
const LARGEST_SIZE: usize = 1 << 24;

/// The limit of tables that are computed, not stored: without it a small file could request huge
/// ones.
const LARGEST_WIDTH: usize = 1 << 16;
pub(crate) const MOST_POSITIONS: usize = 1 << 17;

/// The maximum number of layers.
pub(crate) const MOST_LAYERS: usize = 1024;

/// The table of distances is written into the graph.
const LARGEST_DISTANCE: usize = 1 << 16;
