//! Matrices that loops inside of loops read.
//!
//! ONNX Runtime packs a matrix that a loop's body multiplies by only if it is a constant of the
//! body or of the graph directly around it (1.31.1: otherwise 4 beams of the bundled model take 1.2
//! times as long). So matrices from farther out pass a `Reshape` there that does not change them:
//! it is folded to a constant. Initializers of the inner graph would need no copy while the model is
//! loaded, but ONNX Runtime Web 1.30 cannot read external data there.

use crate::proto::{DataType, GraphProto, NodeProto, TensorProto};
use std::collections::{BTreeSet, HashMap};

/// Changes the bodies of the loops of `graph`, which has `weights` as initializers.
pub(crate) fn fold_near_loops(graph: &mut GraphProto, weights: &[TensorProto]) {
    let matrices: BTreeSet<_> = weights
        .iter()
        .filter(|tensor| tensor.dims.len() == 2)
        .map(|tensor| tensor.name.clone())
        .collect();
    graph.node.iter_mut().flat_map(bodies_mut).for_each(|body| fold_in(body, &matrices));
}

/// Adds a constant of `graph` for each matrix by which the bodies of its loops multiply.
fn fold_in(graph: &mut GraphProto, matrices: &BTreeSet<String>) {
    let inner = graph.node.iter().flat_map(bodies).flat_map(|body| &body.node);
    let read: BTreeSet<_> = inner
        .filter(|node| multiplies(node))
        .flat_map(|node| &node.input)
        .filter(|input| matrices.contains(*input))
        .cloned()
        .collect();
    let near = |name: &String| format!("{name}.{}", graph.name);
    let names: HashMap<_, _> = read.iter().map(|name| (name.clone(), near(name))).collect();
    let shape = format!("shape.{}", graph.name);
    let unchanged = |name: &String| NodeProto {
        input: vec![name.clone(), shape.clone()],
        output: vec![near(name)],
        name: near(name),
        op_type: "Reshape".into(),
        ..NodeProto::default()
    };
    let added: Vec<_> = read.iter().map(unchanged).collect();
    if !added.is_empty() {
        // Zeros keep the sizes of the input.
        graph.initializer.push(TensorProto {
            dims: vec![2],
            data_type: DataType::Int64.into(),
            name: shape.clone(),
            raw_data: Some(vec![0; 2 * size_of::<i64>()].into()),
            ..TensorProto::default()
        });
    }
    let rename = |input: &mut String| {
        if let Some(name) = names.get(input) {
            input.clone_from(name);
        }
    };
    for body in graph.node.iter_mut().flat_map(bodies_mut) {
        let products = body.node.iter_mut().filter(|node| multiplies(node));
        products.flat_map(|node| &mut node.input).for_each(rename);
        fold_in(body, matrices);
    }
    graph.node.splice(0..0, added);
}

fn multiplies(node: &NodeProto) -> bool {
    ["Gemm", "MatMul", "MatMulInteger"].contains(&node.op_type.as_str())
}

fn bodies(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().filter_map(|attribute| attribute.g.as_ref())
}

fn bodies_mut(node: &mut NodeProto) -> impl Iterator<Item = &mut GraphProto> {
    node.attribute.iter_mut().filter_map(|attribute| attribute.g.as_mut())
}
