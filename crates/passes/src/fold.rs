//! Folding: the same numbers from fewer nodes.
//!
//! Equal operations on equal values are one node. Reshapes and transposes in a row are one, or none; an expansion to the same shape,
//! a sum over axes of size 1, a product with 1 and a sum with 0 are their operand.

use cognate_graph::{Binary, Builder, Dim, Error, Graph, NodeId, Op, Scalar, Tensor};
use std::collections::HashMap;

/// The graph, folded. Inputs, parameters and outputs keep their names; a node that stands for several has the first one's.
///
/// # Errors
/// None that a caller can cause.
pub fn fold(graph: &Graph) -> Result<Graph, Error> {
    let builder = Builder::new(graph.name());
    let mut made = Made { builder: &builder, shared: HashMap::new(), nodes: HashMap::new() };
    let mut values: Vec<Tensor<'_>> = Vec::new();
    for (_, node) in graph.iter() {
        let value = match &node.op {
            Op::Input => builder.input(&node.name, node.ty.dtype, node.ty.shape.clone()),
            Op::Parameter => builder.parameter(&node.name, node.ty.clone()),
            op => made.value(&node.name, op, node.inputs.iter().map(|input| values[input.index()]).collect()),
        };
        values.push(value);
    }
    for output in graph.outputs() {
        builder.output(&output.name, values[output.node.index()]);
    }
    drop((values, made));
    builder.finish()
}

struct Made<'b> {
    builder: &'b Builder,
    /// By operation and what it reads.
    shared: HashMap<(String, Vec<NodeId>), Tensor<'b>>,
    /// What was emitted.
    nodes: HashMap<NodeId, (Op, Vec<Tensor<'b>>)>,
}

impl<'b> Made<'b> {
    /// The value of `op` on `inputs`, by an old node or by a new one.
    fn value(&mut self, name: &str, op: &Op, inputs: Vec<Tensor<'b>>) -> Tensor<'b> {
        if let Some((op, input)) = self.in_a_row(op, &inputs) {
            return self.value(name, &op, vec![input]);
        }
        if let Some(same) = self.operand(op, &inputs) {
            return same;
        }
        let key = (format!("{op:?}"), inputs.iter().map(|input| input.id()).collect());
        if let Some(&shared) = self.shared.get(&key) {
            return shared;
        }
        let value = self.builder.node(name, op.clone(), &inputs);
        self.shared.insert(key, value);
        self.nodes.insert(value.id(), (op.clone(), inputs));
        value
    }

    /// One operation for this and the one before, and what that reads.
    fn in_a_row(&self, op: &Op, inputs: &[Tensor<'b>]) -> Option<(Op, Tensor<'b>)> {
        let (before, input) = self.nodes.get(&inputs.first()?.id()).map(|(op, inputs)| (op, inputs.first().copied()))?;
        match (op, before) {
            (Op::Reshape(_), Op::Reshape(_)) => Some((op.clone(), input?)),
            (Op::Transpose(order), Op::Transpose(first)) => Some((Op::Transpose(order.iter().map(|&axis| first[axis]).collect()), input?)),
            (Op::Sum(axes), _) if !axes.is_empty() => {
                let dims = inputs[0].ty().shape;
                let left: Vec<_> = axes.iter().copied().filter(|&axis| dims.dims()[axis] != Dim::from(1)).collect();
                (left.len() < axes.len()).then(|| (Op::Sum(left), inputs[0]))
            }
            _ => None,
        }
    }

    /// The operand that the operation gives unchanged.
    fn operand(&self, op: &Op, inputs: &[Tensor<'b>]) -> Option<Tensor<'b>> {
        let &first = inputs.first()?;
        let is_same = |ty: &cognate_graph::Shape| *ty == first.ty().shape;
        match op {
            Op::Reshape(shape) | Op::Expand(shape) => is_same(shape).then_some(first),
            Op::Transpose(order) => order.is_sorted().then_some(first),
            Op::Sum(axes) => axes.is_empty().then_some(first),
            Op::Cast(dtype) => (first.ty().dtype == *dtype).then_some(first),
            Op::Binary(function) => {
                let right = *inputs.get(1)?;
                let (unit, both_sides) = match function {
                    Binary::Add => (0.0, true),
                    Binary::Sub => (0.0, false),
                    Binary::Mul => (1.0, true),
                    Binary::Div => (1.0, false),
                    Binary::Rem => return None,
                };
                let keeps = |kept: Tensor<'b>, other: Tensor<'b>| {
                    self.is_number(other, unit) && kept.ty().shape.broadcast(&other.ty().shape).as_ref() == Some(&kept.ty().shape)
                };
                if keeps(first, right) { Some(first) } else { (both_sides && keeps(right, first)).then_some(right) }
            }
            Op::Input
            | Op::Parameter
            | Op::Scalar(_)
            | Op::Integers(_)
            | Op::Range { .. }
            | Op::Unary(_)
            | Op::LessOrEqual
            | Op::Equal
            | Op::Select
            | Op::Gather
            | Op::MatMul
            | Op::Linear
            | Op::Concat { .. }
            | Op::Slice { .. }
            | Op::CumSum
            | Op::ScatterAdd
            | Op::Gemm { .. }
            | Op::Softmax
            | Op::LogSumExp
            | Op::ShiftedExp
            | Op::LayerNorm { .. }
            | Op::LayerNormStatistic { .. }
            | Op::RmsNorm { .. }
            | Op::QuantizedLinear(_)
            | Op::BlockLinear(_)
            | Op::LargestMagnitude
            | Op::CacheWrite { .. }
            | Op::CachedAttention(_) => None,
        }
    }

    /// Whether a value is the number `number`, of shape `[]`.
    fn is_number(&self, value: Tensor<'b>, number: f32) -> bool {
        match self.nodes.get(&value.id()) {
            Some((Op::Scalar(Scalar::F32(found)), _)) => *found == number,
            Some((Op::Scalar(Scalar::F16(found)), _)) => found.to_f32() == number,
            Some(_) | None => false,
        }
    }
}
