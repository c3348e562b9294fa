//! ONNX models: a lowered graph with weights and metadata.

use crate::Error;
use crate::error::Problem;
use crate::lower::{CONTRIB, OPSET, Target, lower};
use crate::nested::fold_near_loops;
use crate::proto::{DataType, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto};
use cognate_graph::{Element, Graph, Program, Recipe};
use prost::Message;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// The file format of opset 18, supported by all current runtimes.
const IR_VERSION: i64 = 9;

/// Maximum size of a protobuf message, and so of an ONNX file.
pub(crate) const FILE_LIMIT: u64 = (1 << 31) - 1;

/// The metadata key of a graph's layout.
pub const LAYOUT_KEY: &str = "cognate.layout";

/// A model's description and metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// A description.
    pub doc: String,
    /// Key-value pairs (`metadata_props`).
    pub properties: BTreeMap<String, String>,
}

/// The bytes of an ONNX file that contains `program` and its weights; for tests and small models.
///
/// # Errors
/// If the graph is invalid or ONNX cannot represent it, or if the weights exceed the 2
/// GiB of a file.
pub fn to_onnx_bytes(program: &Program, metadata: &Metadata) -> Result<Vec<u8>, Error> {
    let graph = program.graph();
    let recipes = || parameters(program).map(|(_, recipe)| recipe);
    let bytes = recipes().map(Recipe::byte_len).sum();
    if bytes > FILE_LIMIT {
        return Err(Problem::TooLargeInline {
            graph: graph.name().into(),
            bytes,
            limit: FILE_LIMIT,
        }
        .into());
    }
    Ok(model(
        graph,
        Target::Portable,
        metadata,
        parameters(program).map(|(name, recipe)| inline(name, recipe)).collect(),
    )?
    .encode_to_vec())
}

/// The model of `graph` with the given tensors as parameters.
pub(crate) fn model(
    graph: &Graph,
    target: Target,
    metadata: &Metadata,
    parameters: Vec<TensorProto>,
) -> Result<ModelProto, Error> {
    let mut lowered = lower(graph, target)?;
    fold_near_loops(&mut lowered, &parameters);
    lowered.initializer.splice(0..0, parameters);
    let contrib = lowered.node.iter().any(|node| node.domain == CONTRIB);
    let opsets = [Some(("", OPSET)), contrib.then_some((CONTRIB, 1))].into_iter().flatten();
    Ok(ModelProto {
        ir_version: IR_VERSION,
        opset_import: opsets
            .map(|(domain, version)| OperatorSetIdProto { domain: domain.into(), version })
            .collect(),
        producer_name: "cognate".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        doc_string: metadata.doc.clone(),
        graph: Some(lowered),
        metadata_props: metadata.properties.iter().map(|(key, value)| entry(key, value)).collect(),
    })
}

/// The parameters of a program and their recipes, in the order of first use.
pub(crate) fn parameters(program: &Program) -> impl Iterator<Item = (&str, &Recipe)> {
    program.graph().all_parameters().into_iter().map(|node| {
        let recipe = program
            .weights()
            .get(&node.name)
            .expect("Program::new found a weight for every parameter");
        (node.name.as_str(), recipe)
    })
}

/// A parameter with its values.
pub(crate) fn inline(name: &str, recipe: &Recipe) -> TensorProto {
    let mut bytes = Vec::with_capacity(recipe.byte_len() as usize);
    let Ok(()) = recipe.stream(|piece| {
        bytes.extend_from_slice(piece);
        Ok::<_, Infallible>(())
    });
    TensorProto { raw_data: Some(bytes.into()), ..parameter(name, recipe) }
}

/// A parameter without values.
pub(crate) fn parameter(name: &str, recipe: &Recipe) -> TensorProto {
    TensorProto {
        dims: recipe.shape().iter().map(|&size| size as i64).collect(),
        data_type: element_type(recipe.element()).into(),
        name: name.into(),
        ..TensorProto::default()
    }
}

fn element_type(element: Element) -> DataType {
    match element {
        Element::F32 => DataType::Float,
        Element::F16 => DataType::Float16,
        Element::Bf16 => DataType::Bfloat16,
        Element::I8 => DataType::Int8,
        Element::U8 => DataType::Uint8,
    }
}

pub(crate) fn entry(key: &str, value: impl ToString) -> StringStringEntryProto {
    StringStringEntryProto { key: key.into(), value: value.to_string() }
}
