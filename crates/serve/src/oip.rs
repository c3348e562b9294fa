//! The Open Inference Protocol, version 2 (KServe, Triton), over HTTP, with Triton's binary tensors
//! and `generate`, and over gRPC.
//!
//! A model has the input `text_input`, strings of any shape, and the output `text_output` of that
//! shape, with a last axis of the translations if `n_best` requests several, and `score` likewise.
//! Options of decoding and languages are the request's parameters. A graph has its own inputs and
//! outputs.

mod grpc;
mod messages;
mod tensors;

pub(crate) use self::grpc::call;
pub(crate) use self::messages::JSON_LENGTH;
use self::messages::{InferRequest, answer};
pub(crate) use self::tensors::{Datatype, Elements, Tensor, TensorType};
use crate::Server;
use crate::error::{Failure, json};
use crate::graphs::Graph;
use crate::models::{Job, Model, late};
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use cognate::{Languages, Line, Translation};
use cognate_pipeline::Answer;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;

const EXTENSIONS: [&str; 3] = ["binary_tensor_data", "generate", "model_repository"];
/// The only version of a model.
const VERSION: &str = "1";
const TEXT_INPUT: &str = "text_input";
const TEXT_OUTPUT: &str = "text_output";
const SCORE: &str = "score";

type Answered = Result<Response, Failure>;

/// Parameters that are reserved by the protocol.
const RESERVED: [&str; 6] =
    ["binary_data_output", "sequence_id", "sequence_start", "sequence_end", "priority", "timeout"];

/// A model that is served by the protocol.
pub(crate) enum Served {
    Text(Arc<Model>),
    Graph(Arc<Graph>),
}

impl Served {
    fn name(&self) -> &str {
        match self {
            Self::Text(model) => &model.name,
            Self::Graph(graph) => &graph.name,
        }
    }

    /// The engine.
    fn platform(&self) -> String {
        let engine = match self {
            Self::Text(model) => model.translator.engine(),
            Self::Graph(graph) => &graph.engine,
        };
        format!(
            "cognate_{}",
            engine.split(',').next().unwrap_or_default().replace(' ', "_").to_lowercase()
        )
    }

    fn inputs(&self) -> Vec<TensorType> {
        match self {
            Self::Text(_) => vec![TensorType::of_text(TEXT_INPUT, Datatype::Bytes)],
            Self::Graph(graph) => graph.inputs.clone(),
        }
    }

    fn outputs(&self) -> Vec<TensorType> {
        match self {
            Self::Text(_) => vec![
                TensorType::of_text(TEXT_OUTPUT, Datatype::Bytes),
                TensorType::of_text(SCORE, Datatype::Fp32),
            ],
            Self::Graph(graph) => graph.outputs.clone(),
        }
    }

    fn text(self) -> Result<Arc<Model>, Failure> {
        match self {
            Self::Text(model) => Ok(model),
            Self::Graph(graph) => Err(Failure::bad(format_args!(
                "{}: expected a model of texts, found a graph; use infer",
                graph.name
            ))),
        }
    }

    /// The requested outputs for these inputs, in that order; all if no names are given.
    async fn infer(
        &self,
        inputs: Vec<Tensor>,
        mut parameters: Map<String, Value>,
        wanted: &[String],
    ) -> Result<Vec<Tensor>, Failure> {
        let names: Vec<_> = self.outputs().into_iter().map(|output| output.name).collect();
        if let Some(unknown) = wanted.iter().find(|name| !names.contains(name)) {
            return Err(Failure::bad(format_args!(
                "outputs: expected {}, found {unknown}",
                names.join(", ")
            )));
        }
        let found = match self {
            Self::Text(model) => {
                if wanted.is_empty() || wanted.iter().any(|name| name == SCORE) {
                    parameters.insert("scores".into(), true.into());
                }
                translated(model, inputs, parameters).await?
            }
            Self::Graph(graph) => {
                let is_known = |name: &&String| RESERVED.contains(&name.as_str());
                if let Some(name) = parameters.keys().find(|name| !is_known(name)) {
                    let message =
                        format_args!("parameters: expected none for a graph, found {name}");
                    return Err(Failure::bad(message));
                }
                graph.run(inputs).await?
            }
        };
        let wanted = if wanted.is_empty() { &names } else { wanted };
        Ok(wanted
            .iter()
            .filter_map(|name| found.iter().find(|output| output.name == *name))
            .cloned()
            .collect())
    }
}

impl Server {
    fn served(&self, name: &str) -> Result<Served, Failure> {
        let text = self
            .models
            .iter()
            .find(|model| model.name == name)
            .map(|model| Served::Text(model.clone()));
        let graph = || {
            self.graphs
                .iter()
                .find(|graph| graph.name == name)
                .map(|graph| Served::Graph(graph.clone()))
        };
        text.or_else(graph).ok_or_else(|| {
            Failure::new(StatusCode::NOT_FOUND, format_args!("there is no model {name}"))
        })
    }

    fn of_version(&self, (name, version): &(String, String)) -> Result<Served, Failure> {
        match version.as_str() {
            VERSION => self.served(name),
            other => Err(Failure::new(
                StatusCode::NOT_FOUND,
                format_args!("{name}: expected version {VERSION}, found {other}"),
            )),
        }
    }

    /// The name of a model, of which a request with these headers asks for a version.
    fn name_of_version(
        &self,
        headers: &HeaderMap,
        path: (String, String),
    ) -> Result<String, Failure> {
        self.authorise(headers, None)?;
        self.of_version(&path)?;
        Ok(path.0)
    }

    /// The names of the models that the protocol serves.
    fn served_names(&self) -> impl Iterator<Item = &str> {
        self.models
            .iter()
            .map(|model| model.name.as_str())
            .chain(self.graphs.iter().map(|graph| graph.name.as_str()))
    }
}

/// `GET /v2`
pub(crate) async fn server(State(server): State<Arc<Server>>, headers: HeaderMap) -> Answered {
    server.authorise(&headers, None)?;
    Ok(json(
        StatusCode::OK,
        &json!({ "name": "cognate", "version": env!("CARGO_PKG_VERSION"), "extensions": EXTENSIONS }),
    ))
}

/// `POST /v2/repository/index`
pub(crate) async fn index(State(server): State<Arc<Server>>, headers: HeaderMap) -> Answered {
    server.authorise(&headers, None)?;
    let of_model =
        |name: &str| json!({ "name": name, "version": VERSION, "state": "READY", "reason": "" });
    Ok(json(StatusCode::OK, &server.served_names().map(of_model).collect()))
}

fn metadata(served: &Served) -> Response {
    let described = |tensors: Vec<TensorType>| -> Value {
        let of_tensor = |TensorType { name, datatype, shape }| json!({ "name": name, "datatype": Datatype::name(datatype), "shape": shape });
        tensors.into_iter().map(of_tensor).collect()
    };
    let metadata = json!({
        "name": served.name(),
        "versions": [VERSION],
        "platform": served.platform(),
        "inputs": described(served.inputs()),
        "outputs": described(served.outputs()),
    });
    json(StatusCode::OK, &metadata)
}

/// `GET /v2/models/{model}`
pub(crate) async fn model(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Answered {
    server.authorise(&headers, None)?;
    server.served(&name).map(|served| metadata(&served))
}

/// `GET /v2/models/{model}/versions/{version}`
pub(crate) async fn model_version(
    State(server): State<Arc<Server>>,
    Path(path): Path<(String, String)>,
    headers: HeaderMap,
) -> Answered {
    server.authorise(&headers, None)?;
    server.of_version(&path).map(|served| metadata(&served))
}

/// `GET /v2/models/{model}/ready`
pub(crate) async fn ready(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    server.served(&name).map(|_| StatusCode::OK)
}

/// `GET /v2/models/{model}/versions/{version}/ready`
pub(crate) async fn ready_version(
    State(server): State<Arc<Server>>,
    Path(path): Path<(String, String)>,
) -> Result<StatusCode, Failure> {
    server.of_version(&path).map(|_| StatusCode::OK)
}

/// `POST /v2/models/{model}/infer`
pub(crate) async fn infer(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    request: Request,
) -> Answered {
    infer_by(&server, server.served(&name), request).await
}

/// `POST /v2/models/{model}/versions/{version}/infer`
pub(crate) async fn infer_version(
    State(server): State<Arc<Server>>,
    Path(path): Path<(String, String)>,
    request: Request,
) -> Answered {
    infer_by(&server, server.of_version(&path), request).await
}

async fn infer_by(server: &Server, served: Result<Served, Failure>, request: Request) -> Answered {
    server.authorise(request.headers(), None)?;
    let served = served?;
    let headers = request.headers().clone();
    let body = server.body(request).await?;
    let (asked, inputs) = InferRequest::read(&headers, &body)?;
    let found = served.infer(inputs, asked.parameters.clone(), &asked.wanted()).await?;
    answer(served.name(), &asked, &found)
}

/// Translations and scores of the texts of the only input, in its shape.
async fn translated(
    model: &Arc<Model>,
    inputs: Vec<Tensor>,
    parameters: Map<String, Value>,
) -> Result<Vec<Tensor>, Failure> {
    let Ok([Tensor { name, mut shape, elements }]) = <[Tensor; 1]>::try_from(inputs) else {
        return Err(Failure::bad(format_args!("inputs: expected one, {TEXT_INPUT}")));
    };
    let texts = match elements {
        Elements::Bytes(texts) if name == TEXT_INPUT => texts,
        other => {
            let message = format_args!(
                "inputs: expected {TEXT_INPUT} of BYTES, found {name} of {}",
                other.datatype()
            )
            .to_string();
            return Err(Failure::bad(message));
        }
    };
    let (languages, options) = options(parameters)?;
    let n_best = ["n_best", "num_return_sequences"]
        .iter()
        .find_map(|name| options.get(*name).and_then(Value::as_u64));
    let n_best = n_best.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    let lines = texts.into_iter().map(|text| Line { text, prefix: None }).collect();
    let found = model.translate(Job { lines, languages, options }).await?;
    shape.extend(n_best.filter(|count| *count > 1));
    let (texts, scores) = hypotheses(&found, n_best.unwrap_or(1))
        .into_iter()
        .map(|(text, score)| (text.to_owned(), score))
        .unzip();
    Ok(vec![
        Tensor { name: TEXT_OUTPUT.into(), shape: shape.clone(), elements: Elements::Bytes(texts) },
        Tensor { name: SCORE.into(), shape, elements: Elements::Fp32(scores) },
    ])
}

/// The texts and scores of `count` translations of each sentence; if fewer were found, the rest are
/// empty with the score -inf.
fn hypotheses(found: &[Translation], count: usize) -> Vec<(&str, f32)> {
    found
        .iter()
        .flat_map(|translation| (0..count).map(|rank| hypothesis(translation, rank)))
        .collect()
}

fn hypothesis(translation: &Translation, rank: usize) -> (&str, f32) {
    match translation.hypotheses.get(rank) {
        Some(best) => (best.text.as_str(), best.hypothesis.score),
        // An empty sentence has an empty translation.
        None if rank == 0 => ("", 0.0),
        None => ("", f32::NEG_INFINITY),
    }
}

/// The languages and the options of decoding in the parameters of a request.
fn options(mut parameters: Map<String, Value>) -> Result<(Languages, Map<String, Value>), Failure> {
    let mut language = |name: &str| match parameters.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(code)) => Ok(Some(code)),
        Some(other) => Err(Failure::bad(format_args!("{name}: expected a string, found {other}"))),
    };
    let languages = Languages {
        source_language: language("source_language")?,
        target_language: language("target_language")?,
    };
    parameters.retain(|name, _| !RESERVED.contains(&name.as_str()));
    Ok((languages, parameters))
}

/// The model and the job of Triton's `generate`: `text_input`, and parameters on the same level or
/// in `parameters`.
async fn generation(
    server: &Server,
    model: &str,
    request: Request,
) -> Result<(Arc<Model>, Job), Failure> {
    server.authorise(request.headers(), None)?;
    let model = server.served(model)?.text()?;
    let body = server.body(request).await?;
    let mut fields: Map<String, Value> = serde_json::from_slice(&body)
        .map_err(|error| Failure::bad(format_args!("the body: {error}")))?;
    let Some(Value::String(text)) = fields.remove(TEXT_INPUT) else {
        return Err(Failure::bad(format_args!("{TEXT_INPUT}: expected a string")));
    };
    match fields.remove("parameters") {
        None | Some(Value::Null) => {}
        Some(Value::Object(parameters)) => fields.extend(parameters),
        Some(other) => {
            return Err(Failure::bad(format_args!(
                "parameters: expected an object, found {other}"
            )));
        }
    }
    fields.retain(|name, _| !["id", "stream"].contains(&name.as_str()));
    let (languages, options) = options(fields)?;
    Ok((model, Job { lines: vec![Line { text, prefix: None }], languages, options }))
}

fn generated(model: &str, text: &str) -> Value {
    json!({ "model_name": model, "model_version": VERSION, TEXT_OUTPUT: text })
}

/// `POST /v2/models/{model}/generate`
pub(crate) async fn generate(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    request: Request,
) -> Answered {
    let (model, job) = generation(&server, &name, request).await?;
    let found = model.translate(job).await?;
    Ok(json(
        StatusCode::OK,
        &generated(&name, found.first().map_or("", |translation| &translation.text)),
    ))
}

/// `POST /v2/models/{model}/versions/{version}/generate`
pub(crate) async fn generate_version(
    State(server): State<Arc<Server>>,
    Path(path): Path<(String, String)>,
    request: Request,
) -> Answered {
    let name = server.name_of_version(request.headers(), path)?;
    generate(State(server), Path(name), request).await
}

/// `POST /v2/models/{model}/versions/{version}/generate_stream`
pub(crate) async fn generate_stream_version(
    State(server): State<Arc<Server>>,
    Path(path): Path<(String, String)>,
    request: Request,
) -> Answered {
    let name = server.name_of_version(request.headers(), path)?;
    generate_stream(State(server), Path(name), request).await
}

/// `POST /v2/models/{model}/generate_stream`: server-sent events, each with a part of the text.
pub(crate) async fn generate_stream(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    request: Request,
) -> Answered {
    let (model, job) = generation(&server, &name, request).await?;
    let began = Instant::now();
    let mut running = model.start(job, true).await?;
    let (sender, events) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let write = |value: &Value| {
            sender.send(Ok::<_, std::convert::Infallible>(format!("data: {value}\n\n")))
        };
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
        // A client that disconnects cancels the sentence, also between parts.
        tokio::select! {
            () = parts => {}
            () = sender.closed() => {}
            () = tokio::time::sleep(model.timeout()) => drop(write(&json!({ "error": late(model.timeout()).message }))),
        }
        server.metrics.latency(&name, "request", began.elapsed());
    });
    let body = Body::from_stream(UnboundedReceiverStream::new(events));
    let head = Response::builder()
        .header(header::CONTENT_TYPE, "text/event-stream")
        .header(header::CACHE_CONTROL, "no-cache");
    head.body(body).map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error))
}
