//! Repeated n-grams.

use super::body::Captured;
use super::{and, larger, less, smaller};
use crate::Result;
use cognate_graph::{Builder, DType, Repeat, Shape, Tensor};

/// The tokens so far.
pub(super) struct Target<'i> {
    /// `[batch, beams, length]`, of which `cur: i64 []` are tokens.
    pub(super) running: Tensor<'i>,
    pub(super) cur: Tensor<'i>,
    /// Maximum number of tokens.
    pub(super) most: usize,
}

impl<'i> Target<'i> {
    /// For each window of `n: i64 []` tokens of `seen: [batch, beams, len]` its last token, and
    /// whether the tokens before it are the target's last ones. `is_token`, of the same shape, is 0
    /// where there is none.
    pub(super) fn repeated(
        &self,
        seen: Tensor<'i>,
        is_token: Tensor<'i>,
        n: Tensor<'i>,
    ) -> Result<(Tensor<'i>, Tensor<'i>)> {
        let builder = n.builder();
        let shape = seen.ty().shape;
        let len = seen.dim(2);
        let (one, places) = (builder.integer(1), builder.range(0, &len));
        let last = builder.range(&len - 1, &len);
        let before = larger(n - one, builder.integer(0));
        let ends = smaller(places + before, last).expand(shape.clone());
        let is_window = and(
            (places + before).less_or_equal(last),
            and(one.less_or_equal(n), before.less_or_equal(self.cur)),
        );
        let first = and(is_window, one.less_or_equal(is_token.gather_elements(ends)));

        let inner = Builder::new("n-gram");
        let step = inner.input("n-gram.iteration", DType::I64, Shape::default());
        let is_met = inner.input("n-gram.is_met", DType::Bool, shape.clone());
        let mut captured = Captured::new(&inner, "n-gram");
        {
            let _scope = inner.root().at("n-gram").enter();
            let [seen, running, places, last] =
                [seen, self.running, places, last].map(|value| captured.read(value));
            let [cur, before] = [self.cur, before].map(|value| captured.read(value));
            let there = seen.gather_elements(smaller(places + step, last).expand(shape));
            let [batch, beams, _] = [0, 1, 2].map(|axis| running.dim(axis));
            let place =
                larger(cur - before + step, inner.integer(0)).expand([batch, beams, 1.into()]);
            let is_met = and(is_met, there.equal(running.gather_elements(place)));
            inner.output("n-gram.next.condition", less(step + inner.integer(1), before));
            inner.output("n-gram.next.is_met", is_met);
        }
        let outside = captured.outside;
        let body = inner.finish()?;
        let condition = less(builder.integer(0), before);
        let is_met = builder.repeat(Repeat {
            body,
            most: self.most,
            condition,
            carried: &[first],
            captured: &outside,
        });
        Ok((seen.gather_elements(ends), is_met[0]))
    }
}
