//! Reverse mode differentiation: the gradient of a graph is a graph (Griewank & Walther 2008,
//! chapter 3).
//!
//! `∂loss/∂x = Σ over nodes y that read x of (∂y/∂x)ᵀ ∂loss/∂y`, from the loss back to the
//! parameters. The rule of each operation is in `rules`. Gradients of broadcast operands are
//! summed; gradients of tables are added to the rows that were read.
//!
//! Only gradients on a path to a wanted parameter are computed; equal values are computed once.
//!
//! ```
//! use cognate_graph::{Builder, DType};
//! use cognate_passes::gradient::gradient;
//!
//! let builder = Builder::new("square");
//! let x = builder.input("x", DType::F32, ["rows"]);
//! builder.output("loss", (x * x).sum(&[0]).reshape([] as [i64; 0]));
//! let graph = gradient(&builder.finish()?, "loss", &["x"])?;
//! assert_eq!(graph.output("gradient.x").unwrap().ty.to_string(), "f32 [rows]");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod conv;
mod cotangent;
mod rules;

use crate::Error;
use crate::error::Cause;
use crate::fold::fold;
use cognate_graph::{Builder, Dim, Graph, Node, NodeId, Op, Tensor};
use cotangent::{Cotangent, full};
use std::collections::HashMap;

/// The output with the gradient of the parameter or input at `path`.
pub fn gradient_name(path: &str) -> String {
    format!("gradient.{path}")
}

/// The graph with all its outputs and, for each parameter or input in `wanted`, an output
/// [`gradient.PATH`](gradient_name) of its shape: the gradient of the scalar output `loss`.
///
/// # Errors
/// If the output or a parameter does not exist or is not floating point, or if an operation between
/// them has no gradient; the error names it.
pub fn gradient(graph: &Graph, loss: &str, wanted: &[&str]) -> Result<Graph, Error> {
    let loss = loss_of(graph, loss)?;
    let wanted = find(graph, wanted)?;
    let needed = needed(graph, &wanted);
    let builder = Builder::new(graph.name());
    let values = copy(graph, &builder);
    let mut cotangents: Vec<Cotangent<'_>> = vec![Cotangent::default(); graph.nodes().len()];
    cotangents[loss.index()].add(values[loss.index()].number(1.0));
    let mut gradients: HashMap<NodeId, Tensor<'_>> = HashMap::new();
    let nodes: Vec<_> = graph.iter().collect();
    for &(id, node) in nodes.iter().rev() {
        let cotangent = std::mem::take(&mut cotangents[id.index()]);
        if !needed[id.index()] || cotangent.is_zero() {
            continue;
        }
        let value = values[id.index()];
        let _scope = builder.root().at("gradient").at(scope_of(node)).enter();
        if wanted.contains(&id) {
            gradients.insert(id, full(cotangent.tensor(value), &node.ty.shape));
            continue;
        }
        let inputs: Vec<_> = node.inputs.iter().map(|input| values[input.index()]).collect();
        let parts =
            rules::parts(&node.op, &inputs, value, cotangent).ok_or_else(|| Cause::NoGradient {
                node: node.name.clone(),
                operation: node.op.name(),
                of: wanted_through(graph, &wanted, id),
            })?;
        for (operand, part) in parts {
            let input = node.inputs[operand];
            if needed[input.index()] {
                cotangents[input.index()].take_in(part);
            }
        }
    }
    for output in graph.outputs() {
        builder.output(&output.name, values[output.node.index()]);
    }
    for id in wanted {
        let node = graph.node(id);
        let zeros = || values[id.index()].number(0.0).expand(node.ty.shape.clone());
        builder
            .output(&gradient_name(&node.name), gradients.get(&id).copied().unwrap_or_else(zeros));
    }
    drop((values, cotangents, gradients));
    Ok(fold(&builder.finish()?)?)
}

fn loss_of(graph: &Graph, name: &str) -> Result<NodeId, Error> {
    let output =
        graph.outputs().iter().find(|output| output.name == name).ok_or_else(|| Cause::Output {
            graph: graph.name().into(),
            name: name.into(),
            known: graph.outputs().iter().map(|output| output.name.clone()).collect(),
        })?;
    let ty = &graph.node(output.node).ty;
    if !ty.dtype.is_float() || ty.shape.elements() != Dim::from(1) {
        return Err(Cause::Loss { name: name.into(), ty: ty.clone() }.into());
    }
    Ok(output.node)
}

fn find(graph: &Graph, wanted: &[&str]) -> Result<Vec<NodeId>, Error> {
    let declared: HashMap<_, _> = graph
        .inputs()
        .chain(graph.parameters())
        .map(|(id, node)| (node.name.as_str(), id))
        .collect();
    let missing: Vec<_> = wanted
        .iter()
        .filter(|path| !declared.contains_key(**path))
        .map(ToString::to_string)
        .collect();
    if !missing.is_empty() {
        return Err(Cause::Unknown { graph: graph.name().into(), names: missing }.into());
    }
    let ids: Vec<_> = wanted.iter().map(|path| declared[path]).collect();
    match ids.iter().map(|&id| graph.node(id)).find(|node| !node.ty.dtype.is_float()) {
        Some(node) => Err(Cause::Integer { name: node.name.clone(), ty: node.ty.clone() }.into()),
        None => Ok(ids),
    }
}

/// For each node, whether it depends on a wanted one through floating point values only.
fn needed(graph: &Graph, wanted: &[NodeId]) -> Vec<bool> {
    let mut needed: Vec<bool> = Vec::new();
    for (id, node) in graph.iter() {
        let depends = node.inputs.iter().any(|input| needed[input.index()]);
        needed.push(node.ty.dtype.is_float() && (depends || wanted.contains(&id)));
    }
    needed
}

/// The first of `wanted` on which the node `id` depends.
fn wanted_through(graph: &Graph, wanted: &[NodeId], id: NodeId) -> String {
    let reaches = |&&one: &&NodeId| needed(graph, &[one])[id.index()];
    wanted.iter().find(reaches).map_or_else(String::new, |&one| graph.node(one).name.clone())
}

/// Copies all nodes with their names.
fn copy<'b>(graph: &Graph, builder: &'b Builder) -> Vec<Tensor<'b>> {
    let mut values: Vec<Tensor<'b>> = Vec::new();
    for (_, node) in graph.iter() {
        values.push(builder.copy(node, |input| values[input.index()]));
    }
    values
}

/// The scope path of a node; for a parameter, its path without the last part.
fn scope_of(node: &Node) -> &str {
    let separator = if node.op == Op::Parameter { '.' } else { '/' };
    node.name.rsplit_once(separator).map_or("loss", |(path, _)| path)
}
