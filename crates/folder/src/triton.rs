//! A model repository of NVIDIA's Triton Inference Server: a folder for each model, with its
//! configuration and its version 1.
//!
//! Encoder and decoder run in Triton's backend of ONNX Runtime, on tensors. A third model
//! translates texts, in Triton's backend of Python, with the package `cognate` on the same files.

use crate::{Error, ErrorKind, Result};
use cognate_export::{Folder, Listing, tensor_type};
use cognate_model::{Config, Front, Layout, Parts};
use std::fmt::Write;

/// The file of Triton's configuration in a model's folder.
const FILE: &str = "config.pbtxt";

/// The files of the model that translates.
const TRANSLATE: [(&str, &str); 2] = [
    ("translate/config.pbtxt", include_str!("triton/translate.pbtxt")),
    ("translate/1/model.py", include_str!("triton/model.py")),
];

/// The files of a repository that are neither graphs nor weights.
pub const TRITON_FILES: [&str; 5] = [
    "encoder/config.pbtxt",
    "decoder/config.pbtxt",
    "model/config.pbtxt",
    TRANSLATE[0].0,
    TRANSLATE[1].0,
];

/// Writes the configuration of each graph of [`Layout::Triton`] in `folder`, and the model that
/// translates.
///
/// # Errors
/// If a graph has a type that Triton does not know, or a file cannot be written.
pub fn write_repository(config: &Config, folder: &mut Folder) -> Result<()> {
    for file in Layout::Triton.files_of(config.parts) {
        let path = folder.path().join(file);
        let listing = Listing::read(&path)?;
        let model = file.split('/').next().unwrap_or(file);
        let text = configuration(model, &listing)
            .map_err(|message| Error::new(ErrorKind::Model, path.display(), message))?;
        folder.write(&format!("{model}/{FILE}"), text.as_bytes())?;
    }
    if config.parts == Parts::Both && config.front == Front::Tokens {
        TRANSLATE.iter().try_for_each(|(file, text)| folder.write(file, text.as_bytes()))?;
    }
    Ok(())
}

/// The text of `config.pbtxt` for a graph: names, types and sizes of its inputs and outputs, -1 for
/// sizes that are not constant.
fn configuration(name: &str, graph: &Listing) -> Result<String, String> {
    let mut text = format!("name: \"{name}\"\nplatform: \"onnxruntime_onnx\"\nmax_batch_size: 0\n");
    for (field, values) in [("input", &graph.inputs), ("output", &graph.outputs)] {
        for (value, described) in values {
            let (data_type, dims) = triton_type(described)
                .ok_or_else(|| format!("{value}: Triton has no type {described}"))?;
            let _ = writeln!(
                text,
                "{field} {{ name: \"{value}\" data_type: {data_type} dims: [ {dims} ] }}"
            );
        }
    }
    Ok(text)
}

/// Triton's name of the type, and the sizes, of `f32 [batch, 4, past, 32]`.
fn triton_type(described: &str) -> Option<(&'static str, String)> {
    let (element, sizes) = tensor_type(described)?;
    let data_type = match element {
        "f32" => "TYPE_FP32",
        "f16" => "TYPE_FP16",
        "i64" => "TYPE_INT64",
        _ => return None,
    };
    let dims: Vec<_> = sizes.into_iter().map(|size| size.unwrap_or(-1).to_string()).collect();
    Some((data_type, dims.join(", ")))
}
