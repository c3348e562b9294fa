//! What distinguishes one Transformer from another.
//!
//! A [`Config`] has been checked when it exists: sizes are positive and bounded, tokens lie in the vocabulary. Where the
//! values come from (a family's `config.json`, a preset) is known to `family` alone.

use crate::{Activation, Error};

/// The sizes and choices of one model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Tokens that the decoder reads and predicts.
    pub vocab: usize,
    /// Tokens that the encoder reads; equal to `vocab` where embeddings are shared.
    pub source_vocab: usize,
    /// Width of the hidden states.
    pub d_model: usize,
    /// The longest source and target, in tokens; `None` where positions have no limit.
    pub max_positions: Option<usize>,
    /// The stacks that the model has.
    pub parts: Parts,
    /// The encoder's layers.
    pub encoder: Stack,
    /// The decoder's layers; none in an encoder alone.
    pub decoder: Stack,
    /// The feed-forward's non-linearity.
    pub activation: Activation,
    /// Whether the feed-forward's non-linearity is multiplied by a second projection (Shazeer 2020).
    pub gated: bool,
    /// Whether linear layers add a bias.
    pub biases: bool,
    /// How attention compares queries with keys.
    pub score: AttentionScore,
    /// How positions are told apart.
    pub positions: Positions,
    /// The kind of normalisation.
    pub norm: Norm,
    /// Where layers normalise.
    pub placement: NormPlacement,
    /// Whether embeddings are normalised.
    pub embedding_norm: EmbeddingNorm,
    /// Added to the variance in normalisations.
    pub epsilon: f32,
    /// Which embedding tables there are.
    pub embeddings: Embeddings,
    /// Embeddings of segments, added to those of the encoder's tokens.
    pub token_types: TokenTypes,
    /// Whether embeddings are multiplied by `√d_model` (Vaswani et al. 2017, section 3.4).
    pub scale_embedding: bool,
    /// The weight of the output projection.
    pub output: OutputProjection,
    /// Whether the output projection reads its input multiplied by `d_model^-½` (Raffel et al. 2020, where it is tied).
    pub scale_output: bool,
    /// Whether a learned bias is added to the logits.
    pub output_bias: bool,
    /// The token that decoding starts from.
    pub start_token: usize,
    /// The token that ends a sentence.
    pub eos_token: usize,
    /// The token that fills a batch's short sentences.
    pub pad_token: usize,
}

/// The stacks of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// An encoder and a decoder (Vaswani et al. 2017).
    Both,
    /// An encoder, and what reads its states (Devlin et al. 2019).
    Encoder(Head),
}

/// What reads the states of an encoder alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Nothing: the model gives the states.
    None,
    /// `tanh(W h_0 + b)`, with `h_0` the first token's state; the model gives it beside the states (Devlin et al. 2019).
    Pooler,
    /// A score for each class of the text: `W_2 act(W_1 h_0 + b_1) + b_2`.
    Text {
        /// The number of classes.
        labels: usize,
        /// The non-linearity.
        activation: Activation,
    },
    /// A score for each class of each token: `W h + b`.
    Tokens {
        /// The number of classes.
        labels: usize,
    },
    /// A score for each token that may stand at a position: the output projection of `norm(act(W h + b))`.
    Vocabulary {
        /// The non-linearity.
        activation: Activation,
    },
}

/// Embeddings that tell segments of the encoder's input apart (Devlin et al. 2019, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenTypes {
    /// There are none.
    None,
    /// One of so many for each token, by an input of its own.
    Given(usize),
    /// The first of so many for every token.
    First(usize),
}

/// A stack of equal layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The number of layers.
    pub n_layers: usize,
    /// Attention heads in a layer.
    pub heads: usize,
    /// Width of a head.
    pub d_k: usize,
    /// Width inside the feed-forward.
    pub d_ff: usize,
}

/// How positions are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// Sines and cosines of geometric frequencies, added to the embeddings (Vaswani et al. 2017, section 3.5).
    Sinusoidal(Sinusoids),
    /// A learned row for each position, added to the embeddings.
    Learned {
        /// Rows of the table before that of position 0.
        offset: usize,
    },
    /// The sinusoids of fairseq: positions count the tokens that are not padding, from `pad_token + 1` on; padding has
    /// none.
    Counted,
    /// A learned row for each position, added to the embeddings; positions are counted as in [`Positions::Counted`] (Liu et
    /// al. 2019).
    LearnedCounted {
        /// The buckets and the largest distance of numbers as those of [`Positions::Relative`], which the model adds as well
        /// (Song et al. 2020).
        relative: Option<[usize; 2]>,
    },
    /// A learned number for each head and each range of distances, added to the scores of self-attention (Shaw et al.
    /// 2018, in the form of Raffel et al. 2020, section 2.1).
    Relative {
        /// Ranges of distances; in the encoder half of them for what follows, half for what precedes.
        buckets: usize,
        /// From this distance on, all are one range.
        max_distance: usize,
        /// Which layers have numbers of their own.
        of: RelativeLayers,
    },
    /// Queries and keys of self-attention turned by an angle for each position (Su et al. 2021, section 3.2).
    Rotary,
    /// Scores of self-attention lowered in proportion to the distance, in each head at a rate of its own (Press et al. 2022,
    /// section 3).
    Alibi,
}

/// How attention compares queries with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionScore {
    /// `q·k / √d_k` (Vaswani et al. 2017, eq. 1).
    ScaledDot,
    /// `q·k` (Luong et al. 2015, section 3.1).
    Dot,
    /// `v·tanh(q + k)`, with a learned `v` for each head (Bahdanau et al. 2015, appendix A.1.2; `q` and `k` are projected).
    Additive,
}

/// Where sines and cosines stand in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sinusoids {
    /// Alternating, as the paper writes them.
    Interleaved,
    /// All sines, then all cosines, as Marian keeps them.
    Halves,
}

/// Which layers have relative positions of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelativeLayers {
    /// The first of a stack, whose numbers the others use too.
    First,
    /// Each.
    Each,
}

/// Kinds of normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Mean and variance, with scale and bias (Ba et al. 2016).
    Layer,
    /// Root of the mean square, with a scale (Zhang & Sennrich 2019).
    Rms,
}

/// Where layers normalise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlacement {
    /// `Norm(x + Sublayer(x))` (Vaswani et al. 2017, section 3.1).
    Post,
    /// `x + Sublayer(Norm(x))`, and once more after the stack (Xiong et al. 2020).
    Pre,
}

/// Whether and where embeddings are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingNorm {
    /// They are not.
    None,
    /// After positions are added.
    Sum,
    /// In the encoder after positions are added, in the decoder before.
    DecoderTokens,
}

/// Which embedding tables there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Embeddings {
    /// One for encoder and decoder: `shared.weight`.
    Shared,
    /// One each: `encoder.embed_tokens.weight` and `decoder.embed_tokens.weight`.
    Separate,
}

/// The weight of the output projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputProjection {
    /// The decoder's embedding (Press & Wolf 2017).
    Tied,
    /// One of its own: `lm_head.weight`.
    Own,
}

impl Config {
    /// Rows of a table of positions; 0 where there is none.
    pub(crate) fn position_rows(&self) -> usize {
        let positions = self.max_positions.unwrap_or(0);
        match self.positions {
            Positions::Sinusoidal(_) | Positions::Rotary => positions,
            Positions::Learned { offset } => positions + offset,
            // Position 0 stands in the row after that of the padding.
            Positions::Counted | Positions::LearnedCounted { .. } => positions + self.pad_token + 1,
            Positions::Relative { .. } | Positions::Alibi => 0,
        }
    }

    /// Takes back a pooler that a checkpoint lacks.
    pub(crate) fn forget_pooler(&mut self) {
        if self.parts == Parts::Encoder(Head::Pooler) {
            self.parts = Parts::Encoder(Head::None);
        }
    }

    /// Fails if there is no decoder.
    ///
    /// # Errors
    /// That the model is an encoder alone.
    pub fn require_decoder(&self) -> Result<(), Error> {
        match self.parts {
            Parts::Both => Ok(()),
            Parts::Encoder(_) => Err(Error::encoder_alone()),
        }
    }

    /// The same model without its decoder.
    pub(crate) fn encoder_alone(self) -> Self {
        let decoder = Stack { n_layers: 0, ..self.encoder };
        Self { parts: Parts::Encoder(Head::None), vocab: self.source_vocab, decoder, output_bias: false, ..self }
    }

    /// Tells `wrong` all that no graph could be built from; sizes are called as `names` says, as the family does.
    pub(crate) fn check(&self, names: &SizeNames, wrong: impl Fn(String)) {
        let mut stacks = vec![(&names.encoder, self.encoder)];
        if self.parts == Parts::Both {
            stacks.push((&names.decoder, self.decoder));
        }
        let mut sizes = vec![("vocab_size", self.vocab), (names.source_vocab, self.source_vocab), (names.d_model, self.d_model)];
        if let Parts::Encoder(Head::Text { labels, .. } | Head::Tokens { labels }) = self.parts {
            sizes.push(("num_labels", labels));
        }
        if let TokenTypes::Given(types) | TokenTypes::First(types) = self.token_types {
            sizes.push(("type_vocab_size", types));
        }
        sizes.extend(self.max_positions.map(|positions| ("max_position_embeddings", positions)));
        for (names, stack) in &stacks {
            sizes.extend([(names.n_layers, stack.n_layers), (names.heads, stack.heads), (names.d_k, stack.d_k), (names.d_ff, stack.d_ff)]);
        }
        sizes.dedup();
        let mut fits = true;
        for (field, size) in sizes {
            let largest = match field {
                _ if field == names.d_model => LARGEST_WIDTH,
                "max_position_embeddings" => MOST_POSITIONS,
                _ => LARGEST_SIZE,
            };
            if !(1..=largest).contains(&size) {
                wrong(format!("{field} wants 1 to {largest}, found {size}"));
                fits = false;
            }
        }
        for (names, stack) in stacks {
            if (MOST_LAYERS + 1..=LARGEST_SIZE).contains(&stack.n_layers) {
                wrong(format!("{} wants at most {MOST_LAYERS}, found {}", names.n_layers, stack.n_layers));
            }
            if fits && stack.heads * stack.d_k > LARGEST_SIZE {
                wrong(format!("{} {} times {} {} is more than {LARGEST_SIZE}", names.heads, stack.heads, names.d_k, stack.d_k));
            }
        }
        self.check_positions(names, &wrong);
        let both = self.vocab.min(self.source_vocab);
        let mut tokens = vec![("pad_token_id", self.pad_token, both)];
        if self.parts == Parts::Both {
            tokens = vec![("decoder_start_token_id", self.start_token, self.vocab), ("eos_token_id", self.eos_token, both), tokens[0]];
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
                wrong(format!("d_model wants at least 4 for sinusoidal positions, found {}", self.d_model));
            }
            Positions::Relative { buckets, .. } if !(4..=LARGEST_DISTANCE).contains(&buckets) => {
                wrong(format!("relative_attention_num_buckets wants 4 to {LARGEST_DISTANCE}, found {buckets}"));
            }
            // Half of the buckets have one distance each; the logarithm begins after them.
            Positions::Relative { buckets, max_distance, .. } if !(buckets / 2 + 1..=LARGEST_DISTANCE).contains(&max_distance) => {
                let least = buckets / 2 + 1;
                wrong(format!(
                    "relative_attention_max_distance wants {least} to {LARGEST_DISTANCE} for {buckets} buckets, found {max_distance}"
                ));
            }
            // Elements of a head are turned in pairs.
            Positions::Rotary => {
                for (names, stack) in [(&names.encoder, self.encoder), (&names.decoder, self.decoder)] {
                    if !stack.d_k.is_multiple_of(2) {
                        wrong(format!(
                            "rotary positions want an even width of heads, found {} with {} {}",
                            stack.d_k, names.heads, stack.heads
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

/// What a family's `config.json` calls its sizes.
pub(crate) struct SizeNames {
    pub(crate) source_vocab: &'static str,
    pub(crate) d_model: &'static str,
    pub(crate) encoder: StackNames,
    pub(crate) decoder: StackNames,
}

/// What a family's `config.json` calls the sizes of a stack.
pub(crate) struct StackNames {
    pub(crate) n_layers: &'static str,
    pub(crate) heads: &'static str,
    pub(crate) d_k: &'static str,
    pub(crate) d_ff: &'static str,
}

/// No size of a published model comes near; beyond it products of two sizes could overflow.
const LARGEST_SIZE: usize = 1 << 24;

/// Formulas give tables of these sizes, which no file has to hold: their claims cost a stranger nothing.
const LARGEST_WIDTH: usize = 1 << 16;
const MOST_POSITIONS: usize = 1 << 17;

/// The deepest stack that graphs are built for.
const MOST_LAYERS: usize = 1024;

/// The table of distances is written into the graph.
const LARGEST_DISTANCE: usize = 1 << 16;
