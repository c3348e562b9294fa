//! Layers in bfloat16, the upper half of f32: 8 bits of precision (Kalamkar et al. 2019).
//!
//! The weight of every layer and every table of tokens is stored in bfloat16, in half of the
//! memory. The rows that a layer multiplies are rounded to it and their products are added in f32,
//! as processors and accelerators with such instructions do. Attention, normalisations, biases and
//! other tables stay f32. Weights stay lazy recipes.

use crate::quantize::{is_given, is_plain};
use cognate_graph::{Builder, DType, Element, Error, NodeId, Op, Program, Recipe, Tensor, Type};
use std::collections::BTreeMap;

/// Converts a program.
///
/// # Errors
/// Never for a graph that [`Builder::finish`](cognate_graph::Builder::finish) returned.
pub fn in_bfloat16(program: &Program) -> Result<Program, Error> {
    let graph = program.graph();
    let builder = Builder::new(graph.name());
    let mut weights: BTreeMap<String, Recipe> =
        program.weights().iter().map(|(path, recipe)| (path.into(), recipe.clone())).collect();
    let mut values: Vec<Tensor<'_>> = Vec::new();
    // Rows that several layers read are rounded once.
    let mut rounded = BTreeMap::new();
    for (_, node) in graph.iter() {
        let input = |id: NodeId| values[id.index()];
        let convert = |tensor: Tensor<'_>, what: &str, dtype| {
            builder.node(&format!("{}.{what}", node.name), Op::Cast(dtype), &[tensor])
        };
        let mut stored = |id: NodeId| {
            let weight = &graph.node(id).name;
            let recipe =
                program.weights().get(weight).expect("a program has a weight for each parameter");
            let path = format!("{weight}.bf16");
            weights.insert(path.clone(), recipe.to(Element::Bf16));
            builder.parameter(&path, Type::new(DType::Bf16, recipe.shape()))
        };
        values.push(match node.op {
            Op::Linear if is_plain(graph, node.inputs[1]) => {
                let x = *rounded.entry(node.inputs[0]).or_insert_with(|| {
                    let stored = convert(input(node.inputs[0]), "bf16", DType::Bf16);
                    convert(stored, "rounded", DType::F32)
                });
                let weight = convert(stored(node.inputs[1]), "weight", DType::F32);
                let bias = node.inputs.get(2).copied().map(input);
                builder.node(
                    &node.name,
                    Op::Linear,
                    &[x, weight].into_iter().chain(bias).collect::<Vec<_>>(),
                )
            }
            Op::Gather if is_plain(graph, node.inputs[0]) && is_given(graph, node.inputs[1]) => {
                let part = format!("{}.bf16", node.name);
                let rows = builder.node(
                    &part,
                    Op::Gather,
                    &[stored(node.inputs[0]), input(node.inputs[1])],
                );
                builder.node(&node.name, Op::Cast(DType::F32), &[rows])
            }
            _ => builder.copy(node, input),
        });
    }
    for output in graph.outputs() {
        builder.output(&output.name, values[output.node.index()]);
    }
    drop((values, rounded));
    Program::new(builder.finish()?, weights.into_iter().collect())
}
