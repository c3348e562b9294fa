//! Sizes that a graph computes from the shapes of its inputs.

use super::places::Places;
use super::{Result, Tensors};

/// A size that depends on inputs `I`: their names in a graph, or their indices in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Size<I = usize> {
    Number(i64),
    /// An axis of an input.
    Axis(I, usize),
    /// The first plus a multiple of the second: a sum or a difference.
    Sum(Box<Size<I>>, Box<Size<I>>, i64),
    Product(Box<Size<I>>, Box<Size<I>>),
    /// A size divided by a number above 0, rounded down.
    Quotient(Box<Size<I>>, i64),
}

impl<I> Size<I> {
    /// The size with other inputs.
    pub(super) fn with<J>(self, input: &mut impl FnMut(I) -> J) -> Size<J> {
        match self {
            Size::Number(number) => Size::Number(number),
            Size::Axis(tensor, axis) => Size::Axis(input(tensor), axis),
            Size::Sum(one, other, factor) => {
                Size::Sum(Box::new(one.with(input)), Box::new(other.with(input)), factor)
            }
            Size::Product(one, other) => {
                Size::Product(Box::new(one.with(input)), Box::new(other.with(input)))
            }
            Size::Quotient(size, by) => Size::Quotient(Box::new(size.with(input)), by),
        }
    }

    /// The inputs.
    pub(super) fn inputs(&self) -> Vec<&I> {
        match self {
            Size::Number(_) => Vec::new(),
            Size::Axis(tensor, _) => vec![tensor],
            Size::Sum(one, other, _) | Size::Product(one, other) => {
                one.inputs().into_iter().chain(other.inputs()).collect()
            }
            Size::Quotient(size, _) => size.inputs(),
        }
    }
}

/// The values in a call.
pub(super) fn values<'c>(sizes: &[Size], tensors: &dyn Tensors<'c>) -> Result<Vec<usize>> {
    fn value<'c>(size: &Size, tensors: &dyn Tensors<'c>) -> Result<i64> {
        Ok(match size {
            Size::Number(number) => *number,
            Size::Axis(input, axis) => {
                tensors.shape(*input)?.get(*axis).map_or(0, |&size| size as i64)
            }
            Size::Sum(one, other, factor) => value(one, tensors)? + factor * value(other, tensors)?,
            Size::Product(one, other) => {
                value(one, tensors)?.saturating_mul(value(other, tensors)?)
            }
            Size::Quotient(size, by) => value(size, tensors)? / by,
        })
    }
    sizes
        .iter()
        .map(|size| {
            usize::try_from(value(size, tensors)?).map_err(|_| "a size is below zero".into())
        })
        .collect()
}

impl<'g> Places<'g> {
    /// The sizes in a tensor, if it is computed from shapes of the graph's inputs.
    pub(crate) fn sizes(&self, tensor: &'g str) -> Option<Vec<Size<&'g str>>> {
        if let Some(constant) = self.constant(tensor) {
            let (numbers, rest) = constant.raw_data.as_deref()?.as_chunks::<8>();
            return rest.is_empty().then(|| {
                numbers.iter().map(|bytes| Size::Number(i64::from_le_bytes(*bytes))).collect()
            });
        }
        let node = &self.graph.node[self.source(tensor)?];
        let first = node.input.first()?;
        let attribute = |name| node.attribute.iter().find(|attribute| attribute.name == name)?.i;
        match node.op_type.as_str() {
            "Shape" if self.graph.input.iter().any(|input| input.name == *first) => {
                let [start, end] =
                    [attribute("start")?, attribute("end")?].map(|axis| usize::try_from(axis).ok());
                Some((start?..end?).map(|axis| Size::Axis(first.as_str(), axis)).collect())
            }
            "Squeeze" | "Cast" => self.sizes(first),
            "Concat" => node
                .input
                .iter()
                .map(|input| self.sizes(input))
                .collect::<Option<Vec<_>>>()
                .map(|parts| parts.concat()),
            "Add" | "Sub" | "Mul" => {
                let ([one], [other]) = (
                    <[_; 1]>::try_from(self.sizes(first)?).ok()?,
                    <[_; 1]>::try_from(self.sizes(node.input.get(1)?)?).ok()?,
                );
                let (one, other) = (Box::new(one), Box::new(other));
                Some(vec![match node.op_type.as_str() {
                    "Add" => Size::Sum(one, other, 1),
                    "Sub" => Size::Sum(one, other, -1),
                    _ => Size::Product(one, other),
                }])
            }
            "Div" => {
                let [size] = <[_; 1]>::try_from(self.sizes(first)?).ok()?;
                let by = self.integer(node.input.get(1)?).filter(|by| *by > 0)?;
                Some(vec![Size::Quotient(Box::new(size), by)])
            }
            _ => None,
        }
    }
}
