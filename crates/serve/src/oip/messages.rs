//! Requests and answers of `infer`: JSON, followed by the bytes of binary tensors.

use super::tensors::{Elements, Tensor};
use super::{Answered, VERSION};
use crate::error::Failure;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

/// The length of the JSON, if binary tensors follow it.
pub(crate) const JSON_LENGTH: HeaderName =
    HeaderName::from_static("inference-header-content-length");

#[derive(Deserialize)]
pub(super) struct InferRequest {
    id: Option<String>,
    #[serde(default, deserialize_with = "or_null")]
    pub(super) parameters: Map<String, Value>,
    inputs: Vec<InputTensor>,
    #[serde(default, deserialize_with = "or_null")]
    outputs: Vec<RequestedOutput>,
}

/// A value, or its default for null.
fn or_null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    value: D,
) -> Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

#[derive(Deserialize)]
struct InputTensor {
    name: String,
    shape: Vec<u64>,
    datatype: String,
    #[serde(default, deserialize_with = "or_null")]
    parameters: Map<String, Value>,
    data: Option<Value>,
}

#[derive(Deserialize)]
struct RequestedOutput {
    name: String,
    #[serde(default, deserialize_with = "or_null")]
    parameters: Map<String, Value>,
}

impl InputTensor {
    /// The tensor, whose elements are in the JSON or at the start of the bytes `binary`, from which
    /// they are removed.
    fn read(self, binary: &mut &[u8]) -> Result<Tensor, Failure> {
        let Self { name, shape, datatype, parameters, data } = self;
        let wrong = |message: String| Failure::bad(format_args!("{name}: {message}"));
        let datatype = datatype.parse().map_err(wrong)?;
        let elements = match (parameters.get("binary_data_size"), data) {
            (Some(size), _) => {
                let size = size.as_u64().and_then(|size| usize::try_from(size).ok());
                let split = size.and_then(|size| binary.split_at_checked(size));
                let (bytes, rest) = split.ok_or_else(|| {
                    wrong(format!("binary_data_size: expected at most {} bytes", binary.len()))
                })?;
                *binary = rest;
                Elements::of_bytes(datatype, bytes)
            }
            (None, Some(data)) => Elements::of_json(datatype, &data),
            (None, None) => return Err(wrong("has neither data nor binary_data_size".into())),
        };
        let elements = elements.map_err(|failure| wrong(failure.message))?;
        Tensor::asked(name, &shape, elements)
    }
}

impl InferRequest {
    /// The request in a body, and its inputs.
    pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Result<(Self, Vec<Tensor>), Failure> {
        let n_json = match headers.get(&JSON_LENGTH) {
            None => body.len(),
            Some(length) => {
                let found = length
                    .to_str()
                    .ok()
                    .and_then(|length| length.parse().ok())
                    .filter(|length| *length <= body.len());
                let message = format!(
                    "Inference-Header-Content-Length: expected a number of at most {} bytes",
                    body.len()
                );
                found.ok_or_else(|| Failure::bad(message))?
            }
        };
        let (text, mut rest) = body.split_at(n_json);
        let mut request: Self = serde_json::from_slice(text)
            .map_err(|error| Failure::bad(format_args!("the body: {error}")))?;
        let inputs = std::mem::take(&mut request.inputs);
        let inputs =
            inputs.into_iter().map(|input| input.read(&mut rest)).collect::<Result<_, _>>()?;
        if !rest.is_empty() {
            return Err(Failure::bad(format_args!("{} bytes follow the tensors", rest.len())));
        }
        Ok((request, inputs))
    }

    /// The names of the requested outputs; empty for all.
    pub(super) fn wanted(&self) -> Vec<String> {
        self.outputs.iter().map(|output| output.name.clone()).collect()
    }

    /// Whether an output is requested as bytes.
    fn is_binary(&self, output: &str) -> bool {
        let asked = self
            .outputs
            .iter()
            .find(|asked| asked.name == output)
            .and_then(|asked| asked.parameters.get("binary_data"));
        asked
            .or(self.parameters.get("binary_data_output"))
            .and_then(Value::as_bool)
            .unwrap_or(false)
    }
}

/// The answer of a model with its outputs.
pub(super) fn answer(model: &str, request: &InferRequest, found: &[Tensor]) -> Answered {
    let (mut outputs, mut binary) = (Vec::new(), Vec::new());
    for Tensor { name, shape, elements } in found {
        let mut output =
            json!({ "name": name, "datatype": elements.datatype().name(), "shape": shape });
        if request.is_binary(name) {
            let bytes = elements.bytes();
            output["parameters"] = json!({ "binary_data_size": bytes.len() });
            binary.extend(bytes);
        } else {
            output["data"] = elements.json();
        }
        outputs.push(output);
    }
    let mut head = json!({ "model_name": model, "model_version": VERSION, "outputs": outputs });
    if let Some(id) = &request.id {
        head["id"] = json!(id);
    }
    let head = head.to_string();
    if binary.is_empty() {
        return Ok(
            (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], head).into_response()
        );
    }
    let length = head.len().to_string();
    let body = [head.as_bytes(), &binary].concat();
    let kind =
        [(header::CONTENT_TYPE, "application/octet-stream".to_owned()), (JSON_LENGTH, length)];
    Ok((StatusCode::OK, kind, body).into_response())
}
