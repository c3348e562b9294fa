//! LibreTranslate's API: `/translate`, `/languages`, `/detect`; bodies of JSON or of a form.

use crate::Server;
use crate::detection;
use crate::error::{Failure, json};
use crate::models::{Job, Model, tokenizing};
use crate::passages::Passage;
use axum::body::{Body, Bytes};
use axum::extract::multipart::Multipart;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use cognate::Languages;
use percent_encoding::percent_decode;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A field of a body.
fn text<'f>(fields: &'f Map<String, Value>, name: &str) -> Result<Option<&'f str>, Failure> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Failure::bad(format_args!("{name}: expected a string"))),
    }
}

/// The fields of a body of JSON, or of a form.
async fn fields(
    server: &Server,
    request: Request,
) -> Result<(HeaderMap, Map<String, Value>), Failure> {
    let headers = request.headers().clone();
    let body = server.body(request).await?;
    let kind =
        headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_kind =
        |name: &str| kind.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    let fields = if is_kind("application/x-www-form-urlencoded") {
        form(&body)?
    } else if is_kind("multipart/form-data") {
        parts(kind, body).await?
    } else {
        serde_json::from_slice(&body)
            .map_err(|error| Failure::bad(format_args!("the body: {error}")))?
    };
    server.authorise(&headers, text(&fields, "api_key")?)?;
    Ok((headers, fields))
}

/// The fields of a form, `name=value&...`, in UTF-8.
fn form(body: &[u8]) -> Result<Map<String, Value>, Failure> {
    let decoded = |text: &[u8]| {
        let text: Vec<_> =
            text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        let decoded = percent_decode(&text).decode_utf8().map(String::from);
        decoded.map_err(|error| Failure::bad(format_args!("the body: {error}")))
    };
    let field = |field: &[u8]| {
        let end = field.iter().position(|byte| *byte == b'=').unwrap_or(field.len());
        let value = field.get(end + 1..).unwrap_or_default();
        Ok((decoded(&field[..end])?, Value::String(decoded(value)?)))
    };
    body.split(|byte| *byte == b'&').filter(|part| !part.is_empty()).map(field).collect()
}

/// The fields of a form of several parts.
async fn parts(kind: &str, body: Bytes) -> Result<Map<String, Value>, Failure> {
    let wrong = |message: String| Failure::bad(format_args!("the body: {message}"));
    let request = Request::builder().header(header::CONTENT_TYPE, kind).body(Body::from(body));
    let request = request.map_err(|error| wrong(error.to_string()))?;
    let mut form =
        Multipart::from_request(request, &()).await.map_err(|error| wrong(error.body_text()))?;
    let mut fields = Map::new();
    while let Some(field) = form.next_field().await.map_err(|error| wrong(error.body_text()))? {
        let name = field.name().unwrap_or_default().to_owned();
        let text = field.bytes().await.map_err(|error| wrong(error.body_text()))?;
        let text = String::from_utf8(text.into()).map_err(|error| wrong(error.to_string()))?;
        fields.insert(name, text.into());
    }
    Ok(fields)
}

/// The texts of `q`, and whether it is a list.
fn texts(fields: &Map<String, Value>) -> Result<(Vec<String>, bool), Failure> {
    match fields.get("q") {
        Some(Value::String(text)) => Ok((vec![text.clone()], false)),
        Some(Value::Array(texts)) => {
            let text = |text: &Value| {
                text.as_str().map(str::to_owned).ok_or_else(|| Failure::bad("q: expected strings"))
            };
            Ok((texts.iter().map(text).collect::<Result<_, _>>()?, true))
        }
        None | Some(Value::Null) => Err(Failure::bad("Invalid request: missing q parameter")),
        Some(_) => Err(Failure::bad("q: expected a string or a list of strings")),
    }
}

impl Server {
    /// All languages from or into which a model translates.
    fn languages(&self) -> Vec<String> {
        let of_model = |model: &Arc<Model>| {
            let sources = model.sources();
            let targets = sources.iter().flat_map(|source| model.targets(source));
            targets.collect::<Vec<_>>().into_iter().chain(sources)
        };
        let all: BTreeSet<_> = self.models.iter().flat_map(of_model).collect();
        all.into_iter().collect()
    }

    /// The first model that translates between these languages.
    fn translating(&self, source: &str, target: &str) -> Result<(Arc<Model>, Languages), Failure> {
        let found = self
            .models
            .iter()
            .find_map(|model| Some((model.clone(), model.languages(source, target)?)));
        found.ok_or_else(|| {
            let pairs = self
                .models
                .iter()
                .flat_map(|model| model.sources().into_iter().map(move |source| (model, source)));
            let shown = pairs
                .take(8)
                .map(|(model, source)| format!("{source} to {}", model.targets(&source).join(", ")))
                .collect::<Vec<_>>();
            let expected = match shown.is_empty() {
                true => "a model of text, whose languages --languages names".to_owned(),
                false => shown.join("; "),
            };
            Failure::bad(format_args!("{source} to {target} is not supported; expected {expected}"))
        })
    }

    fn detect(&self, text: &str) -> Result<(String, f64), Failure> {
        let languages = self.languages();
        let found = detection::detect(text, &languages)
            .map(|(code, confidence)| (code.to_owned(), confidence));
        found.ok_or_else(|| {
            Failure::new(StatusCode::NOT_IMPLEMENTED, "the models' languages cannot be detected")
        })
    }
}

/// `POST /translate`
pub(crate) async fn translate(
    State(server): State<Arc<Server>>,
    request: Request,
) -> Result<Response, Failure> {
    let (_, fields) = fields(&server, request).await?;
    let (texts, is_list) = texts(&fields)?;
    let needed = |name: &str| {
        text(&fields, name)?
            .ok_or_else(|| Failure::bad(format_args!("Invalid request: missing {name} parameter")))
    };
    let (source, target) = (needed("source")?, needed("target")?);
    if let Some(format) = text(&fields, "format")?.filter(|format| *format != "text") {
        return Err(Failure::bad(format_args!("format: expected text, found {format}")));
    }
    let n_alternatives = match fields.get("alternatives") {
        None | Some(Value::Null) => 0,
        Some(Value::String(text)) => {
            text.parse().map_err(|_| Failure::bad("alternatives: expected a number"))?
        }
        Some(number) => {
            number.as_u64().ok_or_else(|| Failure::bad("alternatives: expected a number"))?
        }
    };
    let detected = if source == "auto" { Some(server.detect(&texts.join("\n"))?) } else { None };
    let source = detected.as_ref().map_or(source, |(code, _)| code);
    let n_texts = texts.len();
    // As LibreTranslate, which translates each language into itself.
    let by_rank = if source == target && server.languages().iter().any(|code| code == target) {
        vec![texts]
    } else {
        translations(&server, texts, [source, target], n_alternatives).await?
    };
    let whole = |mut texts: Vec<Value>| {
        if is_list { Value::Array(texts) } else { texts.pop().unwrap_or_default() }
    };
    let mut by_rank =
        by_rank.into_iter().map(|texts| texts.into_iter().map(Value::String).collect::<Vec<_>>());
    let best = by_rank.next().unwrap_or_default();
    let mut answer = Map::from_iter([("translatedText".to_owned(), whole(best))]);
    if n_alternatives > 0 {
        let others: Vec<_> = by_rank.collect();
        let of_text =
            |index: usize| Value::Array(others.iter().map(|texts| texts[index].clone()).collect());
        answer.insert("alternatives".into(), whole((0..n_texts).map(of_text).collect()));
    }
    if let Some((code, confidence)) = detected {
        let language = json!({ "language": code, "confidence": confidence });
        answer.insert(
            "detectedLanguage".into(),
            whole((0..n_texts).map(|_| language.clone()).collect()),
        );
    }
    Ok(json(StatusCode::OK, &Value::Object(answer)))
}

/// The translations of texts, those of each rank together.
async fn translations(
    server: &Server,
    texts: Vec<String>,
    [source, target]: [&str; 2],
    n_alternatives: u64,
) -> Result<Vec<Vec<String>>, Failure> {
    let (model, languages) = server.translating(source, target)?;
    let mut options = Map::new();
    if n_alternatives > 0 {
        let beams = model.translator.settings().num_beams.max(1) as u64;
        options.insert("n_best".into(), json!(n_alternatives.saturating_add(1)));
        options.insert("beams".into(), json!(beams.max(n_alternatives.saturating_add(1))));
    }
    let bytes = texts.iter().map(String::len).sum();
    let divide = move || texts.iter().map(|text| Passage::new(text)).collect::<Vec<_>>();
    let divided = tokenizing(bytes, divide).await?;
    let lines = divided.iter().flat_map(Passage::lines).collect();
    let found = model.translate(Job { lines, languages, options }).await?;
    let nth = |rank: usize| {
        let mut found = found.iter().map(|translation| {
            translation.hypotheses.get(rank).map_or("", |best| best.text.as_str())
        });
        divided.iter().map(|passage| passage.with(&mut found)).collect()
    };
    Ok((0..=n_alternatives as usize).map(nth).collect())
}

/// `GET /languages`
pub(crate) async fn languages(State(server): State<Arc<Server>>) -> Response {
    let of_code = |code: String| {
        let mut targets: BTreeSet<_> = server
            .models
            .iter()
            .filter(|model| model.sources().contains(&code))
            .flat_map(|model| model.targets(&code))
            .collect();
        targets.insert(code.clone());
        json!({ "code": code, "name": detection::name(&code), "targets": targets })
    };
    json(StatusCode::OK, &server.languages().into_iter().map(of_code).collect())
}

/// `POST /detect`
pub(crate) async fn detect(
    State(server): State<Arc<Server>>,
    request: Request,
) -> Result<Response, Failure> {
    let (_, fields) = fields(&server, request).await?;
    let (texts, _) = texts(&fields)?;
    let (code, confidence) = server.detect(&texts.join("\n"))?;
    Ok(json(StatusCode::OK, &json!([{ "language": code, "confidence": confidence }])))
}
