//! Parameters that callers give at every run, as those that are being learned.

use cognate_graph::{Builder, Error, Graph, Op, Tensor};

/// The graph with every parameter that `is_given` as an input of its name, before the other nodes.
///
/// # Errors
/// None that a caller can cause.
pub fn feed(graph: &Graph, is_given: impl Fn(&str) -> bool) -> Result<Graph, Error> {
    let builder = Builder::new(graph.name());
    let mut values: Vec<Tensor<'_>> = Vec::new();
    // Inputs stay in their order, which is part of a graph's interface; what was a parameter follows them.
    for (_, node) in graph.inputs() {
        builder.input(&node.name, node.ty.dtype, node.ty.shape.clone());
    }
    for (_, node) in graph.iter() {
        let value = match &node.op {
            Op::Input => builder.input(&node.name, node.ty.dtype, node.ty.shape.clone()),
            Op::Parameter if is_given(&node.name) => builder.input(&node.name, node.ty.dtype, node.ty.shape.clone()),
            Op::Parameter => builder.parameter(&node.name, node.ty.clone()),
            op => builder.node(&node.name, op.clone(), &node.inputs.iter().map(|input| values[input.index()]).collect::<Vec<_>>()),
        };
        values.push(value);
    }
    for output in graph.outputs() {
        builder.output(&output.name, values[output.node.index()]);
    }
    drop(values);
    builder.finish()
}
