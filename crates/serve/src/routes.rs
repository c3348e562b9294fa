//! The routes of all protocols.

use crate::arguments::Arguments;
use crate::error::{Error, ErrorKind, Failure, Result, json};
use crate::oip::JSON_LENGTH;
use crate::openai::OpenAiFailure;
use crate::requests::{API_KEY, REQUEST_ID};
use crate::{Server, libretranslate, oip, openai, requests};
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use std::sync::Arc;
use tower_http::cors::{AllowOrigin, Any, CorsLayer};

const OPENAPI: &str = include_str!("openapi.json");

pub(crate) fn routes(
    server: &Arc<Server>,
    arguments: &Arguments,
    cors: Option<CorsLayer>,
) -> Router {
    let routes = Router::new()
        .route("/health", get(|| async { json(StatusCode::OK, &json!({ "status": "ok" })) }))
        .route("/metrics", get(metrics))
        .route(
            "/openapi.json",
            get(|| async { ([(header::CONTENT_TYPE, "application/json")], OPENAPI) }),
        )
        .route("/translate", post(libretranslate::translate))
        .route("/languages", get(libretranslate::languages))
        .route("/detect", post(libretranslate::detect))
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{model}", get(openai::model))
        .route(
            "/v1/audio/transcriptions",
            post(openai::transcriptions).layer(DefaultBodyLimit::max(arguments.max_audio)),
        )
        .route(
            "/v1/audio/translations",
            post(openai::translations).layer(DefaultBodyLimit::max(arguments.max_audio)),
        )
        .route("/v2", get(oip::server))
        .route("/v2/health/live", get(|| async { StatusCode::OK }))
        .route("/v2/health/ready", get(|| async { StatusCode::OK }))
        .route("/v2/repository/index", post(oip::index))
        .route("/v2/models/{model}", get(oip::model))
        .route("/v2/models/{model}/ready", get(oip::ready))
        .route("/v2/models/{model}/infer", post(oip::infer))
        .route("/v2/models/{model}/generate", post(oip::generate))
        .route("/v2/models/{model}/generate_stream", post(oip::generate_stream))
        .route("/v2/models/{model}/versions/{version}", get(oip::model_version))
        .route("/v2/models/{model}/versions/{version}/ready", get(oip::ready_version))
        .route("/v2/models/{model}/versions/{version}/infer", post(oip::infer_version))
        .route("/v2/models/{model}/versions/{version}/generate", post(oip::generate_version))
        .route(
            "/v2/models/{model}/versions/{version}/generate_stream",
            post(oip::generate_stream_version),
        )
        .route("/inference.GRPCInferenceService/{method}", post(oip::call))
        .fallback(async |uri: Uri| {
            let message = "there is no such path; /openapi.json lists them";
            refused(&uri, Failure::new(StatusCode::NOT_FOUND, message))
        })
        .method_not_allowed_fallback(async |uri: Uri| {
            let message = "the path exists for another method";
            refused(&uri, Failure::new(StatusCode::METHOD_NOT_ALLOWED, message))
        })
        .with_state(server.clone())
        // Around the fallbacks, too.
        .layer(middleware::from_fn_with_state(server.clone(), requests::observe));
    match cors {
        Some(cors) => routes.layer(cors),
        None => routes,
    }
}

/// A failure in the form of the path's API.
fn refused(uri: &Uri, failure: Failure) -> Response {
    if uri.path().starts_with("/v1/") {
        OpenAiFailure::of_path(failure).into_response()
    } else {
        failure.into_response()
    }
}

/// The origins of web pages that may call the server; none by default.
pub(crate) fn cors(origins: &[String]) -> Result<Option<CorsLayer>> {
    if origins.is_empty() {
        return Ok(None);
    }
    // A list, since browsers do not take * for Authorization.
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            API_KEY,
            REQUEST_ID,
            JSON_LENGTH,
        ])
        .expose_headers([header::RETRY_AFTER, REQUEST_ID, JSON_LENGTH]);
    if origins.iter().any(|origin| origin == "*") {
        return Ok(Some(layer.allow_origin(Any)));
    }
    let parse = |origin: &String| {
        let uri = origin.parse::<Uri>().ok();
        // A path makes it no origin.
        let is_origin = uri.is_some_and(|uri| {
            uri.scheme().is_some() && uri.authority().is_some() && !origin.ends_with('/')
        });
        origin.parse::<HeaderValue>().ok().filter(|_| is_origin).ok_or_else(|| {
            Error::new(
                ErrorKind::Options,
                format_args!(
                    "--cors: expected an origin such as https://example.org, or *, found {origin:?}"
                ),
            )
        })
    };
    let origins = origins.iter().map(parse).collect::<Result<Vec<_>>>()?;
    Ok(Some(layer.allow_origin(AllowOrigin::list(origins))))
}

async fn metrics(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    server.authorise(&headers, None)?;
    let sentences = server.models.iter().map(|model| (model.name.as_str(), model.n_waiting()));
    let audio = server.speech.iter().map(|model| (model.name.as_str(), model.n_waiting()));
    let tensors = server.graphs.iter().map(|graph| (graph.name.as_str(), graph.n_waiting()));
    let text = server.metrics.text(sentences, audio.chain(tensors));
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
