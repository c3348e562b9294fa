//! Sampling by a counter-based generator: the drawn tokens are a function of `seed`, the row of the
//! batch and the step.
//!
//! The position of the largest `v_i - ln(-ln u_i)` of the filtered logits `v` is a draw from their
//! distribution (Gumbel 1954); the uniform `u_i` are hashes of counters, in integers below 2³¹
//! whose squares fit into 64 bits.

use super::body::when;
use super::scores::Constraints;
use super::{and, column, each_row, less, not};
use crate::Result;
use cognate_graph::{DType, Tensor, Unary};

/// A prime, and the numbers of the hash.
pub(super) const PRIME: i64 = (1 << 31) - 1;
const STEP: i64 = 1_779_033_703;
const SHIFT: i64 = 40_503;

/// A number below [`PRIME`] for a key and an index, both below it.
pub(super) fn hash<'g>(key: Tensor<'g>, index: Tensor<'g>) -> Tensor<'g> {
    let number = |value: i64| key.builder().integer(value);
    let steps = (index * number(STEP) + key) % number(PRIME);
    // Squares alone would not be one to one, and would have fixed points.
    (0..3).fold(steps, |x, _| (x * (x + number(SHIFT)) + steps) % number(PRIME))
}

impl<'i> Constraints<'_, 'i> {
    /// The log-probabilities under the constraints and the drawn tokens, both `[batch, beams]`;
    /// without sampling `chosen`.
    pub(super) fn draw(
        &self,
        logits: Tensor<'i>,
        is_last: Tensor<'i>,
        chosen: [Tensor<'i>; 2],
    ) -> Result<[Tensor<'i>; 2]> {
        let next = when("draw", self.fixed.sampling.is_on, &chosen, |captured, _| {
            let running = captured.read(self.running);
            let inside = self.read(captured, running);
            let [logits, is_last] = [logits, is_last].map(|value| captured.read(value));
            let (builder, sampling) = (logits.builder(), inside.fixed.sampling);
            let [choice, log] = inside.under_constraints(logits)?;
            let [values, tokens] = (choice / sampling.temperature).top_k(sampling.ranks.dim(0));
            // With constant sizes all tokens are ranked.
            let is_beyond = and(
                less(builder.integer(0), sampling.top_k),
                sampling.top_k.less_or_equal(sampling.ranks),
            );
            let values = is_beyond.select(builder.scalar(f32::NEG_INFINITY), values);
            let shares = values.softmax();
            let before = shares.cumulative_sum() - shares;
            let is_first = sampling.ranks.equal(builder.integer(0));
            let is_cut = and(
                sampling.top_p.less_or_equal(before),
                and(not(is_first), less(sampling.top_p, builder.scalar(1.0))),
            );
            let values = is_cut.select(builder.scalar(f32::NEG_INFINITY), values);
            let keys = hash(column(sampling.keys), inside.cur);
            let numbers = hash(keys, sampling.ranks + builder.integer(1));
            // 23.5 bits: exact in single precision, never 0 or 1.
            let uniform =
                ((numbers / builder.integer(256)).cast(DType::F32) + 0.5) / (1 << 23) as f32;
            let gumbel = (uniform.map(Unary::Log) * -1.0).map(Unary::Log) * -1.0;
            let [_, place] = (values + gumbel).top_k(1);
            let token = tokens.gather_elements(place);
            Ok(inside.forced(inside.of_token(log, token), token, is_last).map(each_row).into())
        })?;
        Ok([next[0], next[1]])
    }
}
