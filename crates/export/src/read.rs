//! Reading ONNX files, ours and other people's.

use crate::Error;
use crate::check;
use crate::error::{Context, Problem};
use crate::model::FILE_LIMIT;
use crate::proto::ModelProto;
use prost::Message;
use prost::bytes::Bytes;
use std::io::Read;
use std::path::Path;

/// The model in the file at `path`, without the weights that lie in other files.
///
/// # Errors
/// If the file cannot be read, is larger than the 2 GiB that one ONNX file may have, is no ONNX model, or unpacks to far more
/// memory than it has bytes.
pub fn read_model(path: &Path) -> Result<ModelProto, Error> {
    let (file, expected) = check::open(path)?;
    let mut bytes = Vec::with_capacity(expected.len() as usize);
    // A file that grows may hold more than it said.
    file.take(FILE_LIMIT + 1).read_to_end(&mut bytes).context("read", path)?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(Problem::TooLong { path: path.into(), limit: FILE_LIMIT }.into());
    }
    check::check_amount(path, &bytes)?;
    let no_model = |message: String| Problem::NoModel { path: path.into(), message };
    let model = ModelProto::decode(Bytes::from(bytes)).map_err(|error| {
        // Before the cause stands a field for each level of nesting: a hundred of them say nothing.
        let text = error.to_string();
        no_model(format!("decoding stops at \"{}\"", text.rsplit(": ").next().unwrap_or(&text)))
    })?;
    if model.graph.is_none() {
        return Err(no_model("it has no graph".into()).into());
    }
    Ok(model)
}
