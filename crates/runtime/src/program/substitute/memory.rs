//! Keys and values that pass from the encoder to the decoder, in half precision.

use super::{MEMORY, read};
use crate::program::places::element_type;
use crate::program::{Operation, Places};
use cognate_export::proto::{DataType, GraphProto, ValueInfoProto};
use cognate_kernels::reads_halves;
use std::collections::BTreeSet;

/// Declares, in a graph with 8-bit weights, inputs that only attention reads as keys or values, and
/// outputs that are heads of rows, in half precision; returns their names.
pub(super) fn halve(graph: &mut GraphProto) -> BTreeSet<String> {
    let is_8_bit = |graph: &GraphProto| {
        graph.initializer.iter().any(|constant| constant.data_type == DataType::Int8 as i32)
    };
    if !reads_halves() || !is_8_bit(graph) {
        return BTreeSet::new();
    }
    let places = Places::new(graph);
    // The encoder of a model with a single head does not split it from its rows.
    let has_heads = |input: &str| {
        places.shape(input).and_then(|shape| shape.get(1)?.dim_value).is_some_and(|heads| heads > 1)
    };
    let is_memory = |input: &str| {
        let mut readers = places.readers(input).iter().map(|&index| &graph.node[index]);
        let is_read = |(place, name): (usize, &String)| name != input || [1, 2].contains(&place);
        has_heads(input)
            && !places.readers(input).is_empty()
            && readers
                .all(|node| node.op_type == MEMORY && node.input.iter().enumerate().all(is_read))
    };
    let are_heads = |output: &str| {
        places.readers(output).is_empty()
            && places.source(output).is_some_and(|index| {
                let found = read::operation(&places, &graph.node[index]);
                matches!(found, Some(Operation::Heads { .. }))
            })
    };
    let is_float = |value: &&ValueInfoProto| element_type(value) == Some(DataType::Float as i32);
    let inputs = graph.input.iter().filter(is_float).filter(|input| is_memory(&input.name));
    let outputs = graph.output.iter().filter(is_float).filter(|output| are_heads(&output.name));
    let halved: BTreeSet<_> = inputs.chain(outputs).map(|value| value.name.clone()).collect();
    for value in graph.input.iter_mut().chain(&mut graph.output) {
        if halved.contains(&value.name)
            && let Some(of_tensor) =
                value.r#type.as_mut().and_then(|r#type| r#type.tensor_type.as_mut())
        {
            of_tensor.elem_type = DataType::Float16 as i32;
        }
    }
    halved
}
