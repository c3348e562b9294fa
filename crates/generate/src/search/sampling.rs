//! Sampling by a counter-based generator: the drawn tokens are a function of `seed`, the row of the batch and the step.
//!
//! Of the filtered logits `v` the position of the largest `v_i - ln(-ln u_i)` is a draw from their distribution (Gumbel 1954); the
//! uniform `u_i` are hashes of counters, in integers below 2³¹ whose squares fit into 64 bits.

use super::body::Captured;
use super::scores::Constraints;
use super::{and, less, not};
use crate::Result;
use cognate_graph::{Builder, DType, Repeat, Shape, Tensor, Unary};

/// The inputs of sampling.
#[derive(Clone, Copy)]
pub(super) struct Sampling<'g> {
    /// Whether tokens are drawn; bool `[]`.
    pub(super) is_on: Tensor<'g>,
    pub(super) temperature: Tensor<'g>,
    pub(super) top_p: Tensor<'g>,
    /// A number of each row: i64 `[batch, beams]`.
    pub(super) keys: Tensor<'g>,
    /// The ranks of the tokens that are kept: i64 `[kept]`.
    pub(super) ranks: Tensor<'g>,
}

impl<'g> Sampling<'g> {
    pub(super) fn read<'i>(self, captured: &mut Captured<'g, 'i>) -> Sampling<'i> {
        let Self { is_on, temperature, top_p, keys, ranks } = self;
        let [is_on, temperature, top_p, keys, ranks] = [is_on, temperature, top_p, keys, ranks].map(|value| captured.read(value));
        Sampling { is_on, temperature, top_p, keys, ranks }
    }
}

/// A prime, and the numbers of the hash.
pub(super) const PRIME: i64 = (1 << 31) - 1;
const STEP: i64 = 1_779_033_703;
const SHIFT: i64 = 40_503;

/// A number below [`PRIME`] for a key and an index, both below it.
pub(super) fn hash<'g>(key: Tensor<'g>, index: Tensor<'g>) -> Tensor<'g> {
    let number = |value: i64| key.builder().integer(value);
    let steps = (index * number(STEP) + key) % number(PRIME);
    // Squares alone would not be one to one, and fixed points would stay.
    (0..3).fold(steps, |x, _| (x * (x + number(SHIFT)) + steps) % number(PRIME))
}

impl<'i> Constraints<'_, 'i> {
    /// A token of each row, `[batch, beams]`, and its log-probability under the constraints; zeros without sampling.
    pub(super) fn draw(&self, logits: Tensor<'i>, is_last: Tensor<'i>) -> Result<[Tensor<'i>; 2]> {
        let builder = logits.builder();
        let row: Shape = [logits.dim(0), logits.dim(1)].into();
        let none = [builder.integer(0).expand(row.clone()), builder.scalar(0.0).expand(row.clone())];
        let inner = Builder::new("draw");
        let _iteration = inner.input("draw.iteration", DType::I64, Shape::default());
        for (name, value) in ["draw.token", "draw.score"].into_iter().zip(none) {
            inner.input(name, value.ty().dtype, value.ty().shape);
        }
        let mut captured = Captured::new(&inner, "draw");
        {
            let _scope = inner.root().at("draw").enter();
            let fixed = self.fixed.read(&mut captured);
            let [logits, iteration, running, is_last] = [logits, self.iteration, self.running, is_last].map(|value| captured.read(value));
            let inside = Constraints { settings: self.settings, iteration, running, fixed: &fixed, most: self.most };
            let sampling = fixed.sampling;
            let (choice, log) = inside.constrained(logits, logits)?;
            let [values, tokens] = (choice / sampling.temperature).top_k("kept");
            let shares = values.softmax();
            let before = shares.cumulative_sum() - shares;
            let is_first = sampling.ranks.equal(inner.integer(0));
            let is_cut = and(sampling.top_p.less_or_equal(before), and(not(is_first), less(sampling.top_p, inner.scalar(1.0))));
            let values = is_cut.select(inner.scalar(f32::NEG_INFINITY), values);
            let keys = hash(sampling.keys, iteration + inner.integer(1)).reshape([&logits.dim(0), &logits.dim(1), &1.into()]);
            let numbers = hash(keys, sampling.ranks + inner.integer(1));
            // 23 bits and a half: exact in single precision, never 0 or 1.
            let uniform = ((numbers / inner.integer(256)).cast(DType::F32) + 0.5) / (1 << 23) as f32;
            let gumbel = (uniform.map(Unary::Log) * -1.0).map(Unary::Log) * -1.0;
            let [_, place] = (values + gumbel).top_k(1);
            let token = tokens.gather_elements(place);
            let [score, token] = inside.forced(log.gather_elements(token), token, is_last);
            inner.output("draw.next.condition", inner.integer(0).cast(DType::Bool));
            inner.output("draw.next.token", token.reshape(row.clone()));
            inner.output("draw.next.score", score.reshape(row));
        }
        let outside = captured.outside;
        let body = inner.finish()?;
        let condition = self.fixed.sampling.is_on;
        let last = builder.repeat(Repeat { body, most: 1, condition, carried: &none, captured: &outside });
        Ok([last[0], last[1]])
    }
}
