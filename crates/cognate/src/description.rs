//! Descriptions of models, exported folders and ONNX files.

mod facts;
mod folder;
mod model;

pub use folder::FolderDescription;
pub use model::ModelDescription;

use cognate_export::{Initializer, Listing};
use cognate_folder::ModelSource;
use cognate_text::Tokenizer;
use serde_json::{Value, json};

/// The contents of an ONNX file as JSON.
pub fn listing_json(listing: &Listing) -> Value {
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
    let [inputs, outputs] = [inputs, outputs].map(|ports| self::ports(ports));
    let initializer = |Initializer { name, ty, bytes, external }: &Initializer| {
        let (file, offset) = external.clone().unzip();
        json!({ "name": name, "type": ty, "bytes": bytes, "file": file, "offset": offset })
    };
    let initializers: Vec<_> = initializers.iter().map(initializer).collect();
    json!({
        "graph": graph, "producer": producer, "ir_version": ir_version, "opsets": opsets, "doc": doc,
        "metadata": metadata, "inputs": inputs, "outputs": outputs, "operators": operators,
        "initializers": initializers,
    })
}

/// Inputs or outputs, with their types.
fn ports(ports: &[(String, String)]) -> Vec<Value> {
    ports.iter().map(|(name, ty)| json!({ "name": name, "type": ty })).collect()
}

/// The languages of a model's tokenizer, if it has one.
fn languages(source: &ModelSource) -> Vec<String> {
    let tokenizer = source.folder().ok().and_then(|folder| Tokenizer::from_folder(folder).ok());
    tokenizer.map(|tokenizer| tokenizer.languages()).unwrap_or_default()
}
