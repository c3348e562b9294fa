//! Parameters as inputs, for weights that are trained.

use cognate_graph::{Builder, DType, Error, Graph, Op, Tensor};

/// The graph with the parameters for which `is_given` is true as inputs of the same name. Those in
/// half precision are inputs in f32, which are cast.
///
/// # Errors
/// Never for a graph that [`Builder::finish`](cognate_graph::Builder::finish) returned.
pub fn feed(graph: &Graph, is_given: impl Fn(&str) -> bool) -> Result<Graph, Error> {
    let builder = Builder::new(graph.name());
    let mut values: Vec<Tensor<'_>> = Vec::new();
    // Inputs keep their order, which is part of a graph's interface; former parameters follow.
    for (_, node) in graph.inputs() {
        builder.input(&node.name, node.ty.dtype, node.ty.shape.clone());
    }
    for (_, node) in graph.iter() {
        let value = if node.op == Op::Parameter && is_given(&node.name) {
            let is_half = node.ty.dtype == DType::F16;
            let dtype = if is_half { DType::F32 } else { node.ty.dtype };
            let input = builder.input(&node.name, dtype, node.ty.shape.clone());
            if is_half { input.cast(DType::F16) } else { input }
        } else {
            builder.copy(node, |input| values[input.index()])
        };
        values.push(value);
    }
    for output in graph.outputs() {
        builder.output(&output.name, values[output.node.index()]);
    }
    drop(values);
    builder.finish()
}
