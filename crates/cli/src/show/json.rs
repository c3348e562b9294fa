//! `cognate show --json`.

use super::{GraphName, facts, n_nodes, program};
use anyhow::Result;
use cognate::{Manifest, ModelSource};
use cognate_export::Listing;
use cognate_model::Model;
use serde_json::{Map, Value, json};
use std::path::Path;

/// A model: its `config.json`, its description, its parameters and its graphs.
pub(super) fn model(source: &ModelSource, model: &Model, languages: &[String]) -> Result<Value> {
    let description: Map<_, _> = facts::facts(model)?
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    let tensor = |(name, recipe): (&str, &cognate_graph::Recipe)| json!({ "name": name, "shape": recipe.shape() });
    let graph = |name| {
        let program = program(model, name)?;
        let graph = program.graph();
        let inputs = graph.inputs().map(|(_, node)| port(&node.name, &node.ty.to_string()));
        let outputs = graph
            .outputs()
            .iter()
            .map(|output| port(&output.name, &graph.node(output.node).ty.to_string()));
        let (inputs, outputs) = (inputs.collect::<Vec<_>>(), outputs.collect::<Vec<_>>());
        Ok(
            json!({ "name": graph.name(), "nodes": n_nodes(graph), "inputs": inputs, "outputs": outputs }),
        )
    };
    let graphs: Vec<_> = GraphName::of(model).iter().copied().map(graph).collect::<Result<_>>()?;
    Ok(json!({
        "source": source.to_string(),
        "config": serde_json::from_str::<Value>(model.config_json())?,
        "description": description,
        "languages": languages,
        "n_parameters": model.parameters(),
        "parameters": model.weights().iter().map(tensor).collect::<Vec<_>>(),
        "graphs": graphs,
    }))
}

/// An exported folder: its manifest and its graphs.
pub(super) fn exported(
    folder: &Path,
    manifest: Option<&Manifest>,
    listings: &[(&str, Listing)],
    languages: &[String],
) -> Value {
    let graphs: Map<_, _> =
        listings.iter().map(|(file, found)| ((*file).to_owned(), listing(found))).collect();
    json!({ "source": folder.display().to_string(), "manifest": manifest, "languages": languages, "graphs": graphs })
}

/// An ONNX file.
pub(super) fn listing(listing: &Listing) -> Value {
    let Listing {
        graph,
        producer,
        ir_version,
        opsets,
        doc,
        metadata,
        inputs,
        outputs,
        operators,
        initializers,
    } = listing;
    let ports = |ports: &[(String, String)]| {
        ports.iter().map(|(name, ty)| port(name, ty)).collect::<Vec<_>>()
    };
    let initializers = initializers.iter().map(|initializer| {
        let (file, offset) = initializer.external.clone().unzip();
        json!({ "name": initializer.name, "type": initializer.ty, "bytes": initializer.bytes, "file": file, "offset": offset })
    });
    json!({
        "graph": graph, "producer": producer, "ir_version": ir_version, "opsets": opsets, "doc": doc, "metadata": metadata,
        "inputs": ports(inputs), "outputs": ports(outputs), "operators": operators, "initializers": initializers.collect::<Vec<_>>(),
    })
}

fn port(name: &str, ty: &str) -> Value {
    json!({ "name": name, "type": ty })
}
