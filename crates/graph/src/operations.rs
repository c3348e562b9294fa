//! How much arithmetic a graph is.

use crate::{Bindings, Graph, NodeId, Op, Shape};

impl Graph {
    /// Floating-point operations of a node under sizes; `None` where a size is not bound or the number passes 64 bits.
    ///
    /// A product counts two for each multiplication with its addition, a function of elements one for each elementary step: a softmax
    /// five (maximum, difference, exponential, sum, quotient), a layer normalisation eight. What only moves values counts nothing.
    pub fn operations(&self, id: NodeId, sizes: &Bindings) -> Option<u64> {
        let node = self.node(id);
        let input = |index: usize| node.inputs.get(index).map(|id| &self.node(*id).ty.shape);
        let output = || elements(&node.ty.shape, sizes);
        let read = |index: usize| elements(input(index)?, sizes);
        // Products of an axis of one input with each element of the output.
        let product = |axis_of: &Shape, from_last: usize| {
            let dims = axis_of.dims();
            let axis = u64::try_from(dims.get(dims.len().checked_sub(from_last)?)?.evaluate(sizes)?).ok()?;
            output()?.checked_mul(axis)?.checked_mul(2)
        };
        let with_bias = |operations: u64, inputs: usize| operations.checked_add(if node.inputs.len() > inputs { output()? } else { 0 });
        let steps = |elements: Option<u64>, steps: u64| elements?.checked_mul(steps);
        match &node.op {
            Op::Input
            | Op::Parameter
            | Op::Scalar(_)
            | Op::Integers(_)
            | Op::Range { .. }
            | Op::Cast(_)
            | Op::Gather
            | Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Concat { .. }
            | Op::Slice { .. }
            | Op::Expand(_)
            | Op::CacheWrite { .. } => Some(0),
            Op::Unary(_) | Op::Binary(_) | Op::LessOrEqual | Op::Equal | Op::Select => output(),
            Op::CumSum | Op::Sum(_) | Op::LargestMagnitude => read(0),
            Op::ScatterAdd => read(2),
            Op::MatMul => product(input(0)?, 1),
            Op::Gemm { transposed } => product(input(0)?, if transposed[0] { 2 } else { 1 }),
            Op::Linear => with_bias(product(input(0)?, 1)?, 2),
            Op::QuantizedLinear(_) | Op::BlockLinear(_) => with_bias(product(input(0)?, 1)?, 3),
            Op::Softmax => steps(output(), 5),
            Op::LogSumExp => steps(read(0), 4),
            Op::ShiftedExp => steps(output(), 3),
            Op::LayerNorm { .. } => steps(output(), 8),
            Op::LayerNormStatistic { .. } => steps(read(0), 3),
            Op::RmsNorm { .. } => steps(output(), 4),
            // Two products with each place of the caches, and the softmax between them.
            Op::CachedAttention(attention) => {
                let dims = input(3)?.dims();
                let places = u64::try_from(dims.last()?.evaluate(sizes)?).ok()?.checked_add(1)?;
                let rows = u64::try_from(input(0)?.dims().first()?.evaluate(sizes)?).ok()?;
                let products = output()?.checked_mul(places)?.checked_mul(4)?;
                let scores = rows.checked_mul(places)?.checked_mul(attention.heads as u64)?.checked_mul(5)?;
                products.checked_add(scores)
            }
        }
    }
}

fn elements(shape: &Shape, sizes: &Bindings) -> Option<u64> {
    shape.dims().iter().try_fold(1u64, |product, dim| product.checked_mul(u64::try_from(dim.evaluate(sizes)?).ok()?))
}

#[cfg(test)]
mod tests {
    use crate::{Bindings, Builder, DType};

    #[test]
    fn attention_is_counted_by_hand() {
        let builder = Builder::new("attention");
        let q = builder.input("q", DType::F32, ["tgt", "d_k"]);
        let k = builder.input("k", DType::F32, ["src", "d_k"]);
        builder.output("weights", (q.matmul(k.t()) * 0.125).softmax());
        let graph = builder.finish().expect("a graph");
        let mut sizes = Bindings::default();
        for (symbol, size) in [("tgt", 3), ("d_k", 8), ("src", 5)] {
            sizes.bind(&symbol.into(), size).expect("a new symbol");
        }
        let total = |sizes: &Bindings| graph.iter().map(|(id, _)| graph.operations(id, sizes)).sum::<Option<u64>>();
        // 15 scores of 8 multiplications and additions, 15 scalings, 5 steps of softmax for each.
        assert_eq!(total(&sizes), Some(15 * 16 + 15 + 15 * 5));
        assert_eq!(total(&Bindings::default()), None);
    }
}
