//! Rewrites parts of a file that tract interprets differently from ONNX.

use std::collections::HashMap;
use std::mem;

use tract_onnx::pb::{
    GraphProto, ModelProto, NodeProto, StringStringEntryProto, ValueInfoProto,
    tensor_shape_proto::dimension, type_proto,
};

use super::operators::NUMBERS;

/// The property `cognate.axis.NAME` contains the true size of the axis NAME.
const AXIS_PROPERTY: &str = "cognate.axis.";

/// Modifies the model in memory.
pub(super) fn prepare(proto: &mut ModelProto) {
    settle_axes(proto);
    proto.graph.iter_mut().for_each(settle_ranges);
    proto.graph.iter_mut().for_each(settle_padding);
}

/// Replaces loose axes by their true size, from the model's properties: tract rejects reshaping an
/// unknown size to a known one.
fn settle_axes(proto: &mut ModelProto) {
    use dimension::Value;
    let size = |property: &StringStringEntryProto| {
        Some((
            property.key.strip_prefix(AXIS_PROPERTY)?.to_owned(),
            property.value.parse::<i64>().ok().filter(|&size| size > 0)?,
        ))
    };
    let sizes: Vec<_> = proto.metadata_props.iter().filter_map(size).collect();
    let inputs = proto.graph.iter_mut().flat_map(|graph| &mut graph.input);
    let types = inputs
        .filter_map(|input| input.r#type.as_mut()?.value.as_mut())
        .map(|type_proto::Value::TensorType(tensor)| tensor);
    for dim in types.filter_map(|tensor| tensor.shape.as_mut()).flat_map(|shape| &mut shape.dim) {
        if let Some(Value::DimParam(name)) = &dim.value
            && let Some((_, size)) = sizes.iter().find(|(axis, _)| axis == name)
        {
            dim.value = Some(Value::DimValue(*size));
        }
    }
}

/// Converts the output of `Range` to plain integers. tract 0.23.9 treats it as sizes of shapes with
/// formulas: all of `x - x` becomes one row.
fn settle_ranges(graph: &mut GraphProto) {
    for mut node in mem::take(&mut graph.node) {
        for attribute in &mut node.attribute {
            attribute.g.iter_mut().chain(&mut attribute.graphs).for_each(settle_ranges);
        }
        let mut numbers = None;
        if let ("Range", [output]) = (node.op_type.as_str(), node.output.as_mut_slice()) {
            let sizes = format!("{output}/cognate.sizes");
            let output = mem::replace(output, sizes.clone());
            let name = format!("{output}/cognate.numbers");
            numbers = Some(NodeProto {
                op_type: NUMBERS.into(),
                name,
                input: vec![sizes],
                output: vec![output],
                ..NodeProto::default()
            });
        }
        graph.node.push(node);
        graph.node.extend(numbers);
    }
}

/// Removes padding at the end of an axis that no step of a convolution reads: a kernel of 3 with
/// stride 2 computes `src` values from `2*src`, where tract 0.23.9 infers `(2*src + 1) / 2`.
fn settle_padding(graph: &mut GraphProto) {
    let sizes: HashMap<_, _> = graph
        .input
        .iter()
        .chain(&graph.value_info)
        .filter_map(|info| Some((&info.name, last_axis(info)?)))
        .collect();
    let kernels: HashMap<_, _> = graph
        .initializer
        .iter()
        .filter_map(|tensor| Some((&tensor.name, *tensor.dims.last()?)))
        .collect();
    for node in graph.node.iter_mut().filter(|node| node.op_type == "Conv") {
        let ints = |name: &str| {
            node.attribute
                .iter()
                .find(|attribute| attribute.name == name)
                .map(|attribute| attribute.ints.clone())
        };
        let (Some(kernel), Some([stride]), Some([before, after])) = (
            node.input.get(1).and_then(|weight| kernels.get(weight)),
            only(ints("strides")),
            only(ints("pads")),
        ) else {
            continue;
        };
        let is_multiple = sizes
            .get(&node.input[0])
            .and_then(|size| size.strip_prefix(&format!("{stride}*")))
            .is_some_and(is_name);
        let unread = before.saturating_add(after).saturating_sub(*kernel).rem_euclid(stride.max(1));
        if is_multiple && unread <= after {
            let pads = node.attribute.iter_mut().filter(|attribute| attribute.name == "pads");
            pads.for_each(|pads| pads.ints = vec![before, after - unread]);
        }
    }
}

/// The values of an attribute, if there are exactly `N`.
fn only<const N: usize>(ints: Option<Vec<i64>>) -> Option<[i64; N]> {
    ints?.try_into().ok()
}

/// The name or formula of the last axis.
fn last_axis(info: &ValueInfoProto) -> Option<&str> {
    let type_proto::Value::TensorType(tensor) = info.r#type.as_ref()?.value.as_ref()?;
    match tensor.shape.as_ref()?.dim.last()?.value.as_ref()? {
        dimension::Value::DimParam(name) => Some(name),
        dimension::Value::DimValue(_) => None,
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}
