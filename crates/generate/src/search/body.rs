//! The body of the loop: a separate graph, which reads values of the graph around it.

use super::PAST;
use crate::Result;
use crate::error::Cause;
use cognate_graph::{
    Builder, Class, DType, Dim, Graph, NodeId, Op, Repeat, Shape, Symbol, Tensor, Type,
};
use std::collections::HashMap;

/// Values of the graph around the loop that the body reads, `'o` outside and `'i` inside.
pub(super) struct Captured<'o, 'i> {
    inner: &'i Builder,
    name: &'static str,
    pub(super) outside: Vec<Tensor<'o>>,
    inside: HashMap<NodeId, Tensor<'i>>,
    /// A symbol outside, and its name inside.
    renamed: Option<[&'static str; 2]>,
}

/// The values that `inside` returns, which gets `carried` as the body reads it, if `condition` is
/// true, and otherwise `carried`: a loop of at most one iteration.
pub(super) fn when<'o>(
    name: &'static str,
    condition: Tensor<'o>,
    carried: &[Tensor<'o>],
    inside: impl for<'i> FnOnce(&mut Captured<'o, 'i>, &[Tensor<'i>]) -> Result<Vec<Tensor<'i>>>,
) -> Result<Vec<Tensor<'o>>> {
    let inner = Builder::new(name);
    inner.input(&format!("{name}.iteration"), DType::I64, Shape::default());
    let carry = |(index, value): (usize, &Tensor<'o>)| {
        let Type { dtype, shape } = value.ty();
        inner.input(&format!("{name}.{index}"), dtype, shape)
    };
    let values: Vec<_> = carried.iter().enumerate().map(carry).collect();
    let mut captured = Captured::new(&inner, name);
    {
        let _scope = inner.root().at(name).enter();
        let next = inside(&mut captured, &values)?;
        inner.output(&format!("{name}.next.condition"), inner.integer(0).cast(DType::Bool));
        next.into_iter()
            .enumerate()
            .for_each(|(index, value)| inner.output(&format!("{name}.next.{index}"), value));
    }
    let outside = captured.outside;
    drop(values);
    let body = inner.finish()?;
    Ok(condition.builder().repeat(Repeat { body, most: 1, condition, carried, captured: &outside }))
}

/// Rows of sentences: `values: [batch, n, ...]`, `rows: i64 [batch, m]` among `batch · n` ->
/// `[batch, m, ...]`.
fn rows<'i>(values: Tensor<'i>, rows: Tensor<'i>) -> Tensor<'i> {
    let shape = values.ty().shape;
    let [batch, n, rest @ ..] = shape.dims() else { return values };
    values.reshape([&(batch * n)].into_iter().chain(rest).collect::<Shape>()).gather(rows)
}

/// The values of each beam's parent.
pub(super) fn moved<'i>(
    values: Tensor<'i>,
    parents: Tensor<'i>,
    first_row: Tensor<'i>,
) -> Tensor<'i> {
    rows(values, parents + first_row)
}

impl<'o, 'i> Captured<'o, 'i> {
    pub(super) fn new(inner: &'i Builder, name: &'static str) -> Self {
        Self { inner, name, outside: Vec::new(), inside: HashMap::new(), renamed: None }
    }

    /// The same for a body in which a symbol has another name.
    pub(super) fn renaming(self, renamed: Option<[&'static str; 2]>) -> Self {
        Self { renamed, ..self }
    }

    fn size(&self, dim: &Dim) -> Dim {
        self.renamed.map_or_else(|| dim.clone(), |[from, to]| dim.renamed(from, to))
    }

    /// An input of the body, with a type of the graph around it.
    pub(super) fn declare(&self, name: &str, ty: &Type) -> Tensor<'i> {
        let shape: Shape = ty.shape.dims().iter().map(|dim| self.size(dim)).collect();
        self.inner.input(name, ty.dtype, shape)
    }

    /// The value as the body reads it. Call it after every carried value is declared.
    pub(super) fn read(&mut self, value: Tensor<'o>) -> Tensor<'i> {
        if let Some(&inside) = self.inside.get(&value.id()) {
            return inside;
        }
        let name = format!("{}.captured.{}", self.name, self.outside.len());
        let inside = self.declare(&name, &value.ty());
        self.outside.push(value);
        self.inside.insert(value.id(), inside);
        inside
    }

    /// The outputs of `graph` in the body, by name. An input is given inside or outside; values
    /// that depend neither on inputs given inside nor on sizes that change are computed before the
    /// loop.
    pub(super) fn inline<'g>(
        &mut self,
        graph: &'g Graph,
        outer: &'o Builder,
        inside: &HashMap<String, Tensor<'i>>,
        outside: &HashMap<&str, Tensor<'o>>,
    ) -> Result<HashMap<&'g str, Tensor<'i>>> {
        let changes = |symbol: &Symbol| **symbol == *PAST;
        let mut values: Vec<Value<'o, 'i>> = Vec::new();
        for (_, node) in graph.iter() {
            let is_fixed = !node
                .op
                .dims()
                .iter()
                .chain(node.ty.shape.dims())
                .flat_map(|dim| dim.symbols())
                .any(changes);
            let is_before = is_fixed
                && node
                    .inputs
                    .iter()
                    .all(|input| !matches!(values[input.index()], Value::Inside(_)));
            let value = if node.op == Op::Input {
                match (inside.get(&node.name), outside.get(node.name.as_str())) {
                    (Some(&value), _) => Value::Inside(value),
                    (None, Some(&value)) => Value::Outside(value),
                    (None, None) => {
                        let expected = format!("an output {}, which the decoder reads", node.name);
                        return Err(Cause::Layout {
                            graph: "encoder",
                            expected,
                            found: "none".into(),
                        }
                        .into());
                    }
                }
            } else if matches!(node.op.class(), Class::Declared | Class::Constant) && is_before {
                let inside = match node.op.class() {
                    Class::Declared => self.inner.copy(node, |_| unreachable!("it has no inputs")),
                    _ => self.inner.node(&node.name, node.op.resized(|dim| self.size(dim)), &[]),
                };
                Value::Both(inside, outer.copy(node, |_| unreachable!("it has no inputs")))
            } else if is_before {
                Value::Outside(outer.copy(node, |input| values[input.index()].outside()))
            } else {
                let inputs: Vec<_> =
                    node.inputs.iter().map(|input| values[input.index()].inside(self)).collect();
                let op = node.op.resized(|dim| self.size(dim));
                Value::Inside(self.inner.node(&node.name, op, &inputs))
            };
            values.push(value);
        }
        Ok(graph
            .outputs()
            .iter()
            .map(|output| (output.name.as_str(), values[output.node.index()].inside(self)))
            .collect())
    }
}

/// A value of the inlined graph.
#[derive(Clone, Copy)]
enum Value<'o, 'i> {
    Inside(Tensor<'i>),
    Outside(Tensor<'o>),
    /// A weight or constant: inside and outside.
    Both(Tensor<'i>, Tensor<'o>),
}

impl<'o, 'i> Value<'o, 'i> {
    fn outside(self) -> Tensor<'o> {
        match self {
            Value::Outside(value) | Value::Both(_, value) => value,
            Value::Inside(_) => unreachable!("only values before the loop are requested"),
        }
    }

    fn inside(self, captured: &mut Captured<'o, 'i>) -> Tensor<'i> {
        match self {
            Value::Inside(value) | Value::Both(value, _) => value,
            Value::Outside(value) => captured.read(value),
        }
    }
}
