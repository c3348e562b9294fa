//! Rotary positions: queries and keys of self-attention rotated by an angle per position, so that
//! their products depend only on distances.
//!
//! `(x_i, x_{i + d_k/2}) ->
//! (x_i cos mθ_i - x_{i + d_k/2} sin mθ_i, x_{i + d_k/2} cos mθ_i + x_i sin mθ_i)`,
//! position `m`, `θ_i = base^(-2i/d_k)`, base 10,000 in the paper   (Su et al. 2021, section 3.2.2)
//!
//! Published models scale `θ_i` in several ways for long texts; see [`RotaryScaling`].
//!
//! The paper rotates neighbours, `x_{2i}` and `x_{2i+1}`. Halves are the same model with permuted
//! rows in its projections, and need fewer operations.

use crate::embedding::Side;
use crate::span::Span;
use crate::{Config, RotaryScaling};
use cognate_graph::{Dim, Generator, Recipe, Scope, Tensor, concat};
use std::f64::consts::TAU;
use std::sync::Arc;

/// The angles of a range of positions.
#[derive(Clone, Copy)]
pub(crate) struct Rotation<'g> {
    /// `[len, d_k]`, or `[batch, 1, len, d_k]`, with beams `[batch · beams, 1, len, d_k]`
    cosines: Tensor<'g>,
    /// The same shape; those of the first half are negative.
    sines: Tensor<'g>,
}

const COSINES: &str = "rotary.cosines";
const SINES: &str = "rotary.sines";

impl<'g> Rotation<'g> {
    /// The angles of queries and new keys.
    pub(crate) fn new(
        root: &Scope<'g>,
        config: &Config,
        side: Side,
        Span { past, tgt, positions, .. }: Span<'_, 'g>,
    ) -> Self {
        let stack = side.at(root);
        let _scope = stack.at("rotary").enter();
        let consecutive = || root.builder().range(past, past + tgt);
        let d_k = side.stack(config).d_k;
        let table = |path| stack.parameter(path, [config.position_rows(), d_k]);
        let rows = |path| match positions {
            // The same for all heads.
            Some(positions) => {
                let rows = positions
                    .ty()
                    .shape
                    .dims()
                    .iter()
                    .rev()
                    .skip(1)
                    .fold(Dim::from(1), |rows, dim| dim * rows);
                table(path).gather(positions).reshape([rows, 1.into(), tgt.clone(), d_k.into()])
            }
            None => table(path).gather(consecutive()),
        };
        Self { cosines: rows(COSINES), sines: rows(SINES) }
    }

    /// Rotates `x: [..., len, d_k]`.
    pub(crate) fn turn(self, x: Tensor<'g>) -> Tensor<'g> {
        let shape = x.ty().shape;
        let (axis, d_k) = (
            shape.rank().saturating_sub(1),
            self.cosines.dim(self.cosines.ty().shape.rank().saturating_sub(1)),
        );
        let half = d_k.as_constant().unwrap_or(2) / 2;
        let exchanged = concat(axis, &[x.slice(axis, half, d_k), x.slice(axis, 0, half)]);
        x * self.cosines + exchanged * self.sines
    }
}

/// The cosines and sines for heads of width `d_k`, by path within a stack: `[max_positions, d_k]`.
pub(crate) fn tables(config: &Config, d_k: usize) -> Vec<(&'static str, Recipe)> {
    let (frequencies, magnitude) =
        frequencies(config.rotary_scaling, config.rotary_base.into(), d_k);
    let frequencies: Arc<[f64]> = frequencies.into();
    let table = |part| {
        let table = Table { part, frequencies: frequencies.clone(), magnitude };
        Recipe::generated(Arc::new(table), &[config.position_rows(), d_k])
    };
    vec![(COSINES, table(Part::Cosine)), (SINES, table(Part::Sine))]
}

/// The angle per position of each pair of columns, and the factor of cosines and sines.
fn frequencies(scaling: RotaryScaling, base: f64, d_k: usize) -> (Vec<f64>, f64) {
    let plain = (0..d_k / 2).map(|pair| base.powf(-2.0 * pair as f64 / d_k as f64));
    // `share` of a frequency is kept, the rest divided.
    let mixed =
        |frequency: f64, factor: f64, share: f64| frequency * (share + (1.0 - share) / factor);
    match scaling {
        RotaryScaling::None => (plain.collect(), 1.0),
        RotaryScaling::Linear { factor } => {
            (plain.map(|frequency| frequency / factor).collect(), 1.0)
        }
        RotaryScaling::Llama3 { factor, low, high, positions } => {
            let share = |frequency: f64| {
                ((positions * frequency / TAU - low) / (high - low)).clamp(0.0, 1.0)
            };
            (plain.map(|frequency| mixed(frequency, factor, share(frequency))).collect(), 1.0)
        }
        RotaryScaling::Yarn { factor, magnitude, fast, slow, positions, rounded } => {
            // The pair of columns with this number of turns within the positions.
            let pair =
                |turns: f64| d_k as f64 * (positions / (turns * TAU)).ln() / (2.0 * base.ln());
            let [first, last] = if rounded {
                [pair(fast).floor(), pair(slow).ceil()]
            } else {
                [pair(fast), pair(slow)]
            };
            let (first, last) = (first.max(0.0), last.min(d_k as f64 - 1.0));
            let width = if first == last { 0.001 } else { last - first };
            let share = |pair: usize| 1.0 - ((pair as f64 - first) / width).clamp(0.0, 1.0);
            (
                plain
                    .enumerate()
                    .map(|(pair, frequency)| mixed(frequency, factor, share(pair)))
                    .collect(),
                magnitude,
            )
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Cosine,
    Sine,
}

#[derive(Debug)]
struct Table {
    part: Part,
    /// Of each pair of columns.
    frequencies: Arc<[f64]>,
    magnitude: f64,
}

impl Generator for Table {
    fn fill(&self, first: usize, values: &mut [f32]) {
        let half = self.frequencies.len();
        for (index, value) in (first..).zip(values) {
            let (position, column) = (index / (2 * half), index % (2 * half));
            let angle = position as f64 * self.frequencies[column % half];
            let number = match self.part {
                Part::Cosine => angle.cos(),
                Part::Sine if column < half => -angle.sin(),
                Part::Sine => angle.sin(),
            };
            *value = (self.magnitude * number) as f32;
        }
    }
}
