//! The Cognate layout: a folder with one encoder, one decoder, and one weights file that both share, or a checkpoint's.

use anyhow::{Context, Result};
use cognate_export::{Additions, Export, Folder, Metadata};
use cognate_model::{Attentions, Model};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

pub(crate) const ENCODER: &str = "encoder.onnx";
pub(crate) const DECODER: &str = "decoder.onnx";
pub(crate) const WEIGHTS: &str = "weights.onnx_data";
/// Weights that a formula gives, beside a checkpoint that holds the others.
pub(crate) const GENERATED: &str = "generated.onnx_data";
pub(crate) const CONFIG: &str = "config.json";
pub(crate) const GENERATION: &str = "generation_config.json";

/// Writes the graphs of `model` and their weights; `name` says in the files where they come from.
pub(crate) fn write_graphs(model: &Model, attentions: Attentions, name: &str, folder: &mut Folder) -> Result<()> {
    exporting(model, attentions, name, WEIGHTS, |export| export.write(folder))
}

/// Writes the graphs of `model` beside its checkpoint, whose weights they read.
pub(crate) fn write_graphs_in_place(model: &Model, attentions: Attentions, name: &str, folder: &mut Additions) -> Result<()> {
    exporting(model, attentions, name, GENERATED, |export| export.write_in_place(folder))
}

fn exporting(
    model: &Model,
    attentions: Attentions,
    name: &str,
    weights_file: &str,
    write: impl FnOnce(&Export<'_>) -> Result<(), cognate_export::Error>,
) -> Result<()> {
    let (encoder, decoder) = (model.encode()?, model.step(attentions)?);
    let doc = format!(
        "An encoder-decoder Transformer, exported from {name}: {ENCODER} runs once, {DECODER} once for each new token, \
         from a past of length 0 on."
    );
    let metadata = Metadata { doc, properties: BTreeMap::from([("cognate.layout".into(), "cognate".into())]) };
    let graphs = [(ENCODER, &encoder), (DECODER, &decoder)];
    Ok(write(&Export { graphs: &graphs, weights_file, metadata: &metadata })?)
}

/// The text of a file that must be there.
pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))
}

/// The text of a file that may be missing.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        text => text.map(Some).with_context(|| format!("{}: cannot be read", path.display())),
    }
}

/// The name of a folder, however it is written: of `.` too.
pub(crate) fn folder_name(folder: &Path) -> String {
    let path = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
