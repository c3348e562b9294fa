//! Nodes, initializers and names.

use super::{Lowering, data_type};
use crate::Error;
use crate::error::Problem;
use crate::proto::{
    AttributeProto, AttributeType, DataType, DimensionProto, GraphProto, NodeProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use cognate_graph::{DType, Graph, Type};
use std::collections::{HashMap, HashSet};

/// An attribute's value.
pub(super) enum Attribute {
    Int(&'static str, i64),
    Float(&'static str, f32),
    Ints(&'static str, Vec<i64>),
    Text(&'static str, &'static str),
    Graph(&'static str, Box<GraphProto>),
}

impl Attribute {
    fn message(&self) -> AttributeProto {
        let of = |name: &str, kind: AttributeType| AttributeProto {
            name: name.into(),
            r#type: kind.into(),
            ..AttributeProto::default()
        };
        match self {
            Attribute::Int(name, value) => {
                AttributeProto { i: Some(*value), ..of(name, AttributeType::Int) }
            }
            Attribute::Float(name, value) => {
                AttributeProto { f: Some(*value), ..of(name, AttributeType::Float) }
            }
            Attribute::Ints(name, values) => {
                AttributeProto { ints: values.clone(), ..of(name, AttributeType::Ints) }
            }
            Attribute::Graph(name, graph) => {
                AttributeProto { g: Some((**graph).clone()), ..of(name, AttributeType::Graph) }
            }
            Attribute::Text(name, text) => AttributeProto {
                s: Some(text.as_bytes().into()),
                ..of(name, AttributeType::String)
            },
        }
    }
}

impl Lowering<'_> {
    /// Appends a node.
    pub(super) fn emit(
        &mut self,
        operator: &str,
        name: String,
        output: String,
        inputs: Vec<String>,
        attributes: &[Attribute],
    ) {
        self.emit_several(operator, name, vec![output], inputs, attributes);
    }

    /// Appends a node with several outputs. The names of contrib operators include the domain, such
    /// as `com.microsoft.FusedMatMul`.
    pub(super) fn emit_several(
        &mut self,
        operator: &str,
        name: String,
        outputs: Vec<String>,
        inputs: Vec<String>,
        attributes: &[Attribute],
    ) {
        let (domain, operator) = operator.rsplit_once('.').unwrap_or(("", operator));
        let node = NodeProto {
            input: inputs,
            output: outputs,
            name,
            op_type: operator.into(),
            attribute: attributes.iter().map(Attribute::message).collect(),
            domain: domain.into(),
        };
        self.place().node.push(node);
    }

    /// Appends a node that is not in the graph, named after its tensor `name`, of the given type;
    /// returns the tensor's name.
    pub(super) fn emit_between(
        &mut self,
        operator: &str,
        name: &str,
        inputs: Vec<String>,
        attributes: &[Attribute],
        ty: &Type,
    ) -> String {
        let tensor = self.tensor_names.fresh(name);
        let node = self.node_names.fresh(name);
        self.place().value_info.push(value_info(&tensor, ty));
        self.emit(operator, node, tensor.clone(), inputs, attributes);
        tensor
    }

    /// The destination of new nodes: the graph, or the part that is computed once before a loop.
    fn place(&mut self) -> &mut GraphProto {
        if self.is_before { &mut self.before } else { &mut self.made }
    }

    /// Adds a small constant; returns the tensor's name.
    pub(super) fn initializer(
        &mut self,
        name: &str,
        dtype: DType,
        dims: &[i64],
        bytes: Vec<u8>,
    ) -> String {
        self.initializer_of(name, data_type(dtype), dims, bytes)
    }

    /// Adds a small constant of a type that the graph language lacks; returns the tensor's name.
    pub(super) fn initializer_of(
        &mut self,
        name: &str,
        data_type: DataType,
        dims: &[i64],
        bytes: Vec<u8>,
    ) -> String {
        let name = self.tensor_names.fresh(name);
        let tensor = TensorProto {
            dims: dims.to_vec(),
            data_type: data_type.into(),
            name: name.clone(),
            raw_data: Some(bytes.into()),
            ..TensorProto::default()
        };
        // Constants of a loop's body are in the whole graph, where every engine folds and shares
        // them.
        if self.outside.is_some() { &mut self.before } else { &mut self.made }
            .initializer
            .push(tensor);
        name
    }
}

/// A tensor's name and type; the name of a symbolic size is its polynomial.
pub(super) fn value_info(name: &str, ty: &Type) -> ValueInfoProto {
    let dims = ty.shape.dims().iter().map(|dim| match dim.as_constant() {
        Some(size) => DimensionProto { dim_value: Some(size), dim_param: None },
        None => DimensionProto { dim_value: None, dim_param: Some(dim.to_string()) },
    });
    let shape = TensorShapeProto { dim: dims.collect() };
    let tensor_type = TensorTypeProto { elem_type: data_type(ty.dtype).into(), shape: Some(shape) };
    ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto { tensor_type: Some(tensor_type) }),
        doc_string: String::new(),
    }
}

/// The names in use.
#[derive(Default)]
pub(super) struct Names {
    used: HashSet<String>,
}

impl Names {
    /// The names of inputs, parameters and outputs, which are kept exactly.
    pub(super) fn of_interface(graph: &Graph) -> Result<Self, Error> {
        let inputs = graph.inputs().map(|(_, node)| (node.name.as_str(), "an input"));
        let parameters =
            graph.all_parameters().into_iter().map(|node| (node.name.as_str(), "a parameter"));
        let outputs = graph.outputs().iter().map(|output| (output.name.as_str(), "an output"));
        let mut kinds = HashMap::new();
        for (name, kind) in inputs.chain(parameters).chain(outputs) {
            if name.is_empty() {
                return Err(Problem::NoName { graph: graph.name().into(), kind }.into());
            }
            if let Some(first) = kinds.insert(name, kind) {
                return Err(Problem::SameName {
                    graph: graph.name().into(),
                    name: name.into(),
                    first,
                    second: kind,
                }
                .into());
            }
        }
        Ok(Self { used: kinds.into_keys().map(str::to_owned).collect() })
    }

    /// The names of inputs and parameters: engines with one namespace convert them to nodes.
    pub(super) fn of_given(graph: &Graph) -> Self {
        let inputs = graph.inputs().map(|(_, node)| node);
        Self { used: inputs.chain(graph.all_parameters()).map(|node| node.name.clone()).collect() }
    }

    /// The names of both.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.used.extend(other.used);
        self
    }

    /// Returns `wanted`, or the first unused name of `wanted_1`, `wanted_2`, ...
    pub(super) fn fresh(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let mut count = 0;
        while !self.used.insert(name.clone()) {
            count += 1;
            name = format!("{wanted}_{count}");
        }
        name
    }
}
