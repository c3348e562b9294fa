//! Reads ONNX files of any program.

use crate::Error;
use crate::check;
use crate::error::{Context, Problem};
use crate::model::FILE_LIMIT;
use crate::proto::ModelProto;
use prost::Message;
use prost::bytes::Bytes;
use std::io::Read;
use std::path::Path;

/// Reads the model at `path`, without weights in other files.
///
/// # Errors
/// If the file cannot be read, exceeds the 2 GiB of an ONNX file, is not an ONNX model, or unpacks
/// to far more memory than it has bytes.
pub fn read_model(path: &Path) -> Result<ModelProto, Error> {
    let (file, expected) = check::open(path)?;
    let mut bytes = Vec::with_capacity(expected.len() as usize);
    // The file may grow after its size was read.
    file.take(FILE_LIMIT + 1).read_to_end(&mut bytes).context("read", path)?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(Problem::TooLong { path: path.into(), limit: FILE_LIMIT }.into());
    }
    check::check_amount(path, &bytes)?;
    let no_model = |message: String| Problem::NoModel { path: path.into(), message };
    let model = ModelProto::decode(Bytes::from(bytes)).map_err(|error| {
        // The error lists a field per level of nesting before the cause: a hundred of
        // them are useless.
        let text = error.to_string();
        no_model(format!("decoding failed at \"{}\"", text.rsplit(": ").next().unwrap_or(&text)))
    })?;
    if model.graph.is_none() {
        return Err(no_model("missing graph".into()).into());
    }
    Ok(model)
}
