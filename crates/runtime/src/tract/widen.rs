//! Files in half precision as graphs in single precision, in which programs compute.

use crate::program::{Constants, element_type};
use cognate_export::proto::{DataLocation, DataType, GraphProto, NodeProto, TensorProto};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Declares all numbers in single precision, except for weights beside the file, which programs
/// convert when they pack them; removes conversions between the two.
pub(super) fn widen(graph: &mut GraphProto) {
    let values = graph.input.iter().chain(&graph.output).chain(&graph.value_info);
    let constants = graph.initializer.iter();
    let floats: HashMap<String, bool> = values
        .filter_map(|value| Some((value.name.clone(), is_float(element_type(value)?))))
        .chain(constants.map(|constant| (constant.name.clone(), is_float(constant.data_type))))
        .collect();
    let outputs: BTreeSet<_> = graph.output.iter().map(|output| output.name.clone()).collect();
    let computed: BTreeSet<_> = graph.node.iter().flat_map(|node| &node.output).cloned().collect();
    let mut same = HashMap::<String, String>::new();
    graph.node.retain_mut(|node| {
        let Some(to) = converts_to(node) else { return true };
        *to = DataType::Float as i64;
        let (from, to) = (&node.input[0], &node.output[0]);
        if floats.get(from) != Some(&true) {
            return true;
        }
        let is_output = |name: &String| outputs.contains(name);
        // The name of an output stays, and what is computed takes it.
        let (kept, other) = match is_output(to) {
            true => (to, from),
            false => (from, to),
        };
        if is_output(other)
            || is_output(to) && (!computed.contains(from) || same.contains_key(from))
        {
            return true;
        }
        same.insert(other.clone(), kept.clone());
        false
    });
    for name in graph.node.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output))
    {
        while let Some(kept) = same.get(name) {
            name.clone_from(kept);
        }
    }
    let types = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
    for tensor in types.filter_map(|value| value.r#type.as_mut()?.tensor_type.as_mut()) {
        if tensor.elem_type == DataType::Float16 as i32 {
            tensor.elem_type = DataType::Float as i32;
        }
    }
    graph.initializer.iter_mut().for_each(widen_constant);
}

fn is_float(element: i32) -> bool {
    [DataType::Float, DataType::Float16].map(|float| float as i32).contains(&element)
}

/// The type to which a node converts, if it is single or half precision.
fn converts_to(node: &mut NodeProto) -> Option<&mut i64> {
    let is_cast = node.op_type == "Cast" && node.domain.is_empty();
    if !is_cast || [node.input.len(), node.output.len()] != [1; 2] {
        return None;
    }
    let mut attributes = node.attribute.iter_mut().filter(|attribute| attribute.name == "to");
    attributes.next()?.i.as_mut().filter(|to| i32::try_from(**to).is_ok_and(is_float))
}

/// Converts a constant in the file.
fn widen_constant(constant: &mut TensorProto) {
    if constant.data_location != DataLocation::External as i32 {
        convert(constant, &mut Constants::new(Path::new("")));
    }
}

/// Converts the weights that programs have left, in `folder`; `None` if they are large or cannot be
/// read.
pub(super) fn widen_left(graph: &mut GraphProto, folder: &Path) -> Option<()> {
    const LARGE: i64 = 1 << 20;
    let mut constants = Constants::new(folder);
    for left in &mut graph.initializer {
        let size = left.dims.iter().fold(1, |size: i64, dim| size.saturating_mul(*dim));
        if left.data_type == DataType::Float16 as i32
            && (size > LARGE || !convert(left, &mut constants))
        {
            return None;
        }
    }
    Some(())
}

/// Converts a constant; returns whether it is in single precision then.
fn convert(constant: &mut TensorProto, constants: &mut Constants) -> bool {
    if constant.data_type != DataType::Float16 as i32 {
        return true;
    }
    let Some(numbers) = constants.floats(constant) else { return false };
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    constant.raw_data = Some(bytes.into());
    constant.data_type = DataType::Float as i32;
    constant.data_location = DataLocation::Default as i32;
    constant.external_data.clear();
    true
}
