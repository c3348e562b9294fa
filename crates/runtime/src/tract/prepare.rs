//! Rewrites parts of a file that tract interprets differently from ONNX.

use std::mem;

use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, StringStringEntryProto, tensor_shape_proto::dimension, type_proto};

use super::operators::NUMBERS;

/// The property `cognate.axis.NAME` contains the true size of the axis NAME.
const AXIS_PROPERTY: &str = "cognate.axis.";

/// Modifies the model in memory.
pub(super) fn prepare(proto: &mut ModelProto) {
    settle_axes(proto);
    proto.graph.iter_mut().for_each(settle_ranges);
}

/// Replaces loose axes by their true size, from the model's properties: tract rejects reshaping an
/// unknown size to a known one.
fn settle_axes(proto: &mut ModelProto) {
    use dimension::Value;
    let size = |property: &StringStringEntryProto| {
        Some((property.key.strip_prefix(AXIS_PROPERTY)?.to_owned(), property.value.parse::<i64>().ok().filter(|&size| size > 0)?))
    };
    let sizes: Vec<_> = proto.metadata_props.iter().filter_map(size).collect();
    let inputs = proto.graph.iter_mut().flat_map(|graph| &mut graph.input);
    let types = inputs.filter_map(|input| input.r#type.as_mut()?.value.as_mut()).map(|type_proto::Value::TensorType(tensor)| tensor);
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
            numbers = Some(NodeProto { op_type: NUMBERS.into(), name, input: vec![sizes], output: vec![output], ..NodeProto::default() });
        }
        graph.node.push(node);
        graph.node.extend(numbers);
    }
}
