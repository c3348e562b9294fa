//! Rewrites a decoder with shared caches for a GPU: fewer operators, and the best tokens of a step
//! are found there.

mod normalise;
mod source;

use crate::in_memory::has_shared_caches;
use crate::program::{LOGITS, LOGITS_SCALE, Places, integer, prune};
use cognate_export::proto::{
    AttributeProto, DataType, DimensionProto, GraphProto, ModelProto, NodeProto, TensorShapeProto,
    TensorTypeProto, TypeProto, ValueInfoProto,
};
use normalise::add_before_normalisations;
use source::attend_to_source;
use std::collections::BTreeSet;

/// The number of best tokens, i64 `[1]`, and tokens whose scores are always wanted, i64 `[n]`.
pub(super) const COUNT: &str = "best.count";
pub(super) const ALWAYS: &str = "best.always";
/// The log-probabilities of the best tokens in descending order, f32 `[rows, count]`, the tokens,
/// i64 `[rows, count]`, and the log-probabilities of the other wanted tokens, f32 `[rows, n]`.
pub(super) const SCORES: &str = "best.scores";
pub(super) const TOKENS: &str = "best.tokens";
pub(super) const ALWAYS_SCORES: &str = "best.always_scores";

/// The beams that hold each place of the caches, i32 `[batch, beams, capacity]`, zero behind the past.
pub(super) const PLACES: &str = "step.places";

/// Sizes of heads that the operator supports on a GPU.
const HEAD_SIZES: [i64; 3] = [32, 64, 128];

/// A decoder with shared caches in the form for a GPU.
pub(in crate::ort::session) struct Form {
    pub(in crate::ort::session) model: ModelProto,
    /// The inputs and outputs that contain keys.
    pub(in crate::ort::session) keys: BTreeSet<String>,
    /// Whether the graph has the input [`PLACES`], and reads only the shape of `cache_beams`.
    pub(in crate::ort::session) has_places: bool,
    /// Number of logits of a row, if the graph finds the best.
    pub(in crate::ort::session) vocab: Option<usize>,
}

/// The form of a graph with attention to shared caches; `None` for other graphs. The error is what
/// the GPU does not support.
pub(in crate::ort::session) fn of(mut model: ModelProto) -> Result<Option<Form>, String> {
    let is_shared = has_shared_caches(&model);
    let Some(graph) = model.graph.as_mut().filter(|_| is_shared) else { return Ok(None) };
    let mut keys = BTreeSet::new();
    for node in graph.node.iter().filter(|node| attends(node)) {
        keys.extend([node.input[KEYS].clone(), node.output[1].clone()]);
    }
    if keys.is_empty() {
        return Ok(None);
    }
    let places = Places::new(graph);
    let wrong = keys.iter().find_map(|name| {
        let size = places.shape(name)?.last()?.dim_value?;
        (!HEAD_SIZES.contains(&size)).then_some(size)
    });
    if let Some(size) = wrong {
        return Err(format!(
            "expected heads of 32, 64 or 128, which ONNX Runtime's attention to shared caches has on a GPU, found {size}; export it without --target ort"
        ));
    }
    pack(graph);
    attend_to_source(graph);
    add_before_normalisations(graph);
    let has_places = take_places(graph);
    prune(graph);
    let vocab = find_best(graph);
    Ok(Some(Form { model, keys, has_places, vocab }))
}

/// The position of the cache of keys in the operator's inputs.
const KEYS: usize = 5;

fn attends(node: &NodeProto) -> bool {
    node.op_type == "DecoderMaskedMultiHeadAttention" && node.domain == "com.microsoft"
}

/// Lets attention read queries, keys and values from one tensor, and add their bias.
fn pack(graph: &mut GraphProto) {
    let places = Places::new(graph);
    let mut changes = Vec::new();
    for (index, node) in graph.node.iter().enumerate().filter(|(_, node)| attends(node)) {
        let Some(rows) = packed(&places, node) else { continue };
        // The bias before the only reshape.
        let biased = places.giver(rows, "Reshape").and_then(|(at, reshape)| {
            let (_, add) = places.giver(&reshape.input[0], "Add")?;
            let [product, bias] = add.input.as_slice() else { return None };
            let is_own = places.constant(bias).is_some()
                && places.readers(&reshape.input[0]) == [at]
                && places.readers(rows).len() == 3;
            is_own.then(|| (at, product.clone(), bias.clone()))
        });
        changes.push((index, rows.to_owned(), biased));
    }
    for (index, rows, biased) in changes {
        let inputs = &mut graph.node[index].input;
        inputs[0] = rows;
        inputs[1..3].iter_mut().for_each(String::clear);
        if let Some((reshape, product, bias)) = biased {
            inputs.push(bias);
            graph.node[reshape].input[0] = product;
        }
    }
}

/// The tensor of which query, key and value are consecutive thirds.
fn packed<'g>(places: &Places<'g>, node: &'g NodeProto) -> Option<&'g str> {
    let mut rows = None;
    let mut bounds = Vec::new();
    for input in &node.input[..3] {
        let (_, slice) = places.giver(input, "Slice")?;
        let [source, start, end, axis] = slice.input.as_slice() else { return None };
        if places.integer(axis) != Some(2) || *rows.get_or_insert(source) != source {
            return None;
        }
        bounds.push([places.integer(start)?, places.integer(end)?]);
    }
    let width = bounds[0][1];
    let is_thirds =
        (0..).zip(&bounds).all(|(part, bound)| *bound == [part * width, (part + 1) * width]);
    let is_whole = places.shape(rows?)?.last()?.dim_value == Some(3 * width);
    (is_thirds && is_whole).then_some(rows?)
}

/// Lets attention read the beams that hold each place as the host gives them, extended and in 32
/// bits; returns whether it could. CUDA does not extend integers, and a copy from the processor
/// between two operators prevents that steps are replayed.
fn take_places(graph: &mut GraphProto) -> bool {
    let places = Places::new(graph);
    let found = graph.node.iter().enumerate().find_map(|(index, node)| {
        let (_, pad) = places.giver(node.input.first()?, "Pad")?;
        (node.op_type == "Cast" && pad.input[0] == "cache_beams").then_some(index)
    });
    let Some(index) = found else { return false };
    let cast = graph.node.remove(index);
    let inputs = graph.node.iter_mut().flat_map(|node| &mut node.input);
    inputs.filter(|input| **input == cast.output[0]).for_each(|input| *input = PLACES.into());
    let dims = ["batch", "beams", "capacity"]
        .map(|name| DimensionProto { dim_param: Some(name.into()), ..DimensionProto::default() });
    graph.input.push(value(PLACES, DataType::Int32, Some(dims.into())));
    true
}

/// A node with a standard operator.
pub(super) fn standard(
    operator: &str,
    inputs: &[&str],
    output: &str,
    attribute: Vec<AttributeProto>,
) -> NodeProto {
    NodeProto {
        input: inputs.iter().map(|&name| name.into()).collect(),
        output: vec![output.into()],
        name: output.into(),
        op_type: operator.into(),
        attribute,
        domain: String::new(),
    }
}

/// Adds the outputs with the best tokens, if the logits have one row per hypothesis and no factors;
/// returns the size of the vocabulary.
fn find_best(graph: &mut GraphProto) -> Option<usize> {
    let has_scale = graph.output.iter().any(|output| output.name == LOGITS_SCALE);
    let logits = graph.output.iter().find(|output| output.name == LOGITS)?;
    let dims = &logits.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref()?.dim;
    let [_, DimensionProto { dim_value: Some(vocab), .. }] = dims.as_slice() else { return None };
    let vocab = usize::try_from(*vocab).ok().filter(|_| !has_scale)?;
    let log = "best.log";
    let axis = |axis| vec![integer("axis", axis)];
    let mut best = standard("TopK", &[log, COUNT], SCORES, axis(-1));
    best.output.push(TOKENS.into());
    graph.node.extend([
        standard("LogSoftmax", &[LOGITS], log, axis(-1)),
        best,
        standard("Gather", &[log, ALWAYS], ALWAYS_SCORES, axis(1)),
    ]);
    let one = DimensionProto { dim_value: Some(1), ..DimensionProto::default() };
    let any = DimensionProto { dim_param: Some("always".into()), ..DimensionProto::default() };
    graph.input.extend([
        value(COUNT, DataType::Int64, Some(vec![one])),
        value(ALWAYS, DataType::Int64, Some(vec![any])),
    ]);
    graph.output.extend([
        value(SCORES, DataType::Float, None),
        value(TOKENS, DataType::Int64, None),
        value(ALWAYS_SCORES, DataType::Float, None),
    ]);
    Some(vocab)
}

/// A tensor's declaration.
pub(super) fn value(
    name: &str,
    elements: DataType,
    dims: Option<Vec<DimensionProto>>,
) -> ValueInfoProto {
    let shape = dims.map(|dim| TensorShapeProto { dim });
    let tensor_type = Some(TensorTypeProto { elem_type: elements as i32, shape });
    ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto { tensor_type }),
        doc_string: String::new(),
    }
}

#[cfg(test)]
mod tests;
