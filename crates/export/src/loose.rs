//! Inputs whose declared shape may be wrong while they are empty.
//!
//! Optimum computes the width of an attention head as `d_model / heads`, which is wrong for some T5
//! models: it then passes an empty past of another width, and an engine that checks shapes rejects
//! it. A loose axis has a name instead of its size, and the input is reshaped to its true size
//! first, which moves nothing.

use crate::model::entry;
use crate::proto::{
    AttributeProto, AttributeType, DataType, DimensionProto, ModelProto, NodeProto, TensorProto,
};

/// The last axis of all inputs whose names begin with `inputs`.
#[derive(Clone, Copy, Debug)]
pub struct LooseAxis<'a> {
    /// Prefix of the inputs' names.
    pub inputs: &'a str,
    /// Name of the axis, instead of its size.
    pub name: &'a str,
}

/// Makes the axis loose; the property `cognate.axis.NAME` contains its true size.
pub(crate) fn loosen(model: &mut ModelProto, loose: LooseAxis<'_>) {
    let Some(graph) = &mut model.graph else { return };
    let mut nodes = Vec::new();
    for input in graph.input.iter_mut().filter(|input| input.name.starts_with(loose.inputs)) {
        let shape = input
            .r#type
            .as_mut()
            .and_then(|ty| ty.tensor_type.as_mut())
            .and_then(|ty| ty.shape.as_mut());
        let Some([others @ .., last]) = shape.map(|shape| shape.dim.as_mut_slice()) else {
            continue;
        };
        let Some(size) = last.dim_value else { continue };
        let others = others.len() as i64;
        let property = entry(&format!("cognate.axis.{}", loose.name), size);
        if !model.metadata_props.contains(&property) {
            model.metadata_props.push(property);
        }
        *last = DimensionProto { dim_value: None, dim_param: Some(loose.name.into()) };
        let [sized, leading, width, target] =
            ["sized", "leading", "width", "target"].map(|what| format!("{}.{what}", input.name));
        for node in graph.node.iter_mut().filter(|node| node.op_type != "Shape") {
            node.input
                .iter_mut()
                .filter(|name| **name == input.name)
                .for_each(|name| name.clone_from(&sized));
        }
        graph.initializer.push(TensorProto {
            dims: vec![1],
            data_type: DataType::Int64.into(),
            name: width.clone(),
            raw_data: Some(size.to_le_bytes().to_vec().into()),
            ..TensorProto::default()
        });
        nodes.extend([
            node("Shape", &[&input.name], &leading, &[("start", 0), ("end", others)]),
            node("Concat", &[&leading, &width], &target, &[("axis", 0)]),
            // A size of zero is zero.
            node("Reshape", &[&input.name, &target], &sized, &[("allowzero", 1)]),
        ]);
    }
    graph.node.splice(0..0, nodes);
}

fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[(&str, i64)]) -> NodeProto {
    let integer = |&(name, value): &(&str, i64)| AttributeProto {
        name: name.into(),
        r#type: AttributeType::Int.into(),
        i: Some(value),
        ..AttributeProto::default()
    };
    NodeProto {
        input: inputs.iter().map(|&name| name.into()).collect(),
        output: vec![output.into()],
        name: output.into(),
        op_type: operator.into(),
        attribute: attributes.iter().map(integer).collect(),
        domain: String::new(),
    }
}
