//! The Open Inference Protocol, version 2 (KServe, Triton), over HTTP, with Triton's binary tensors and `generate`, and over gRPC.
//!
//! A model takes `text_input`, strings of any shape, and gives `text_output` of that shape, with a last axis of the translations if
//! `n_best` asks for several, and `score` likewise. Options of decoding and languages are the request's parameters.

mod grpc;
mod messages;
mod tensors;

pub(crate) use self::grpc::call;
use self::messages::{InferRequest, answer};
use crate::Server;
use crate::error::{Failure, json};
use crate::models::{Job, Model, late};
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use cognate::{Languages, Line, Translation};
use cognate_pipeline::Answer;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio_stream::wrappers::UnboundedReceiverStream;

const EXTENSIONS: [&str; 3] = ["binary_tensor_data", "generate", "model_repository"];
/// The only version of a model.
const VERSION: &str = "1";
const TEXT_INPUT: &str = "text_input";
const TEXT_OUTPUT: &str = "text_output";
const SCORE: &str = "score";

type Answered = Result<Response, Failure>;

/// Parameters that the protocol reserves for itself.
const RESERVED: [&str; 6] = ["binary_data_output", "sequence_id", "sequence_start", "sequence_end", "priority", "timeout"];

impl Server {
    fn named(&self, name: &str) -> Result<Arc<Model>, Failure> {
        let found = self.models.iter().find(|model| model.name == name).cloned();
        found.ok_or_else(|| Failure::new(StatusCode::NOT_FOUND, format_args!("there is no model {name}")))
    }

    fn of_version(&self, (name, version): &(String, String)) -> Result<Arc<Model>, Failure> {
        match version.as_str() {
            VERSION => self.named(name),
            other => Err(Failure::new(StatusCode::NOT_FOUND, format_args!("{name}: expected version {VERSION}, found {other}"))),
        }
    }
}

/// `GET /v2`
pub(crate) async fn server() -> Response {
    json(StatusCode::OK, &json!({ "name": "cognate", "version": env!("CARGO_PKG_VERSION"), "extensions": EXTENSIONS }))
}

/// `POST /v2/repository/index`
pub(crate) async fn index(State(server): State<Arc<Server>>) -> Response {
    let of_model = |model: &Arc<Model>| json!({ "name": model.name, "version": VERSION, "state": "READY", "reason": "" });
    json(StatusCode::OK, &server.models.iter().map(of_model).collect())
}

/// The engine.
fn platform(model: &Model) -> String {
    let name = model.translator.engine().split(',').next().unwrap_or_default();
    format!("cognate_{}", name.replace(' ', "_").to_lowercase())
}

fn metadata(model: &Model) -> Response {
    let tensor = |name: &str, datatype: &str| json!({ "name": name, "datatype": datatype, "shape": [-1] });
    let metadata = json!({
        "name": model.name,
        "versions": [VERSION],
        "platform": platform(model),
        "inputs": [tensor(TEXT_INPUT, "BYTES")],
        "outputs": [tensor(TEXT_OUTPUT, "BYTES"), tensor(SCORE, "FP32")],
    });
    json(StatusCode::OK, &metadata)
}

/// `GET /v2/models/{model}`
pub(crate) async fn model(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Answered {
    server.named(&name).map(|model| metadata(&model))
}

/// `GET /v2/models/{model}/versions/{version}`
pub(crate) async fn model_version(State(server): State<Arc<Server>>, Path(path): Path<(String, String)>) -> Answered {
    server.of_version(&path).map(|model| metadata(&model))
}

/// `GET /v2/models/{model}/ready`
pub(crate) async fn ready(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    server.named(&name).map(|_| StatusCode::OK)
}

/// `GET /v2/models/{model}/versions/{version}/ready`
pub(crate) async fn ready_version(State(server): State<Arc<Server>>, Path(path): Path<(String, String)>) -> Result<StatusCode, Failure> {
    server.of_version(&path).map(|_| StatusCode::OK)
}

/// `POST /v2/models/{model}/infer`
pub(crate) async fn infer(State(server): State<Arc<Server>>, Path(name): Path<String>, request: Request) -> Answered {
    infer_by(&server, &server.named(&name)?, request).await
}

/// `POST /v2/models/{model}/versions/{version}/infer`
pub(crate) async fn infer_version(State(server): State<Arc<Server>>, Path(path): Path<(String, String)>, request: Request) -> Answered {
    infer_by(&server, &server.of_version(&path)?, request).await
}

async fn infer_by(server: &Server, model: &Arc<Model>, request: Request) -> Answered {
    server.authorise(request.headers(), None)?;
    let headers = request.headers().clone();
    let body = server.body(request).await?;
    let asked = InferRequest::read(&headers, &body)?;
    let (shape, count, found) = inferred(model, asked.texts()?, asked.parameters.clone()).await?;
    answer(model, &asked, &shape, hypotheses(&found, count))
}

/// The translations of texts in a shape: the shape of the answer, the number of translations of each text, and these.
async fn inferred(
    model: &Arc<Model>,
    (texts, mut shape): (Vec<String>, Vec<u64>),
    parameters: Map<String, Value>,
) -> Result<(Vec<u64>, usize, Vec<Translation>), Failure> {
    let expected = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
    if expected != Some(texts.len() as u64) {
        return Err(Failure::bad(format_args!("{TEXT_INPUT}: has the shape {shape:?}, but {} strings", texts.len())));
    }
    let (languages, options) = options(parameters)?;
    let n_best = options.get("n_best").or(options.get("num_return_sequences")).and_then(Value::as_u64);
    let lines = texts.into_iter().map(|text| Line { text, prefix: None }).collect();
    let found = model.translate(Job { lines, languages, options }).await?;
    shape.extend(n_best);
    Ok((shape, n_best.map_or(1, |count| usize::try_from(count).unwrap_or(usize::MAX)), found))
}

/// The texts and scores of as many translations of each sentence; if fewer were found, the rest are empty with the score -inf.
fn hypotheses(found: &[Translation], count: usize) -> Vec<(&str, f32)> {
    found.iter().flat_map(|translation| (0..count).map(|rank| hypothesis(translation, rank))).collect()
}

fn hypothesis(translation: &Translation, rank: usize) -> (&str, f32) {
    match translation.hypotheses.get(rank) {
        Some(best) => (best.text.as_str(), best.hypothesis.score),
        // An empty sentence has an empty translation.
        None if rank == 0 => ("", 0.0),
        None => ("", f32::NEG_INFINITY),
    }
}

/// The languages, and the options of decoding, among the parameters of a request.
fn options(mut parameters: Map<String, Value>) -> Result<(Languages, Map<String, Value>), Failure> {
    let mut language = |name: &str| match parameters.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(code)) => Ok(Some(code)),
        Some(other) => Err(Failure::bad(format_args!("{name}: expected a string, found {other}"))),
    };
    let languages = Languages { source_language: language("source_language")?, target_language: language("target_language")? };
    parameters.retain(|name, _| !RESERVED.contains(&name.as_str()));
    Ok((languages, parameters))
}

/// The job of Triton's `generate`: `text_input`, and parameters beside it or in `parameters`.
async fn generation(server: &Server, request: Request) -> Result<Job, Failure> {
    server.authorise(request.headers(), None)?;
    let body = server.body(request).await?;
    let mut fields: Map<String, Value> = serde_json::from_slice(&body).map_err(|error| Failure::bad(format_args!("the body: {error}")))?;
    let Some(Value::String(text)) = fields.remove(TEXT_INPUT) else {
        return Err(Failure::bad(format_args!("{TEXT_INPUT}: expected a string")));
    };
    match fields.remove("parameters") {
        None | Some(Value::Null) => {}
        Some(Value::Object(parameters)) => fields.extend(parameters),
        Some(other) => return Err(Failure::bad(format_args!("parameters: expected an object, found {other}"))),
    }
    fields.retain(|name, _| !["id", "stream"].contains(&name.as_str()));
    let (languages, options) = options(fields)?;
    Ok(Job { lines: vec![Line { text, prefix: None }], languages, options })
}

fn generated(model: &str, text: &str) -> Value {
    json!({ "model_name": model, "model_version": VERSION, TEXT_OUTPUT: text })
}

/// `POST /v2/models/{model}/generate`
pub(crate) async fn generate(State(server): State<Arc<Server>>, Path(name): Path<String>, request: Request) -> Answered {
    let model = server.named(&name)?;
    let found = model.translate(generation(&server, request).await?).await?;
    Ok(json(StatusCode::OK, &generated(&name, found.first().map_or("", |translation| &translation.text))))
}

/// `POST /v2/models/{model}/generate_stream`: server-sent events, each with a part of the text.
pub(crate) async fn generate_stream(State(server): State<Arc<Server>>, Path(name): Path<String>, request: Request) -> Answered {
    let model = server.named(&name)?;
    let job = generation(&server, request).await?;
    let mut running = model.start(job, true).await?;
    let (sender, events) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let write = |value: &Value| sender.send(Ok::<_, std::convert::Infallible>(format!("data: {value}\n\n")));
        let parts = async {
            loop {
                match running.next().await {
                    Ok((_, Answer::Part(part))) => {
                        if write(&generated(&name, &part)).is_err() {
                            return;
                        }
                    }
                    Ok((_, Answer::Translation(_))) => return,
                    Err(failure) => return drop(write(&json!({ "error": failure.message }))),
                }
            }
        };
        // A reader that leaves cancels the sentence, also between parts.
        tokio::select! {
            () = parts => {}
            () = sender.closed() => {}
            () = tokio::time::sleep(model.timeout()) => drop(write(&json!({ "error": late(model.timeout()).message }))),
        }
    });
    let body = Body::from_stream(UnboundedReceiverStream::new(events));
    let head = Response::builder().header(header::CONTENT_TYPE, "text/event-stream").header(header::CACHE_CONTROL, "no-cache");
    head.body(body).map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error))
}
