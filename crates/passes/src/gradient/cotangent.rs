//! The cotangent of a node: `∂loss/∂y`, accumulated over its readers.

use cognate_graph::{Dim, Shape, Tensor};

/// The sum of the gradients from the readers of a value.
#[derive(Clone, Debug, Default)]
pub(super) struct Cotangent<'b> {
    /// Its shape broadcasts to the value's: an axis of equal elements may have size 1.
    dense: Option<Tensor<'b>>,
    rows: Vec<Rows<'b>>,
}

/// Values added to rows of a value reshaped to `table`; the other rows need no zeros.
#[derive(Clone, Debug)]
pub(super) struct Rows<'b> {
    table: Shape,
    /// i64 `[n]`
    ids: Tensor<'b>,
    /// `[n, ...]`
    updates: Tensor<'b>,
}

/// The contribution of one reader.
pub(super) enum Part<'b> {
    Dense(Tensor<'b>),
    Rows(Rows<'b>),
}

impl<'b> Rows<'b> {
    /// `updates: [a, b, ...]` at the rows `ids: [a, b]` of `table`.
    pub(super) fn new(table: &Shape, ids: Tensor<'b>, updates: Tensor<'b>) -> Self {
        let count = ids.ty().shape.elements();
        let row = table.dims()[1..].iter();
        Self {
            table: table.clone(),
            ids: ids.reshape([&count]),
            updates: updates.reshape([&count].into_iter().chain(row).collect::<Shape>()),
        }
    }
}

impl<'b> Cotangent<'b> {
    pub(super) fn is_zero(&self) -> bool {
        self.dense.is_none() && self.rows.is_empty()
    }

    pub(super) fn add(&mut self, part: Tensor<'b>) {
        self.dense = Some(self.dense.map_or(part, |sum| sum + part));
    }

    pub(super) fn take_in(&mut self, part: Part<'b>) {
        match part {
            Part::Dense(part) => self.add(part),
            Part::Rows(rows) => self.rows.push(rows),
        }
    }

    /// The sum, of a shape that broadcasts to that of `value`.
    pub(super) fn tensor(&self, value: Tensor<'b>) -> Tensor<'b> {
        let shape = value.ty().shape;
        let dense = self.dense.unwrap_or_else(|| value.number(0.0));
        if self.rows.is_empty() {
            return dense;
        }
        let add = |sum: Tensor<'b>, rows: &Rows<'b>| {
            sum.reshape(rows.table.clone()).scatter_add(rows.ids, rows.updates)
        };
        self.rows.iter().fold(full(dense, &shape), add).reshape(shape)
    }

    /// For the operand of a Reshape: the same elements under `shape`, with the additions to rows
    /// unchanged.
    pub(super) fn reshaped(self, value: Tensor<'b>, shape: &Shape) -> Vec<Part<'b>> {
        let dense = self
            .dense
            .map(|dense| Part::Dense(full(dense, &value.ty().shape).reshape(shape.clone())));
        dense.into_iter().chain(self.rows.into_iter().map(Part::Rows)).collect()
    }
}

/// `x` repeated to `shape`.
pub(super) fn full<'b>(x: Tensor<'b>, shape: &Shape) -> Tensor<'b> {
    if x.ty().shape == *shape { x } else { x.expand(shape.clone()) }
}

/// The gradient of an operand of shape `to` from `x`, the gradient of the value of shape `from` to
/// which it was broadcast: the sum over all its copies.
pub(super) fn summed<'b>(x: Tensor<'b>, from: &Shape, to: &Shape) -> Tensor<'b> {
    let extra = from.rank() - to.rank();
    let one = Dim::from(1);
    let is_repeated =
        |axis: usize| axis < extra || (to.dims()[axis - extra] == one && from.dims()[axis] != one);
    let axes: Vec<_> = (0..from.rank()).filter(|&axis| is_repeated(axis)).collect();
    if axes.is_empty() {
        return x;
    }
    let sum = full(x, from).sum(&axes);
    if extra == 0 { sum } else { sum.reshape(to.clone()) }
}
