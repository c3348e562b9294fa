//! Attention with linear biases: a penalty on the scores of self-attention, proportional
//! to the distance.
//!
//! `scores = q·k - m_h |i - j|`, `m_h` a fixed slope of head `h`   (Press et al. 2022, section 3)
//!
//! In the decoder keys precede their query, as in the paper; the encoder is bidirectional.

use crate::Config;
use crate::embedding::Side;
use cognate_graph::{DType, Dim, Generator, Recipe, Scope, Tensor};
use std::sync::Arc;

/// Path of a stack's slopes, `[heads]`.
pub(crate) const SLOPES: &str = "alibi.slopes";

/// The bias of self-attention scores for queries `past..past + tgt` and keys `0..past + tgt`:
/// `[heads, tgt, past + tgt]`, added to `mask`.
pub(crate) fn mask<'g>(
    root: &Scope<'g>,
    config: &Config,
    side: Side,
    mask: Option<Tensor<'g>>,
    [past, tgt]: [&Dim; 2],
) -> Tensor<'g> {
    let builder = root.builder();
    let stack = side.at(root);
    let _scope = stack.at("alibi").enter();
    let heads = side.stack(config).heads;
    let queries = builder.range(past, past + tgt).reshape([tgt.clone(), 1.into()]);
    let distance = builder.range(0, past + tgt) - queries;
    let zero = builder.integer(0);
    let nearness = distance.less_or_equal(zero).select(distance, zero - distance);
    let slopes = stack.parameter(SLOPES, [heads]).reshape([heads, 1, 1]);
    let bias = slopes * nearness.cast(DType::F32);
    mask.map_or(bias, |mask| bias + mask)
}

/// The slopes of `heads` heads as a weight.
pub(crate) fn slopes_recipe(heads: usize) -> Recipe {
    Recipe::generated(Arc::new(Slopes(slopes(heads))), &[heads])
}

/// `2^(-8i/n)`, `i = 1..=n`, if `n` is a power of two. Otherwise the slopes of the power of two
/// below, followed by every other slope of the power above, as in the authors' code.
fn slopes(heads: usize) -> Vec<f32> {
    let power = 1 << heads.max(1).ilog2();
    let slope = |i: usize, n: usize| (-8.0 * i as f64 / n as f64).exp2() as f32;
    let below = (1..=power).map(|i| slope(i, power));
    let above = (1..=power).map(|i| slope(2 * i - 1, 2 * power));
    below.chain(above).take(heads).collect()
}

#[derive(Debug)]
struct Slopes(Vec<f32>);

impl Generator for Slopes {
    fn fill(&self, first: usize, values: &mut [f32]) {
        values.copy_from_slice(&self.0[first..][..values.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::slopes;

    /// Press et al. 2022, section 3: `1/2, 1/4, ..., 1/256` for 8 heads,
    /// `1/2^0.5, 1/2, ...` for 16.
    #[test]
    fn slopes_are_the_papers() {
        assert_eq!(slopes(8), [1, 2, 3, 4, 5, 6, 7, 8].map(|power| 1.0 / (1 << power) as f32));
        assert_eq!(slopes(16)[1..4], [0.5, 0.5f32.powf(1.5), 0.25]);
        assert_eq!(slopes(6), [0.25, 0.0625, 0.015_625, 0.003_906_25, 0.5, 0.125]);
        assert_eq!(slopes(1), [0.003_906_25]);
    }
}
