//! The tensors that contain a value's elements, under one or several shapes.
//!
//! A Reshape moves nothing: the elements stay the same, row by row. So every value has a list of
//! [`Form`]s, and a Reshape is emitted when a shape without a form is requested. Chains of reshapes
//! collapse, and values between `Gemm` nodes stay `[rows, width]`.

use super::emit::value_info;
use super::{Lowering, before_reshapes, rows};
use crate::Error;
use crate::error::Problem;
use crate::lower::emit::Attribute;
use cognate_graph::{Dim, Node, NodeId, Op, Shape, Type};

/// A tensor that contains the elements under a shape.
pub(super) struct Form {
    shape: Shape,
    tensor: String,
}

/// Elements in rows of a length: a Reshape may form other rows of the same elements.
pub(super) type RowsOf = (usize, Option<Dim>);

impl Lowering<'_> {
    /// The rows of a node's value; a row is the last axis.
    pub(super) fn rows_of(&self, id: NodeId) -> RowsOf {
        (self.elements_of[id.index()], self.graph.node(id).ty.shape.dims().last().cloned())
    }

    /// Records `tensor` as the next node's value.
    pub(super) fn declare(&mut self, node: &Node, tensor: String) {
        self.declare_form(node.ty.shape.clone(), tensor);
    }

    /// Records `tensor`, of the given shape, as the next node's value.
    pub(super) fn declare_form(&mut self, shape: Shape, tensor: String) {
        self.elements_of.push(self.elements.len());
        self.elements.push(vec![Form { shape, tensor }]);
    }

    /// Emits the operation that computes the next node's value, in its own shape or as rows.
    pub(super) fn define(
        &mut self,
        id: NodeId,
        shape: &Shape,
        operator: &str,
        inputs: Vec<String>,
        attributes: &[Attribute],
    ) {
        let tensor = self.emit_form(id, shape, operator, inputs, attributes);
        self.declare_form(shape.clone(), tensor);
    }

    /// The tensor with a node's value in the graph's shape.
    pub(super) fn value(&mut self, id: NodeId) -> Result<String, Error> {
        self.form(id, &self.graph.node(id).ty.shape)
    }

    /// Whether a tensor contains the node's elements under `shape`.
    pub(super) fn has(&self, id: NodeId, shape: &Shape) -> bool {
        self.forms(id).iter().any(|form| form.shape == *shape)
    }

    /// The tensor with the node's elements under `shape`; emits a Reshape if there is none.
    pub(super) fn form(&mut self, id: NodeId, shape: &Shape) -> Result<String, Error> {
        if let Some(form) = self.forms(id).iter().find(|form| form.shape == *shape) {
            return Ok(form.tensor.clone());
        }
        if shape.dims().iter().any(|dim| dim.as_constant().is_some_and(|size| size <= 0)) {
            return Err(Problem::EmptyAxis {
                place: self.graph.node(id).name.clone(),
                shape: shape.clone(),
            }
            .into());
        }
        let constant = self
            .forms(id)
            .iter()
            .find_map(|form| Some((form.tensor.clone(), constant_target(&form.shape, shape)?)));
        let (tensor, target, attributes) = match constant {
            Some((tensor, target)) => (tensor, self.integers(&target), &[][..]),
            // A difference of sizes may be zero, and a size that grows in a loop; by default ONNX
            // copies the input's size for 0.
            None if has_difference(shape) || self.outside.is_some() => (
                self.forms(id)[0].tensor.clone(),
                self.shape(shape),
                &[Attribute::Int("allowzero", 1)][..],
            ),
            None => (self.forms(id)[0].tensor.clone(), self.shape(shape), &[][..]),
        };
        let tensor = self.emit_form(id, shape, "Reshape", vec![tensor, target], attributes);
        self.elements[self.elements_of[id.index()]]
            .push(Form { shape: shape.clone(), tensor: tensor.clone() });
        Ok(tensor)
    }

    /// A tensor whose shape is read: an input, which may be declared later, or an earlier node.
    pub(super) fn source(&self, id: NodeId) -> &str {
        let node = self.graph.node(id);
        match self.inputs.get(&id) {
            Some(tensor) => tensor,
            None if node.op == Op::Input => &node.name,
            None => &self.forms(id)[0].tensor,
        }
    }

    fn forms(&self, id: NodeId) -> &[Form] {
        &self.elements[self.elements_of[id.index()]]
    }

    /// Emits a node that computes the value of `id` under `shape`, named after the graph's node.
    fn emit_form(
        &mut self,
        id: NodeId,
        shape: &Shape,
        operator: &str,
        inputs: Vec<String>,
        attributes: &[Attribute],
    ) -> String {
        let Node { name, ty, .. } = self.graph.node(id);
        let ty_here = Type::new(ty.dtype, shape.clone());
        let title = self.titles.get(&(before_reshapes(self.graph, id), shape)).copied();
        // The first tensor gets the name.
        let title = title.filter(|title| self.titled.insert(title));
        if let (Some(title), true) = (title, ty.shape != *shape) {
            let node = self.node_names.fresh(name);
            self.emit(operator, node, title.to_owned(), inputs, attributes);
            return title.to_owned();
        }
        if ty.shape != *shape {
            let form = if *shape == rows(&ty.shape) { "flat" } else { "read" };
            return self.emit_between(
                operator,
                &format!("{name}.{form}"),
                inputs,
                attributes,
                &ty_here,
            );
        }
        let tensor = match title {
            Some(output) => output.to_owned(),
            None => {
                let tensor = self.tensor_names.fresh(name);
                self.made.value_info.push(value_info(&tensor, &ty_here));
                tensor
            }
        };
        let node = self.node_names.fresh(name);
        self.emit(operator, node, tensor.clone(), inputs, attributes);
        tensor
    }
}

fn has_difference(shape: &Shape) -> bool {
    shape
        .dims()
        .iter()
        .any(|dim| dim.terms().any(|(symbols, coefficient)| !symbols.is_empty() && coefficient < 0))
}

/// The target of a Reshape as constants, if the sizes of `from` allow it: `0` copies a size, one
/// `-1` is inferred.
///
/// Any symbol may be zero at run time, as `past` is on the first step. Next to a zero `-1` is
/// undefined, so it is only used with constants.
fn constant_target(from: &Shape, to: &Shape) -> Option<Vec<i64>> {
    let copied = |axis: usize| match to.dims()[axis].as_constant() {
        Some(size) => Some(size),
        None => (from.dims().get(axis) == Some(&to.dims()[axis])).then_some(0),
    };
    if let Some(target) = (0..to.rank()).map(copied).collect() {
        return Some(target);
    }
    let target: Vec<_> = to.dims().iter().map(|dim| dim.as_constant().unwrap_or(-1)).collect();
    (target.iter().filter(|&&size| size == -1).count() == 1).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cognate_graph::Dim;

    #[test]
    fn constant_targets_are_never_ambiguous() {
        let shape = |text: &str| -> Shape {
            let dim = |word: &str| {
                word.parse::<i64>().map_or_else(
                    |_| word.split('*').map(Dim::symbol).fold(Dim::from(1), |a, b| a * b),
                    Dim::from,
                )
            };
            text.split_whitespace().map(dim).collect()
        };
        let cases = [
            ("batch tgt 8", "batch tgt 2 4", Some(vec![0, 0, 2, 4])),
            ("batch*tgt 8", "batch tgt 8", None),
            ("batch tgt 8", "batch*tgt 8", Some(vec![-1, 8])),
            ("batch 2 past 4", "batch 2*past 4", None),
            ("batch 8", "2 batch 4", Some(vec![2, -1, 4])),
            ("6", "2 3", Some(vec![2, 3])),
            ("1", "", Some(vec![])),
        ];
        for (from, to, expected) in cases {
            assert_eq!(constant_target(&shape(from), &shape(to)), expected, "{from} -> {to}");
        }
    }
}
