//! Folding: the same values from fewer nodes.
//!
//! Equal operations on equal values become one node. Consecutive reshapes and transposes become
//! one, or none. An expansion to the same shape, a sum over axes of size 1, a product with 1 and a
//! sum with 0 are replaced by their operand.

use cognate_graph::{Binary, Builder, Class, Dim, Error, Graph, NodeId, Op, Scalar, Tensor};
use std::collections::HashMap;

/// The graph, folded. Inputs, parameters and outputs keep their names; a merged node has the name
/// of the first.
///
/// # Errors
/// Never for a graph that [`Builder::finish`](cognate_graph::Builder::finish) returned.
pub fn fold(graph: &Graph) -> Result<Graph, Error> {
    let builder = Builder::new(graph.name());
    let mut made = Made { builder: &builder, shared: HashMap::new(), nodes: HashMap::new() };
    let mut values: Vec<Tensor<'_>> = Vec::new();
    for (_, node) in graph.iter() {
        let input = |id: NodeId| values[id.index()];
        let value = if node.op.class() == Class::Declared {
            builder.copy(node, input)
        } else {
            made.value(&node.name, &node.op, node.inputs.iter().copied().map(input).collect())
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
    /// By operation and inputs.
    shared: HashMap<(String, Vec<NodeId>), Tensor<'b>>,
    /// The emitted nodes.
    nodes: HashMap<NodeId, (Op, Vec<Tensor<'b>>)>,
}

impl<'b> Made<'b> {
    /// The value of `op` on `inputs`, from an existing node or a new one.
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

    /// One operation that replaces this one and the previous one, and its input.
    fn in_a_row(&self, op: &Op, inputs: &[Tensor<'b>]) -> Option<(Op, Tensor<'b>)> {
        let (before, input) = self
            .nodes
            .get(&inputs.first()?.id())
            .map(|(op, inputs)| (op, inputs.first().copied()))?;
        if let (Op::Reshape(_), Op::Reshape(_)) = (op, before) {
            return Some((op.clone(), input?));
        }
        if let (Op::Transpose(order), Op::Transpose(first)) = (op, before) {
            return Some((Op::Transpose(order.iter().map(|&axis| first[axis]).collect()), input?));
        }
        let Op::Sum(axes) = op else { return None };
        let dims = inputs[0].ty().shape;
        let left: Vec<_> =
            axes.iter().copied().filter(|&axis| dims.dims()[axis] != Dim::from(1)).collect();
        (left.len() < axes.len()).then(|| (Op::Sum(left), inputs[0]))
    }

    /// The operand, if the operation returns it unchanged.
    fn operand(&self, op: &Op, inputs: &[Tensor<'b>]) -> Option<Tensor<'b>> {
        let &first = inputs.first()?;
        if let Op::Binary(function) = op {
            return self.without_unit(*function, first, *inputs.get(1)?);
        }
        let same_shape =
            matches!(op, Op::Reshape(shape) | Op::Expand(shape) if *shape == first.ty().shape);
        let same_order = matches!(op, Op::Transpose(order) if order.is_sorted());
        let no_axes = matches!(op, Op::Sum(axes) if axes.is_empty());
        let same_type = matches!(op, Op::Cast(dtype) if *dtype == first.ty().dtype);
        (same_shape || same_order || no_axes || same_type).then_some(first)
    }

    /// The operand of a sum with 0 or a product with 1.
    fn without_unit(
        &self,
        function: Binary,
        left: Tensor<'b>,
        right: Tensor<'b>,
    ) -> Option<Tensor<'b>> {
        let (unit, both_sides) = match function {
            Binary::Add => (0.0, true),
            Binary::Sub => (0.0, false),
            Binary::Mul => (1.0, true),
            Binary::Div => (1.0, false),
            Binary::Rem | Binary::Min | Binary::Max | Binary::Pow | Binary::And | Binary::Or => {
                return None;
            }
        };
        let keeps = |kept: Tensor<'b>, other: Tensor<'b>| {
            self.is_number(other, unit)
                && kept.ty().shape.broadcast(&other.ty().shape).as_ref() == Some(&kept.ty().shape)
        };
        if keeps(left, right) {
            Some(left)
        } else {
            (both_sides && keeps(right, left)).then_some(right)
        }
    }

    /// Whether a value is the constant `number` of shape `[]`.
    fn is_number(&self, value: Tensor<'b>, number: f32) -> bool {
        match self.nodes.get(&value.id()) {
            Some((Op::Scalar(Scalar::F32(found)), _)) => *found == number,
            Some((Op::Scalar(Scalar::F16(found)), _)) => found.to_f32() == number,
            Some(_) | None => false,
        }
    }
}
