//! Token embeddings and positional encodings.
//!
//! `x = E[ids] · √d_model + PE`   (Vaswani et al. 2017, sections 3.4 and 3.5)
//!
//! `ids: [..., len]` -> `[..., len, d_model]`

use crate::layers::normalise;
use crate::{Config, EmbeddingNorm, Embeddings, Positions, Sinusoids, Stack, TokenTypes};
use cognate_graph::{Dim, Generator, Scope, Tensor};

/// Encoder or decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Encoder,
    Decoder,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Encoder => "encoder",
            Side::Decoder => "decoder",
        }
    }

    /// The stack's sizes.
    pub(crate) fn stack(self, config: &Config) -> Stack {
        match self {
            Side::Encoder => config.encoder,
            Side::Decoder => config.decoder,
        }
    }

    /// The stack's scope below `root`.
    pub(crate) fn at<'g>(self, root: &Scope<'g>) -> Scope<'g> {
        root.at(self.name())
    }
}

/// The stack's embedding table: `[vocab, d_model]`.
pub(crate) fn table<'g>(root: &Scope<'g>, config: &Config, side: Side) -> Tensor<'g> {
    let vocab = if side == Side::Encoder { config.source_vocab } else { config.vocab };
    let scope = match config.embeddings {
        Embeddings::Shared => root.at("shared"),
        Embeddings::Separate => side.at(root).at("embed_tokens"),
    };
    scope.parameter("weight", [vocab, config.table_width.unwrap_or(config.d_model)])
}

/// Converts rows of the decoder's table to the width of the model, `[..., width]` ->
/// `[..., d_model]`, or states to the width of the table.
pub(crate) fn between_widths<'g>(
    stack: &Scope<'g>,
    config: &Config,
    name: &str,
    x: Tensor<'g>,
    out: usize,
) -> Tensor<'g> {
    if config.table_width.is_none() {
        return x;
    }
    let scope = stack.at(name);
    let _scope = scope.enter();
    let width = x.ty().shape.dims().last().cloned().unwrap_or_default();
    x.linear(scope.parameter("weight", [&out.into(), &width]), None)
}

/// The input of a stack and its summands.
#[derive(Clone, Copy)]
pub(crate) struct Embedded<'g> {
    /// The scaled token embeddings: `[..., len, d_model]`
    pub(crate) tokens: Tensor<'g>,
    /// The positional encodings `[(...,) len, d_model]`, if positions are added.
    pub(crate) positions: Option<Tensor<'g>>,
    /// The input of the first layer: `[..., len, d_model]`
    pub(crate) sum: Tensor<'g>,
}

/// The inputs of a stack.
#[derive(Clone, Copy)]
pub(crate) struct InputTokens<'g> {
    /// `i64 [..., len]`
    pub(crate) ids: Tensor<'g>,
    /// The segments of tokens, `i64 [..., len]`, if they are an input.
    pub(crate) types: Option<Tensor<'g>>,
    /// The positions of tokens, `i64 [..., len]`, if they are not consecutive.
    pub(crate) positions: Option<Tensor<'g>>,
}

impl<'g> InputTokens<'g> {
    /// Tokens of one segment at consecutive positions.
    pub(crate) fn new(ids: Tensor<'g>) -> Self {
        Self { ids, types: None, positions: None }
    }
}

/// Embeds tokens, the first of which is at position `first`.
pub(crate) fn embed<'g>(
    root: &Scope<'g>,
    config: &Config,
    side: Side,
    input: InputTokens<'g>,
    first: &Dim,
) -> Embedded<'g> {
    let stack = side.at(root);
    let _scope = stack.at("embed_tokens").enter();
    let tokens = between_widths(
        &stack,
        config,
        "project_in",
        table(root, config, side).gather(input.ids),
        config.d_model,
    );
    let types = embed_types(&stack, config, input.types);
    let tokens = types.map_or(tokens, |types| tokens + types);
    let scaled =
        || if config.scale_embedding { tokens * (config.d_model as f32).sqrt() } else { tokens };
    let norm = |x| normalise(&stack.at("layernorm_embedding"), config, x);
    match (config.embedding_norm, side) {
        (EmbeddingNorm::None, _) => with_positions(&stack, config, scaled(), input, first),
        (EmbeddingNorm::Sum, _) | (EmbeddingNorm::DecoderTokens, Side::Encoder) => {
            let embedded = with_positions(&stack, config, scaled(), input, first);
            Embedded { sum: norm(embedded.sum), ..embedded }
        }
        // Normalisation removes the scale, up to epsilon; transformers does not scale here.
        (EmbeddingNorm::DecoderTokens, Side::Decoder) => {
            with_positions(&stack, config, norm(tokens), input, first)
        }
    }
}

/// The embeddings of the tokens' segments, `types: i64 [batch, src]`: `[batch, src, d_model]`, or
/// `[d_model]` if all are in the first.
fn embed_types<'g>(
    stack: &Scope<'g>,
    config: &Config,
    types: Option<Tensor<'g>>,
) -> Option<Tensor<'g>> {
    let scope = stack.at("embed_types");
    let _scope = scope.enter();
    let table = |rows| scope.parameter("weight", [rows, config.d_model]);
    match config.token_types {
        TokenTypes::None => None,
        TokenTypes::Given(rows) => types.map(|types| table(rows).gather(types)),
        TokenTypes::First(rows) => Some(table(rows).gather(stack.builder().integer(0))),
    }
}

fn with_positions<'g>(
    stack: &Scope<'g>,
    config: &Config,
    tokens: Tensor<'g>,
    input: InputTokens<'g>,
    first: &Dim,
) -> Embedded<'g> {
    let scope = stack.at("embed_positions");
    let _scope = scope.enter();
    let table = || scope.parameter("weight", [config.position_rows(), config.d_model]);
    let ids = input.ids;
    let builder = ids.builder();
    let len = ids.ty().shape.dims().last().cloned().unwrap_or_default();
    let rows_from = |offset: usize| match input.positions {
        Some(positions) if offset == 0 => positions,
        Some(positions) => positions + builder.integer(offset as i64),
        None => builder.range(first + offset, first + len + offset),
    };
    let positions = match config.positions {
        Positions::Sinusoidal(_) => Some(table().gather(rows_from(0))),
        Positions::Learned { offset } => Some(table().gather(rows_from(offset))),
        Positions::Counted | Positions::LearnedCounted { .. } => {
            let pad = builder.integer(config.pad_token as i64);
            let is_token = ids.equal(pad).select(builder.integer(0), builder.integer(1));
            let count = is_token.cumulative_sum() + builder.range(first, first + 1);
            Some(table().gather(count * is_token + pad))
        }
        Positions::Relative { .. } | Positions::Rotary | Positions::Alibi => None,
    };
    Embedded { tokens, positions, sum: positions.map_or(tokens, |positions| tokens + positions) }
}

/// The positional encoding at `position` and `column` of a row of width `d_model`: the sine or
/// cosine of `position / 10000^(2i/d_model)`, where `i` is the column's pair, counted from 0.
///
/// ```
/// use cognate_model::{Sinusoids, sinusoid};
/// // The pair i = 1 of a row of four: angles of position / 100.
/// assert_eq!(sinusoid(Sinusoids::Interleaved, 3, 2, 4), 0.03f64.sin());
/// assert_eq!(sinusoid(Sinusoids::Halves, 3, 3, 4), 0.03f64.cos());
/// ```
pub fn sinusoid(arrangement: Sinusoids, position: usize, column: usize, d_model: usize) -> f64 {
    let (wavelength, is_sine) = wave(arrangement, column, d_model);
    let angle = position as f64 / wavelength;
    if is_sine { angle.sin() } else { angle.cos() }
}

/// Returns the wavelength of a column over 2π, and whether the column is a sine.
fn wave(arrangement: Sinusoids, column: usize, d_model: usize) -> (f64, bool) {
    let (pair, is_sine) = match arrangement {
        Sinusoids::Interleaved => (column / 2, column.is_multiple_of(2)),
        Sinusoids::Halves => (column % d_model.div_ceil(2), column < d_model.div_ceil(2)),
    };
    (10000f64.powf(2.0 * pair as f64 / d_model as f64), is_sine)
}

/// fairseq's frequency of a column. A row is `sin(row · 10000^(-i/(d_model/2 - 1)))`, all sines,
/// then all cosines, and a zero if the width is odd; the row of padding is zero. Intermediate
/// results are rounded to f32, as when the models were trained: at row 1,000 the rounding of
/// frequencies and angles moves a sine by up to 1e-4.
fn counted_frequency(column: usize, d_model: usize) -> f32 {
    let half = d_model / 2;
    let step = (10000f64.ln() / (half as f64 - 1.0)) as f32;
    f64::from((column % half) as f32 * -step).exp() as f32
}

/// A table of sinusoids, `[rows, d_model]`.
#[derive(Debug)]
pub(crate) enum SinusoidTable {
    Plain {
        /// The [`wave`] of each column.
        waves: Vec<(f64, bool)>,
    },
    Counted {
        pad_token: usize,
        /// The frequency of each column.
        frequencies: Vec<f32>,
    },
}

impl SinusoidTable {
    /// The table, if the model has sinusoidal positions.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        let d_model = config.d_model;
        match config.positions {
            Positions::Sinusoidal(arrangement) => Some(Self::Plain {
                waves: (0..d_model).map(|column| wave(arrangement, column, d_model)).collect(),
            }),
            Positions::Counted => {
                let frequencies =
                    (0..d_model).map(|column| counted_frequency(column, d_model)).collect();
                Some(Self::Counted { pad_token: config.pad_token, frequencies })
            }
            Positions::Learned { .. }
            | Positions::LearnedCounted { .. }
            | Positions::Relative { .. }
            | Positions::Rotary
            | Positions::Alibi => None,
        }
    }
}

impl Generator for SinusoidTable {
    fn fill(&self, first: usize, values: &mut [f32]) {
        for (index, value) in (first..).zip(values) {
            *value = match self {
                Self::Plain { waves } => {
                    let (wavelength, is_sine) = waves[index % waves.len()];
                    let angle = (index / waves.len()) as f64 / wavelength;
                    (if is_sine { angle.sin() } else { angle.cos() }) as f32
                }
                Self::Counted { pad_token, frequencies } => {
                    let (row, column, half) = (
                        index / frequencies.len(),
                        index % frequencies.len(),
                        frequencies.len() / 2,
                    );
                    let angle = row as f32 * frequencies[column];
                    match column / half {
                        _ if row == *pad_token => 0.0,
                        0 => angle.sin(),
                        1 => angle.cos(),
                        _ => 0.0,
                    }
                }
            };
        }
    }
}
