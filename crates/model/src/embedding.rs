//! Token embeddings and positions.
//!
//! `x = E[ids] · √d_model + PE`   (Vaswani et al. 2017, sections 3.4 and 3.5)
//!
//! `ids: [..., len]` -> `[..., len, d_model]`

use crate::{Config, Positions, Sinusoids};
use cognate_graph::{Dim, Generator, Scope, Tensor};

/// The table that encoder, decoder and output share: `[vocab, d_model]`.
pub(crate) fn shared_embedding<'g>(root: &Scope<'g>, config: &Config) -> Tensor<'g> {
    root.at("shared").parameter("weight", [config.vocab, config.d_model])
}

/// Embeds `ids: [..., len]`, whose first token stands at position `first`.
pub(crate) fn embed<'g>(root: &Scope<'g>, stack: &Scope<'g>, config: &Config, ids: Tensor<'g>, first: &Dim) -> Tensor<'g> {
    let _scope = stack.at("embed_tokens").enter();
    let tokens = shared_embedding(root, config).gather(ids);
    let tokens = if config.scale_embedding { tokens * (config.d_model as f32).sqrt() } else { tokens };
    let scope = stack.at("embed_positions");
    let _scope = scope.enter();
    let table = scope.parameter("weight", [config.max_positions, config.d_model]);
    let len = ids.ty().shape.dims().last().cloned().unwrap_or_default();
    tokens + table.gather(ids.builder().range(first, first + len))
}

/// The positional encoding at `position` and `column` of rows of width `d_model`:
/// `sin(position / 10000^(2i/d_model))` for a sine, the cosine of the same angle for a cosine; pair `i` of a row counts from 0.
///
/// ```
/// use cognate_model::{Sinusoids, sinusoid};
/// // The pair i = 1 of a row of four: angles of position / 100.
/// assert_eq!(sinusoid(Sinusoids::Interleaved, 3, 2, 4), 0.03f64.sin());
/// assert_eq!(sinusoid(Sinusoids::Halves, 3, 3, 4), 0.03f64.cos());
/// ```
pub fn sinusoid(arrangement: Sinusoids, position: usize, column: usize, d_model: usize) -> f64 {
    let (pair, is_sine) = match arrangement {
        Sinusoids::Interleaved => (column / 2, column.is_multiple_of(2)),
        Sinusoids::Halves => (column % (d_model / 2), column < d_model / 2),
    };
    let angle = position as f64 / 10000f64.powf(2.0 * pair as f64 / d_model as f64);
    if is_sine { angle.sin() } else { angle.cos() }
}

/// The table of sinusoids, `[max_positions, d_model]`.
#[derive(Debug)]
pub(crate) struct SinusoidTable {
    pub(crate) arrangement: Sinusoids,
    pub(crate) d_model: usize,
}

impl Generator for SinusoidTable {
    fn fill(&self, first: usize, values: &mut [f32]) {
        for (index, value) in (first..).zip(values) {
            *value = sinusoid(self.arrangement, index / self.d_model, index % self.d_model, self.d_model) as f32;
        }
    }
}

/// The sinusoids' generator, if positions are not learned.
pub(crate) fn sinusoids(config: &Config) -> Option<SinusoidTable> {
    match config.positions {
        Positions::Sinusoidal(arrangement) => Some(SinusoidTable { arrangement, d_model: config.d_model }),
        Positions::Learned => None,
    }
}
