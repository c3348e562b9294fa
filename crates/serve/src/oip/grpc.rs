//! The Open Inference Protocol over gRPC: its calls with one message each way, in gRPC's frames over HTTP/2.
//!
//! Source: `grpc_predict_v2.proto` of KServe, and gRPC's "gRPC over HTTP2". No code is generated: the messages are derived.

mod proto;

use super::tensors::{self, Strings};
use super::{RESERVED, SCORE, TEXT_INPUT, TEXT_OUTPUT, VERSION, hypotheses, inferred, platform};
use crate::Server;
use crate::error::Failure;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt, Full};
use prost::Message;
use proto::{
    Empty, IndexedModel, InferContents, InferOutput, InferRequest, InferResponse, Metadata, ModelRequest, Named, RepositoryIndex,
    State as Answer, TensorMetadata,
};
use std::convert::Infallible;
use std::sync::Arc;

/// A frame begins with whether it is compressed, and with the length of its message.
const FRAME: usize = 5;
const CONTENT_TYPE: &str = "application/grpc+proto";

/// `POST /inference.GRPCInferenceService/{method}`
pub(crate) async fn call(State(server): State<Arc<Server>>, Path(method): Path<String>, request: Request) -> Response {
    match answered(&server, &method, request).await {
        Ok(message) => framed(&message),
        Err(failure) => failed(&failure),
    }
}

async fn answered(server: &Server, method: &str, request: Request) -> Result<Vec<u8>, Failure> {
    if !method.ends_with("Live") && !method.ends_with("Ready") {
        server.authorise(request.headers(), None)?;
    }
    let body = server.body(request).await?;
    let message = message(&body)?;
    Ok(match method {
        "ServerLive" | "ServerReady" => Answer { is_so: true }.encode_to_vec(),
        "ModelReady" => {
            let ModelRequest { name, version } = decoded(message)?;
            Answer { is_so: server.of_version(&(name, of_request(version))).is_ok() }.encode_to_vec()
        }
        "ServerMetadata" => {
            decoded::<Empty>(message)?;
            let extensions = super::EXTENSIONS.map(str::to_owned).to_vec();
            Named { name: "cognate".into(), version: env!("CARGO_PKG_VERSION").into(), extensions }.encode_to_vec()
        }
        "ModelMetadata" => {
            let ModelRequest { name, version } = decoded(message)?;
            let model = server.of_version(&(name, of_request(version)))?;
            let tensor = |name: &str, datatype: &str| TensorMetadata { name: name.into(), datatype: datatype.into(), shape: vec![-1] };
            let metadata = Metadata {
                name: model.name.clone(),
                versions: vec![VERSION.into()],
                platform: platform(&model),
                inputs: vec![tensor(TEXT_INPUT, "BYTES")],
                outputs: vec![tensor(TEXT_OUTPUT, "BYTES"), tensor(SCORE, "FP32")],
            };
            metadata.encode_to_vec()
        }
        "RepositoryIndex" => {
            let of_model = |model: &Arc<crate::models::Model>| IndexedModel {
                name: model.name.clone(),
                version: VERSION.into(),
                state: "READY".into(),
                reason: String::new(),
            };
            RepositoryIndex { models: server.models.iter().map(of_model).collect() }.encode_to_vec()
        }
        "ModelInfer" => infer(server, decoded(message)?).await?.encode_to_vec(),
        other => return Err(Failure::new(StatusCode::NOT_IMPLEMENTED, format_args!("the method {other} is not supported"))),
    })
}

/// The version of a request, by default the only one.
fn of_request(version: String) -> String {
    if version.is_empty() { VERSION.into() } else { version }
}

async fn infer(server: &Server, request: InferRequest) -> Result<InferResponse, Failure> {
    let InferRequest { model_name, model_version, id, parameters, inputs, outputs, raw_input_contents } = request;
    let model = server.of_version(&(model_name, of_request(model_version)))?;
    let [input] = &inputs[..] else {
        return Err(Failure::bad(format_args!("inputs: expected {TEXT_INPUT}, found {} tensors", inputs.len())));
    };
    if input.name != TEXT_INPUT || input.datatype != "BYTES" {
        return Err(Failure::bad(format_args!("inputs: expected {TEXT_INPUT} of BYTES, found {} of {}", input.name, input.datatype)));
    }
    let is_raw = !raw_input_contents.is_empty();
    let texts = match (&raw_input_contents[..], &input.contents) {
        ([raw], None) => tensors::strings(raw)?,
        ([], Some(contents)) => tensors::utf8(contents.bytes_contents.iter().map(Vec::as_slice))?,
        ([], None) => Vec::new(),
        _ => return Err(Failure::bad("raw_input_contents: expected one for each input without contents")),
    };
    let sizes = input.shape.iter().map(|&size| u64::try_from(size).map_err(|_| Failure::bad(format_args!("shape: {:?}", input.shape))));
    let shape = sizes.collect::<Result<Vec<_>, _>>()?;
    let parameters = parameters.into_iter().filter(|(name, _)| !RESERVED.contains(&name.as_str()));
    let parameters = parameters.filter_map(|(name, value)| Some((name, value.json()?))).collect();
    let (shape, count, found) = inferred(&model, (texts, shape), parameters).await?;
    let found = hypotheses(&found, count);
    let shape: Vec<_> = shape.into_iter().map(|size| i64::try_from(size).unwrap_or(i64::MAX)).collect();
    let names: Vec<String> = match outputs.is_empty() {
        true => vec![TEXT_OUTPUT.into(), SCORE.into()],
        false => outputs.into_iter().map(|output| output.name).collect(),
    };
    let mut response = InferResponse { model_name: model.name.clone(), model_version: VERSION.into(), id, ..InferResponse::default() };
    for name in names {
        let (datatype, raw, contents) = match name.as_str() {
            TEXT_OUTPUT => {
                let texts = || found.iter().map(|(text, _)| *text);
                let contents =
                    InferContents { bytes_contents: texts().map(|text| text.as_bytes().to_vec()).collect(), ..Default::default() };
                ("BYTES", Strings(texts()).bytes(), contents)
            }
            SCORE => {
                let scores: Vec<_> = found.iter().map(|(_, score)| *score).collect();
                let raw = scores.iter().flat_map(|score| score.to_le_bytes()).collect();
                ("FP32", raw, InferContents { fp32_contents: scores, ..Default::default() })
            }
            other => return Err(Failure::bad(format_args!("outputs: expected {TEXT_OUTPUT} or {SCORE}, found {other}"))),
        };
        let contents = (!is_raw).then_some(contents);
        response.outputs.push(InferOutput { name, datatype: datatype.into(), shape: shape.clone(), contents });
        if is_raw {
            response.raw_output_contents.push(raw);
        }
    }
    Ok(response)
}

fn decoded<M: Message + Default>(message: &[u8]) -> Result<M, Failure> {
    M::decode(message).map_err(|error| Failure::bad(format_args!("the message: {error}")))
}

/// The message of the only frame of a body.
fn message(body: &Bytes) -> Result<&[u8], Failure> {
    let Some((head, message)) = body.split_first_chunk::<FRAME>() else { return Err(Failure::bad("expected a frame of gRPC")) };
    let [compressed, length @ ..] = *head;
    if compressed != 0 {
        return Err(Failure::new(StatusCode::NOT_IMPLEMENTED, "compressed messages are not supported"));
    }
    if u32::from_be_bytes(length) as usize != message.len() {
        return Err(Failure::bad(format_args!("expected one message of {} bytes, found {}", u32::from_be_bytes(length), message.len())));
    }
    Ok(message)
}

fn framed(message: &[u8]) -> Response {
    let length = u32::try_from(message.len()).expect("an answer is shorter than 4 GiB").to_be_bytes();
    let body = Full::new(Bytes::from([&[0][..], &length, message].concat()));
    let trailers = HeaderMap::from_iter([(header::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    response(Body::new(body.with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) })))
}

/// A response of headers alone.
fn failed(failure: &Failure) -> Response {
    // Codes of gRPC.
    let code = match failure.status {
        StatusCode::BAD_REQUEST => 3,
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => 4,
        StatusCode::NOT_FOUND => 5,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => 8,
        StatusCode::NOT_IMPLEMENTED => 12,
        StatusCode::SERVICE_UNAVAILABLE => 14,
        StatusCode::UNAUTHORIZED => 16,
        _ => 13,
    };
    let mut response = response(Body::empty());
    let headers = response.headers_mut();
    headers.insert("grpc-status", HeaderValue::from(code));
    headers.insert("grpc-message", HeaderValue::from_str(&escaped(&failure.message)).unwrap_or(HeaderValue::from_static("failed")));
    response
}

fn response(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    response
}

/// Bytes other than printable ASCII as `%` and two digits.
fn escaped(message: &str) -> String {
    let of_byte =
        |byte: u8| if (b' '..=b'~').contains(&byte) && byte != b'%' { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    message.bytes().map(of_byte).collect()
}
