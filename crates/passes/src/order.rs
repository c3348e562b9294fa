//! The order of nodes, on which an engine's memory depends.

use cognate_graph::{Builder, Class, Error, Graph, NodeId, Tensor};
use std::collections::BTreeSet;

/// The graph with its leaves, which no other node reads, behind all others, the last leaf first.
///
/// ONNX Runtime (1.31) computes all that the last leaf needs, then what the leaf before it needs in
/// addition. The gradients of weights are leaves, in the order in which the backward pass finds them:
/// from the last layer to the first. In that order the engine would go back through all layers before
/// it computes the gradients of the last layer's weights, and would keep what they are computed from.
///
/// # Errors
/// Never for a graph that [`Builder::finish`] returned.
///
/// ```
/// use cognate_graph::{Builder, DType, Unary};
/// use cognate_passes::order::leaves_in_reverse;
///
/// let builder = Builder::new("roots");
/// let x = builder.input("x", DType::F32, ["rows"]);
/// let once = x.map(Unary::Sqrt);
/// builder.output("once_more", once + once);
/// builder.output("twice", once.map(Unary::Sqrt));
/// let graph = leaves_in_reverse(&builder.finish()?)?;
/// let names: Vec<&str> = graph.nodes().iter().map(|node| node.op.name()).collect();
/// assert_eq!(names, ["Input", "Sqrt", "Sqrt", "Add"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn leaves_in_reverse(graph: &Graph) -> Result<Graph, Error> {
    let read: BTreeSet<NodeId> =
        graph.nodes().iter().flat_map(|node| &node.inputs).copied().collect();
    let (inner, mut last): (Vec<_>, Vec<_>) = graph
        .iter()
        .partition(|(id, node)| read.contains(id) || node.op.class() == Class::Declared);
    last.reverse();
    let builder = Builder::new(graph.name());
    let mut values: Vec<Option<Tensor<'_>>> = vec![None; graph.nodes().len()];
    let value = |values: &[Option<_>], id: NodeId| values[id.index()].expect("operands come first");
    for (id, node) in inner.into_iter().chain(last) {
        values[id.index()] = Some(builder.copy(node, |input| value(&values, input)));
    }
    for output in graph.outputs() {
        builder.output(&output.name, value(&values, output.node));
    }
    drop(values);
    builder.finish()
}
