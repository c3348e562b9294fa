//! Requests and answers of `infer`: JSON, followed by the bytes of binary tensors.

use super::tensors::{self, Strings};
use super::{Answered, SCORE, TEXT_INPUT, TEXT_OUTPUT, VERSION};
use crate::error::Failure;
use crate::models::Model;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The length of the JSON, if binary tensors follow it.
const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

#[derive(Deserialize)]
pub(super) struct InferRequest {
    id: Option<String>,
    #[serde(default)]
    pub(super) parameters: Map<String, Value>,
    inputs: Vec<InputTensor>,
    #[serde(default)]
    outputs: Vec<RequestedOutput>,
    /// Of the only input, if they are binary.
    #[serde(skip)]
    binary: Option<Vec<u8>>,
}

#[derive(Deserialize)]
struct InputTensor {
    name: String,
    shape: Vec<u64>,
    datatype: String,
    #[serde(default)]
    parameters: Map<String, Value>,
    data: Option<Value>,
}

#[derive(Deserialize)]
struct RequestedOutput {
    name: String,
    #[serde(default)]
    parameters: Map<String, Value>,
}

impl InferRequest {
    pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, Failure> {
        let n_json = match headers.get(&JSON_LENGTH) {
            None => body.len(),
            Some(length) => {
                let found = length.to_str().ok().and_then(|length| length.parse().ok()).filter(|length| *length <= body.len());
                let message = format!("Inference-Header-Content-Length: expected a number of at most {} bytes", body.len());
                found.ok_or_else(|| Failure::bad(message))?
            }
        };
        let (text, mut rest) = body.split_at(n_json);
        let mut request: Self = serde_json::from_slice(text).map_err(|error| Failure::bad(format_args!("the body: {error}")))?;
        let [input] = &request.inputs[..] else {
            return Err(Failure::bad(format_args!("inputs: expected {TEXT_INPUT}, found {} tensors", request.inputs.len())));
        };
        if input.name != TEXT_INPUT || input.datatype != "BYTES" {
            let message = format!("inputs: expected {TEXT_INPUT} of BYTES, found {} of {}", input.name, input.datatype);
            return Err(Failure::bad(message));
        }
        if let Some(size) = input.parameters.get("binary_data_size") {
            let size = size.as_u64().and_then(|size| usize::try_from(size).ok()).filter(|size| *size <= rest.len());
            let size = size.ok_or_else(|| Failure::bad(format_args!("binary_data_size: expected at most {} bytes", rest.len())))?;
            let (bytes, others) = rest.split_at(size);
            (request.binary, rest) = (Some(bytes.to_vec()), others);
        }
        if !rest.is_empty() {
            return Err(Failure::bad(format_args!("{} bytes follow the tensors", rest.len())));
        }
        if let Some(unknown) = request.outputs.iter().find(|output| ![TEXT_OUTPUT, SCORE].contains(&output.name.as_str())) {
            return Err(Failure::bad(format_args!("outputs: expected {TEXT_OUTPUT} or {SCORE}, found {}", unknown.name)));
        }
        Ok(request)
    }

    /// The texts and their shape.
    pub(super) fn texts(&self) -> Result<(Vec<String>, Vec<u64>), Failure> {
        let [input] = &self.inputs[..] else { return Ok((Vec::new(), Vec::new())) };
        let texts = match (&self.binary, &input.data) {
            (Some(bytes), _) => tensors::strings(bytes)?,
            (None, Some(data)) => tensors::flat(data)?,
            (None, None) => return Err(Failure::bad(format_args!("{TEXT_INPUT}: has neither data nor binary_data_size"))),
        };
        Ok((texts, input.shape.clone()))
    }

    /// The wanted outputs, and whether each is binary.
    fn outputs(&self) -> Vec<(&str, bool)> {
        let is_set = |parameters: &Map<String, Value>, name: &str| parameters.get(name).and_then(Value::as_bool);
        let by_default = is_set(&self.parameters, "binary_data_output").unwrap_or(false);
        if self.outputs.is_empty() {
            return vec![(TEXT_OUTPUT, by_default), (SCORE, by_default)];
        }
        let wanted = |output: &'_ RequestedOutput| is_set(&output.parameters, "binary_data").unwrap_or(by_default);
        self.outputs.iter().map(|output| (output.name.as_str(), wanted(output))).collect()
    }
}

/// The answer with texts and scores in this shape.
pub(super) fn answer(model: &Model, request: &InferRequest, shape: &[u64], found: Vec<(&str, f32)>) -> Answered {
    let (mut outputs, mut binary) = (Vec::new(), Vec::new());
    for (name, is_binary) in request.outputs() {
        let is_text = name == TEXT_OUTPUT;
        let mut output = json!({ "name": name, "datatype": if is_text { "BYTES" } else { "FP32" }, "shape": shape });
        if is_binary {
            let before = binary.len();
            match is_text {
                true => binary.extend(Strings(found.iter().map(|(text, _)| *text)).bytes()),
                false => binary.extend(found.iter().flat_map(|(_, score)| score.to_le_bytes())),
            }
            output["parameters"] = json!({ "binary_data_size": binary.len() - before });
        } else {
            // JSON has no infinity.
            let score = |score: f32| if score.is_finite() { json!(score) } else { json!(f32::MIN) };
            output["data"] = found.iter().map(|(text, number)| if is_text { json!(text) } else { score(*number) }).collect();
        }
        outputs.push(output);
    }
    let mut head = json!({ "model_name": model.name, "model_version": VERSION, "outputs": outputs });
    if let Some(id) = &request.id {
        head["id"] = json!(id);
    }
    let head = head.to_string();
    if binary.is_empty() {
        return Ok((StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], head).into_response());
    }
    let length = head.len().to_string();
    let body = [head.as_bytes(), &binary].concat();
    let kind = [(header::CONTENT_TYPE, "application/octet-stream".to_owned()), (JSON_LENGTH, length)];
    Ok((StatusCode::OK, kind, body).into_response())
}
