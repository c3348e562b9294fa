//! Replaces subgraphs of a file by nodes that run programs.

mod attention;
mod caches;
mod convolution;
mod memory;
mod read;
mod rotation;
mod rows;

use super::output_layer::declare;
use super::places::element_type;
use super::{Compiled, Constants, Kernel, Places, Program, Registered, compile};
use cognate_export::proto::{
    AttributeProto, AttributeType, DataType, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorTypeProto, TypeProto, ValueInfoProto,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The domain of nodes that replace subgraphs, which does not occur in files.
pub(crate) const DOMAIN: &str = "cognate";
/// The operator of a node that runs the program with the number in its attribute [`NUMBER`].
pub(crate) const PROGRAM: &str = "Program";
pub(crate) const NUMBER: &str = "program";

/// Intermediate operations that replace subgraphs before programs compute them.
///
/// Inputs: query, new key, new value, the caches of keys and of values, the beam of each position,
/// and optionally a bias. Outputs: the context and the caches.
const CACHED: &str = "CachedAttention";
/// Inputs: queries, keys, values, mask. Outputs: the context, and the weights if the graph outputs
/// them.
pub(crate) const MEMORY: &str = "MemoryAttention";
/// Inputs: queries, keys and values, which are the same rows if they are side by side, and a mask or
/// sizes whose second is the number of rows of a sentence.
const SELF: &str = "SelfAttention";
/// Inputs: query, key and value of new positions, keys and values of the past, and optionally a mask.
/// Outputs: the context, and the keys and values of all positions.
const GROWN: &str = "GrownAttention";
/// Inputs: rows of heads, tables of cosines and sines, and either the positions in a range, or the
/// beams that hold earlier ones.
const ROTATION: &str = "Rotation";
/// Inputs: rows, and the factors of their activations.
const GATE: &str = "Gate";
/// Inputs: rows, and optionally a factor of each row, a bias, a residual, weight and bias of a
/// layer normalisation. Outputs: the rows, the rows in 8-bit integers, and their largest
/// magnitudes, each if it is read.
const BETWEEN: &str = "BetweenProducts";
/// Convolutions over time: frames, weights and bias of each, optionally a table of positions. Rows of
/// the last, plus those of positions. Attributes: see [`convolution`].
const CONVOLUTIONS: &str = "Convolutions";

/// A model whose nodes run programs while these exist.
pub(crate) struct Substituted {
    pub(crate) model: ModelProto,
    pub(crate) programs: Vec<Registered>,
    /// As [`Session::has_own_lengths`](crate::Session::has_own_lengths).
    pub(crate) own_lengths: bool,
    /// As [`Session::supports_prefill`](crate::Session::supports_prefill).
    pub(crate) prefill: bool,
    /// Whether there are programs, none of which writes caches.
    pub(crate) is_encoder: bool,
    /// The number of inputs added by programs, which are the last: [`SHORTLIST`](crate::SHORTLIST)
    /// and [`BEST`](crate::BEST).
    pub(crate) n_inputs: usize,
}

/// Whether a file is too large to be parsed again. Exported graphs with external weights are far
/// smaller.
pub(crate) fn is_large(path: &Path) -> bool {
    const LARGEST: u64 = 1 << 26;
    path.metadata().is_ok_and(|metadata| metadata.len() > LARGEST)
}

/// The graph with custom operators; `None` if none applies. Its weights are in `folder`. `half_memory` is as in
/// [`Options`](crate::Options::half_memory).
pub(crate) fn substitute(
    mut model: ModelProto,
    folder: &Path,
    threads: usize,
    half_memory: bool,
) -> Option<Substituted> {
    let graph = model.graph.as_mut()?;
    let declared = half_memory.then(|| graph.clone());
    if !is_single(graph) || with_own(graph) == 0 {
        return None;
    }
    let halved = if half_memory { memory::halve(graph) } else { BTreeSet::new() };
    let node = |index: usize, inputs, outputs| {
        own(PROGRAM, inputs, outputs, &format!("program.{index}"), Vec::new())
    };
    let Compiled { graph: mut compiled, programs: found } =
        compile(graph, &mut Constants::new(folder), read::operation, node);
    prune(&mut compiled);
    if compiled.node.iter().any(|node| node.domain == DOMAIN && node.op_type != PROGRAM) {
        return None;
    }
    if compiled.node.iter().any(|node| {
        node.domain != DOMAIN && node.output.iter().any(|output| halved.contains(output))
    }) {
        // Nothing but programs can compute it in half precision.
        model.graph = declared;
        return substitute(model, folder, threads, false);
    }
    let own_lengths = has_own_lengths(&compiled, &found);
    let is_encoder = !found.is_empty() && found.iter().all(|program| program.caches.is_empty());
    let mut programs = Vec::new();
    for (node, program) in compiled.node.iter_mut().filter(|node| node.domain == DOMAIN).zip(&found)
    {
        let registered = Registered::new(Kernel { program: program.clone(), threads, own_lengths });
        node.attribute.push(integer(NUMBER, registered.number()));
        programs.push(registered);
    }
    let prefill = own_lengths && supports_prefill(&compiled, &found);
    let n_inputs = found.iter().map(|program| declare(&mut compiled, program)).sum();
    *graph = compiled;
    model.opset_import.push(OperatorSetIdProto { domain: DOMAIN.into(), version: 1 });
    Some(Substituted { model, programs, own_lengths, prefill, is_encoder, n_inputs })
}

/// Whether all values are in single precision or less, in which programs compute. Constants may be
/// stored in half precision.
fn is_single(graph: &GraphProto) -> bool {
    let others = [DataType::Float16, DataType::Double].map(|other| other as i32);
    let mut values = graph.input.iter().chain(&graph.output).chain(&graph.value_info);
    values.all(|value| element_type(value).is_none_or(|element| !others.contains(&element)))
}

/// Replaces attention to memory by one node of the operation [`MEMORY`] each.
#[cfg(feature = "ort")]
pub(crate) fn join_memory_attention(graph: &mut GraphProto) -> usize {
    replace(graph, attention::of_memory)
}

/// Whether sentences may have pasts of different lengths. Programs know each length. The only value
/// that other operations may compute from the length of the longest past is the bias of attention,
/// of which a shorter sentence uses the end.
fn has_own_lengths(graph: &GraphProto, programs: &[Arc<Program>]) -> bool {
    let is_program = |node: &&NodeProto| node.domain == DOMAIN;
    let read = |inputs: BTreeSet<usize>, node: &NodeProto| {
        inputs.into_iter().map(|input| node.input[input].clone()).collect::<Vec<_>>()
    };
    let of_caches = graph.node.iter().filter(is_program).zip(programs).map(|(node, program)| {
        let (beams, biases) = program.inputs_of_caches();
        (read(beams, node), read(biases, node))
    });
    let (beams, biases): (Vec<_>, Vec<_>) = of_caches.unzip();
    let [beams, biases] =
        [beams, biases].map(|names| names.into_iter().flatten().collect::<BTreeSet<_>>());
    let mut of_past = BTreeSet::new();
    for node in &graph.node {
        let reads = |input: &&String| of_past.contains(*input);
        // The beams themselves contain the number of positions of each sentence.
        let is_length = |input: &&String| beams.contains(*input) && node.op_type == "Shape";
        if is_program(&node) {
            if node.input.iter().filter(reads).any(|input| !biases.contains(input)) {
                return false;
            }
        } else if node.input.iter().any(|input| reads(&input) || is_length(&input)) {
            of_past.extend(node.output.iter().cloned());
        }
    }
    !beams.is_empty() && !graph.output.iter().any(|output| of_past.contains(&output.name))
}

/// Whether programs that support prefill compute everything that depends on tokens, except for
/// functions of single logits.
fn supports_prefill(graph: &GraphProto, programs: &[Arc<Program>]) -> bool {
    let mut of_tokens = BTreeSet::new();
    let constants: BTreeSet<_> = graph.initializer.iter().map(|constant| &constant.name).collect();
    for node in &graph.node {
        if node.domain == DOMAIN {
            of_tokens.extend(&node.output);
        } else if node.input.iter().any(|input| of_tokens.contains(input)) {
            let is_function = ["Div", "Mul", "Tanh"].contains(&node.op_type.as_str());
            if !is_function
                || !node
                    .input
                    .iter()
                    .all(|input| of_tokens.contains(input) != constants.contains(input))
            {
                return false;
            }
            of_tokens.extend(&node.output);
        }
    }
    let is_read = graph
        .node
        .iter()
        .filter(|node| node.domain == DOMAIN)
        .flat_map(|node| &node.input)
        .any(|input| of_tokens.contains(input));
    !is_read && programs.iter().all(|program| program.supports_prefill())
}

/// Replaces subgraphs by custom operations; returns their number.
fn with_own(graph: &mut GraphProto) -> usize {
    let looks = [
        convolution::convolutions,
        caches::of_operator,
        caches::of_operations,
        attention::of_memory,
        rows::gates,
        rows::between_products,
    ];
    let n = rotation::before_heads(graph)
        + looks.into_iter().map(|look| replace(graph, look)).sum::<usize>()
        + rotation::of_rotations(graph);
    prune(graph);
    let places = Places::new(graph);
    let bytes: Vec<_> = graph
        .node
        .iter()
        .filter(|node| node.op_type == BETWEEN)
        .filter_map(|node| typed_bytes(&places, node))
        .collect();
    graph.value_info.extend(bytes);
    n
}

/// The type of the bytes of an operation on rows, which files do not contain.
fn typed_bytes(places: &Places<'_>, node: &NodeProto) -> Option<ValueInfoProto> {
    let [_, bytes, _] = node.output.as_slice() else { return None };
    let shape = places.shape(&node.input[0])?.to_vec();
    let shape = Some(cognate_export::proto::TensorShapeProto { dim: shape });
    let tensor_type = Some(TensorTypeProto { elem_type: DataType::Uint8 as i32, shape });
    let r#type = Some(TypeProto { tensor_type });
    (!bytes.is_empty()).then(|| ValueInfoProto {
        name: bytes.clone(),
        r#type,
        doc_string: String::new(),
    })
}

/// A custom node, and the nodes that it replaces.
pub(crate) struct Found {
    pub(crate) node: NodeProto,
    /// Its position: after its inputs, before its readers.
    pub(crate) at: usize,
    pub(crate) replaced: Vec<usize>,
}

/// Replaces what `look` finds at each node in turn; returns the number of replacements.
pub(crate) fn replace(
    graph: &mut GraphProto,
    look: impl Fn(&Places<'_>, usize) -> Option<Found>,
) -> usize {
    let (mut replaced, mut made, mut n_found) = (BTreeSet::new(), BTreeMap::new(), 0);
    let places = Places::new(graph);
    for index in 0..places.graph.node.len() {
        let Some(found) = look(&places, index)
            .filter(|found| found.replaced.iter().all(|index| !replaced.contains(index)))
        else {
            continue;
        };
        replaced.extend(found.replaced);
        made.insert(found.at, found.node);
        n_found += 1;
    }
    let kept = std::mem::take(&mut graph.node).into_iter().enumerate();
    graph.node = kept
        .filter_map(|(index, node)| {
            made.remove(&index).or((!replaced.contains(&index)).then_some(node))
        })
        .collect();
    n_found
}

/// Removes nodes whose outputs are no longer read, such as computations of shapes.
pub(crate) fn prune(graph: &mut GraphProto) {
    let mut read: BTreeSet<String> =
        graph.output.iter().map(|output| output.name.clone()).collect();
    for node in graph.node.iter().rev() {
        if node.output.iter().any(|output| read.contains(output)) {
            read.extend(node.input.iter().cloned());
        }
    }
    graph.node.retain(|node| node.output.iter().any(|output| read.contains(output)));
    graph.initializer.retain(|constant| read.contains(&constant.name));
}

/// A node with a custom operator.
pub(crate) fn own(
    operator: &str,
    input: Vec<String>,
    output: Vec<String>,
    name: &str,
    attribute: Vec<AttributeProto>,
) -> NodeProto {
    NodeProto {
        input,
        output,
        name: name.into(),
        op_type: operator.into(),
        attribute,
        domain: DOMAIN.into(),
    }
}

pub(crate) fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        r#type: AttributeType::Float as i32,
        f: Some(value),
        ..AttributeProto::default()
    }
}

pub(crate) fn integer(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        r#type: AttributeType::Int as i32,
        i: Some(value),
        ..AttributeProto::default()
    }
}

pub(crate) fn attribute<'n>(node: &'n NodeProto, name: &str) -> Option<&'n AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}

fn permutes(node: &NodeProto, axes: &[i64]) -> bool {
    attribute(node, "perm").is_some_and(|perm| perm.ints == axes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "as in the folders of tests")]
mod tests;
