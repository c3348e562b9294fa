//! Joining graphs in sequence, and renaming inputs and outputs.

use cognate_graph::{Builder, Error, Graph, Op, Tensor};
use std::collections::HashMap;

/// Joins `graphs` into one graph called `name`. An input with the name of an earlier graph's output
/// is that value; inputs and parameters with the same name become one; only the wanted outputs
/// remain.
///
/// ```
/// use cognate_graph::{Builder, DType};
/// use cognate_passes::join::join;
///
/// let square = Builder::new("square");
/// let x = square.input("x", DType::F32, ["rows"]);
/// square.output("y", x * x);
/// let change = Builder::new("change");
/// change.output("z", change.input("y", DType::F32, ["rows"]) + change.input("x", DType::F32, ["rows"]));
/// let both = join("both", &[&square.finish()?, &change.finish()?], |name| name == "z")?;
/// assert_eq!(both.inputs().map(|(_, node)| node.name.as_str()).collect::<Vec<_>>(), ["x"]);
/// # Ok::<(), cognate_graph::Error>(())
/// ```
///
/// # Errors
/// If two wanted outputs have the same name, or values with the same name have different types.
pub fn join(
    name: &str,
    graphs: &[&Graph],
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Graph, Error> {
    let builder = Builder::new(name);
    let mut made: HashMap<&str, Option<Tensor<'_>>> = HashMap::new();
    // Inputs first: their names are part of the interface, so no node may use them.
    for graph in graphs {
        for (_, node) in graph.inputs().filter(|(_, node)| !made.contains_key(node.name.as_str())) {
            builder.input(&node.name, node.ty.dtype, node.ty.shape.clone());
        }
        made.extend(graph.outputs().iter().map(|output| (output.name.as_str(), None)));
    }
    for graph in graphs {
        let given = |name: &str| made.get(name).copied().flatten();
        let values = copy(graph, &builder, |name| name.to_owned(), given);
        for output in graph.outputs() {
            let value = values[output.node.index()];
            made.insert(&output.name, Some(value));
            if is_wanted(&output.name) {
                builder.output(&output.name, value);
            }
        }
    }
    drop(made);
    builder.finish()
}

/// The graph with renamed inputs and outputs.
///
/// # Errors
/// If two inputs or two outputs would have the same name.
pub fn rename(graph: &Graph, name_of: impl Fn(&str) -> String) -> Result<Graph, Error> {
    let builder = Builder::new(graph.name());
    let mut taken: HashMap<String, &str> = HashMap::new();
    for (_, node) in graph.inputs() {
        let name = name_of(&node.name);
        builder.input(&name, node.ty.dtype, node.ty.shape.clone());
        if let Some(other) = taken.insert(name.clone(), &node.name) {
            builder
                .fail(format_args!("inputs {other} and {} would both be called {name}", node.name));
        }
    }
    let values = copy(graph, &builder, &name_of, |_| None);
    for output in graph.outputs() {
        builder.output(&name_of(&output.name), values[output.node.index()]);
    }
    drop(values);
    builder.finish()
}

/// Copies all nodes. An input becomes the `given` value, or is renamed by `name_of`.
fn copy<'b>(
    graph: &Graph,
    builder: &'b Builder,
    name_of: impl Fn(&str) -> String,
    given: impl Fn(&str) -> Option<Tensor<'b>>,
) -> Vec<Tensor<'b>> {
    let mut values: Vec<Tensor<'b>> = Vec::new();
    for (_, node) in graph.iter() {
        values.push(if node.op == Op::Input {
            let value = given(&node.name).unwrap_or_else(|| {
                builder.input(&name_of(&node.name), node.ty.dtype, node.ty.shape.clone())
            });
            if value.ty() != node.ty {
                builder.fail(format_args!(
                    "{} is {}, and {} reads {}",
                    node.name,
                    value.ty(),
                    graph.name(),
                    node.ty
                ));
            }
            value
        } else {
            builder.copy(node, |input| values[input.index()])
        });
    }
    values
}
