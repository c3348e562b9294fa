//! Constant sizes in place of symbols, and caches of fixed capacity.
//!
//! The keys of the tokens so far are at the beginning of a cache, and the step appends the new one
//! at its end. The positions of keys, which are `0..past + 1` in a cache that grows, are therefore
//! an input: keys that are not written yet have positions after the query's, and the causal mask
//! hides them.

use super::PAST;
use crate::Result;
use crate::error::Cause;
use cognate_graph::{Bindings, Builder, DType, Dim, Graph, Node, Op, Symbol, Tensor};

/// The sizes of a graph whose shapes are constants. The number of beams is also constant, that of
/// its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedSizes {
    /// The number of sentences.
    pub batch: usize,
    /// The number of positions of a source, end token included, and of a target, start token
    /// included; at least 3.
    pub length: usize,
}

impl FixedSizes {
    /// The capacity of caches: the last token of a target is never read, and the one before it is
    /// new.
    pub(super) fn capacity(self) -> usize {
        self.length.saturating_sub(2)
    }

    pub(super) fn check(self, most: usize) -> Result<()> {
        if self.batch == 0 || !(3..=most).contains(&self.length) {
            let message = format!(
                "max_batch {}, max_length {}: expected at least one sentence, and from 3 to {most} positions",
                self.batch, self.length
            );
            return Err(Cause::Contradiction(message).into());
        }
        Ok(())
    }

    pub(super) fn bindings(self, beams: usize) -> Bindings {
        let mut bindings = Bindings::default();
        for (symbol, size) in
            [("batch", self.batch), ("src", self.length), ("beams", beams), (PAST, self.capacity())]
        {
            let _ = bindings.bind(&Symbol::from(symbol), size);
        }
        bindings
    }
}

/// Inputs of a step with constant sizes: the position of the new token, i64 `[1]`, and those of the
/// keys, i64 `[capacity + 1]`.
pub(super) const QUERY_POSITION: &str = "search.query_position";
pub(super) const KEY_POSITIONS: &str = "search.key_positions";

/// A copy of `graph` with constant sizes.
pub(super) fn with_sizes(graph: &Graph, sizes: &Bindings) -> Result<Graph> {
    let builder = Builder::new(graph.name());
    {
        let mut values: Vec<Tensor<'_>> = Vec::new();
        for (_, node) in graph.iter() {
            let shape = node.ty.shape.dims().iter().map(|dim| dim.bound(sizes)).collect::<Vec<_>>();
            let reads_past =
                node.op.dims().iter().flat_map(Dim::symbols).any(|symbol| **symbol == *PAST);
            let value = match &node.op {
                Op::Input => builder.input(&node.name, node.ty.dtype, shape),
                Op::Parameter => builder.parameter(&node.name, node.ty.clone()),
                Op::Range { start, end } if reads_past => {
                    positions(&builder, sizes, node, [start, end])?
                }
                Op::Slice { .. } if reads_past => return Err(no_form(node)),
                op => {
                    let inputs: Vec<_> =
                        node.inputs.iter().map(|input| values[input.index()]).collect();
                    builder.node(&node.name, op.resized(|dim| dim.bound(sizes)), &inputs)
                }
            };
            values.push(value);
        }
        graph
            .outputs()
            .iter()
            .for_each(|output| builder.output(&output.name, values[output.node.index()]));
    }
    Ok(builder.finish()?)
}

/// Positions `past + n..past + n + 1` of queries or `n..past + n + 1` of keys.
fn positions<'g>(
    builder: &'g Builder,
    sizes: &Bindings,
    node: &Node,
    [start, end]: [&Dim; 2],
) -> Result<Tensor<'g>> {
    let past = Dim::from(PAST);
    let input = |name: &str, size: &Dim| builder.input(name, DType::I64, [size.bound(sizes)]);
    let (positions, first) = match (start.as_constant(), (start - &past).as_constant()) {
        (Some(first), _) if *end == &past + first + 1 => (input(KEY_POSITIONS, &(past + 1)), first),
        (_, Some(first)) if *end == start + 1 => (input(QUERY_POSITION, &Dim::from(1)), first),
        _ => return Err(no_form(node)),
    };
    Ok(if first == 0 { positions } else { positions + builder.integer(first) })
}

fn no_form(node: &Node) -> crate::Error {
    Cause::Contradiction(format!(
        "{}: has no form with constant sizes; export without --max-batch",
        node.name
    ))
    .into()
}
