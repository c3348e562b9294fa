//! The Open Inference Protocol over gRPC: its unary calls, in gRPC's frames over HTTP/2.
//!
//! Source: `grpc_predict_v2.proto` of KServe, and gRPC's "gRPC over HTTP2". No code is generated:
//! the messages are derived.

mod proto;

use super::tensors::{self, Datatype, Elements, Tensor};
use super::{RESERVED, TensorType, VERSION};
use crate::Server;
use crate::compression::decompressed;
use crate::error::Failure;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt, Full};
use prost::Message;
use proto::{
    Empty, IndexedModel, InferContents, InferInput, InferOutput, InferRequest, InferResponse,
    Metadata, ModelRequest, Named, Parameter, RepositoryIndex, State as Answer, TensorMetadata,
};
use std::convert::Infallible;
use std::sync::Arc;

/// Size of the head of a frame: whether it is compressed, and the length of its message.
const FRAME: usize = 5;
const CONTENT_TYPE: &str = "application/grpc+proto";

/// `POST /inference.GRPCInferenceService/{method}`
pub(crate) async fn call(
    State(server): State<Arc<Server>>,
    Path(method): Path<String>,
    request: Request,
) -> Response {
    match answered(&server, &method, request).await {
        Ok(message) => framed(&message),
        Err(failure) => failed(&failure),
    }
}

async fn answered(server: &Server, method: &str, request: Request) -> Result<Vec<u8>, Failure> {
    if !method.ends_with("Live") && !method.ends_with("Ready") {
        server.authorise(request.headers(), None)?;
    }
    let coding = request.headers().get("grpc-encoding").cloned();
    let body = server.body(request).await?;
    let message = message(body, coding.as_ref(), server.max_body)?;
    let message = &message[..];
    Ok(match method {
        "ServerLive" | "ServerReady" => Answer { is_so: true }.encode_to_vec(),
        "ModelReady" => {
            let ModelRequest { name, version } = decoded(message)?;
            Answer { is_so: server.of_version(&(name, of_request(version))).is_ok() }
                .encode_to_vec()
        }
        "ServerMetadata" => {
            decoded::<Empty>(message)?;
            let extensions = super::EXTENSIONS.map(str::to_owned).to_vec();
            Named { name: "cognate".into(), version: env!("CARGO_PKG_VERSION").into(), extensions }
                .encode_to_vec()
        }
        "ModelMetadata" => {
            let ModelRequest { name, version } = decoded(message)?;
            let served = server.of_version(&(name, of_request(version)))?;
            let described = |tensors: Vec<TensorType>| {
                let of_tensor = |TensorType { name, datatype, shape }| TensorMetadata {
                    name,
                    datatype: Datatype::name(datatype).into(),
                    shape,
                };
                tensors.into_iter().map(of_tensor).collect()
            };
            let metadata = Metadata {
                name: served.name().into(),
                versions: vec![VERSION.into()],
                platform: served.platform(),
                inputs: described(served.inputs()),
                outputs: described(served.outputs()),
            };
            metadata.encode_to_vec()
        }
        "RepositoryIndex" => {
            let of_model = |name: &str| IndexedModel {
                name: name.into(),
                version: VERSION.into(),
                state: "READY".into(),
                reason: String::new(),
            };
            RepositoryIndex { models: server.served_names().map(of_model).collect() }
                .encode_to_vec()
        }
        "ModelInfer" => infer(server, decoded(message)?).await?.encode_to_vec(),
        other => {
            return Err(Failure::new(
                StatusCode::NOT_IMPLEMENTED,
                format_args!("the method {other} is not supported"),
            ));
        }
    })
}

/// The version of a request, by default the only one.
fn of_request(version: String) -> String {
    if version.is_empty() { VERSION.into() } else { version }
}

async fn infer(server: &Server, request: InferRequest) -> Result<InferResponse, Failure> {
    let InferRequest {
        model_name,
        model_version,
        id,
        parameters,
        inputs,
        outputs,
        raw_input_contents,
    } = request;
    let served = server.of_version(&(model_name, of_request(model_version)))?;
    let is_raw = !raw_input_contents.is_empty();
    if is_raw
        && (raw_input_contents.len() != inputs.len()
            || inputs.iter().any(|input| input.contents.is_some()))
    {
        return Err(Failure::bad(
            "raw_input_contents: expected one for each input, and no contents",
        ));
    }
    let raw =
        raw_input_contents.iter().map(|raw| Some(raw.as_slice())).chain(std::iter::repeat(None));
    let inputs = inputs
        .into_iter()
        .zip(raw)
        .map(|(input, raw)| tensor(input, raw))
        .collect::<Result<_, _>>()?;
    let parameters = parameters.into_iter().filter(|(name, _)| !RESERVED.contains(&name.as_str()));
    let parameter = |(name, value): (String, Parameter)| match value.json() {
        Some(value) => Ok((name, value)),
        None => Err(Failure::bad(format_args!("{name}: expected a text or a finite number"))),
    };
    let parameters = parameters.map(parameter).collect::<Result<_, _>>()?;
    let wanted: Vec<_> = outputs.into_iter().map(|output| output.name).collect();
    let found = served.infer(inputs, parameters, &wanted).await?;
    let mut response = InferResponse {
        model_name: served.name().into(),
        model_version: VERSION.into(),
        id,
        ..InferResponse::default()
    };
    for Tensor { name, shape, elements } in found {
        let shape = shape.into_iter().map(|size| i64::try_from(size).unwrap_or(i64::MAX)).collect();
        let datatype = elements.datatype().name().into();
        if is_raw {
            response.raw_output_contents.push(elements.bytes());
        }
        let contents = (!is_raw).then(|| contents(elements));
        response.outputs.push(InferOutput { name, datatype, shape, contents });
    }
    Ok(response)
}

/// An input, whose elements are in `raw` or in its contents.
fn tensor(input: InferInput, raw: Option<&[u8]>) -> Result<Tensor, Failure> {
    let InferInput { name, datatype, shape, contents } = input;
    let wrong = |message: String| Failure::bad(format_args!("{name}: {message}"));
    let datatype = datatype.parse().map_err(wrong)?;
    let elements = match (raw, datatype, contents.unwrap_or_default()) {
        (Some(raw), ..) => Elements::of_bytes(datatype, raw),
        (None, Datatype::Bytes, contents) => {
            tensors::utf8(contents.bytes_contents.iter().map(Vec::as_slice)).map(Elements::Bytes)
        }
        (None, Datatype::Fp32, contents) => Ok(Elements::Fp32(contents.fp32_contents)),
        (None, Datatype::Int64, contents) => Ok(Elements::Int64(contents.int64_contents)),
    };
    let elements = elements.map_err(|failure| wrong(failure.message))?;
    Tensor::asked(name, &shape, elements)
}

fn contents(elements: Elements) -> InferContents {
    let mut contents = InferContents::default();
    match elements {
        Elements::Bytes(texts) => {
            contents.bytes_contents = texts.into_iter().map(String::into_bytes).collect()
        }
        Elements::Fp32(numbers) => contents.fp32_contents = numbers,
        Elements::Int64(numbers) => contents.int64_contents = numbers,
    }
    contents
}

fn decoded<M: Message + Default>(message: &[u8]) -> Result<M, Failure> {
    M::decode(message).map_err(|error| Failure::bad(format_args!("the message: {error}")))
}

/// The message of the only frame of a body.
fn message(body: Bytes, coding: Option<&HeaderValue>, limit: usize) -> Result<Bytes, Failure> {
    let Some((head, message)) = body.split_first_chunk::<FRAME>() else {
        return Err(Failure::bad("expected a frame of gRPC"));
    };
    let [compressed, length @ ..] = *head;
    if u32::from_be_bytes(length) as usize != message.len() {
        return Err(Failure::bad(format_args!(
            "expected one message of {} bytes, found {}",
            u32::from_be_bytes(length),
            message.len()
        )));
    }
    let coding = match (compressed, coding) {
        (0, _) => None,
        (_, None) => {
            return Err(Failure::bad("grpc-encoding: missing, but the message is compressed"));
        }
        (_, coding) => coding,
    };
    decompressed(body.slice(FRAME..), coding, limit)
}

fn framed(message: &[u8]) -> Response {
    let length =
        u32::try_from(message.len()).expect("an answer is shorter than 4 GiB").to_be_bytes();
    let body = Full::new(Bytes::from([&[0][..], &length, message].concat()));
    let trailers = HeaderMap::from_iter([(
        header::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    response(Body::new(body.with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) })))
}

/// A response of only headers.
fn failed(failure: &Failure) -> Response {
    // Codes of gRPC.
    let code = match failure.status {
        StatusCode::BAD_REQUEST => 3,
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => 4,
        StatusCode::NOT_FOUND => 5,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => 8,
        StatusCode::NOT_IMPLEMENTED | StatusCode::UNSUPPORTED_MEDIA_TYPE => 12,
        StatusCode::SERVICE_UNAVAILABLE => 14,
        StatusCode::UNAUTHORIZED => 16,
        _ => 13,
    };
    let mut response = response(Body::empty());
    let headers = response.headers_mut();
    headers.insert("grpc-status", HeaderValue::from(code));
    headers.insert(
        "grpc-message",
        HeaderValue::from_str(&escaped(&failure.message))
            .unwrap_or(HeaderValue::from_static("failed")),
    );
    response
}

fn response(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    response
}

/// Bytes other than printable ASCII as `%` and two digits.
fn escaped(message: &str) -> String {
    let of_byte = |byte: u8| {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    message.bytes().map(of_byte).collect()
}
