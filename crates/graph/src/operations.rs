//! The number of arithmetic operations of a graph.

use crate::{Bindings, Class, Graph, NodeId, Op, Shape};

impl Graph {
    /// Number of floating-point operations of a node; `None` if a size is not bound or the number
    /// exceeds 64 bits.
    ///
    /// A product counts two for each multiplication with its addition, a function of elements one
    /// for each elementary step: a softmax five (maximum, difference, exponential, sum, quotient),
    /// a layer normalisation eight. Moving values is not counted.
    pub fn operations(&self, id: NodeId, sizes: &Bindings) -> Option<u64> {
        let node = self.node(id);
        let input = |index: usize| node.inputs.get(index).map(|id| &self.node(*id).ty.shape);
        let output = || elements(&node.ty.shape, sizes);
        let read = |index: usize| elements(input(index)?, sizes);
        match node.op.class() {
            Class::Declared | Class::Constant | Class::Move | Class::Join | Class::Convert => {
                Some(0)
            }
            Class::Function | Class::Arithmetic | Class::Comparison => output(),
            Class::Reduction => read(node.inputs.len() - 1),
            Class::Softmax(steps) | Class::Normalisation(steps) => read(0)?.checked_mul(steps),
            Class::Product(operands) | Class::IntegerProduct(operands) => {
                let from_last =
                    if matches!(node.op, Op::Gemm { transposed: [true, _] }) { 2 } else { 1 };
                let dims = input(0)?.dims();
                let inner = if matches!(node.op, Op::Conv(_)) {
                    elements(&input(1)?.dims()[1..].iter().collect(), sizes)?
                } else {
                    u64::try_from(dims.get(dims.len().checked_sub(from_last)?)?.evaluate(sizes)?)
                        .ok()?
                };
                let bias = if node.inputs.len() > operands { output()? } else { 0 };
                output()?.checked_mul(inner)?.checked_mul(2)?.checked_add(bias)
            }
            // The number of iterations of a loop is known only at its end.
            Class::Loop => None,
            Class::Cache => {
                let Op::CachedAttention(attention) = &node.op else { return Some(0) };
                // Two products with each place of the caches, and a softmax between them.
                let places = u64::try_from(input(3)?.dims().last()?.evaluate(sizes)?)
                    .ok()?
                    .checked_add(1)?;
                let rows = u64::try_from(input(0)?.dims().first()?.evaluate(sizes)?).ok()?;
                let products = output()?.checked_mul(places)?.checked_mul(4)?;
                let scores = rows
                    .checked_mul(places)?
                    .checked_mul(attention.heads as u64)?
                    .checked_mul(5)?;
                products.checked_add(scores)
            }
        }
    }
}

fn elements(shape: &Shape, sizes: &Bindings) -> Option<u64> {
    shape.dims().iter().try_fold(1u64, |product, dim| {
        product.checked_mul(u64::try_from(dim.evaluate(sizes)?).ok()?)
    })
}
