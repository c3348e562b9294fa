//! Common parts of all routes: bodies within the limits, API keys, request ids, the log.

use crate::Server;
use crate::compression::decompressed;
use crate::error::Failure;
use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

impl Server {
    /// Checks the key of a request: in its headers, or in a field of the body.
    pub(crate) fn authorise(
        &self,
        headers: &HeaderMap,
        field: Option<&str>,
    ) -> Result<(), Failure> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = text(header::AUTHORIZATION)
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, key)| key.trim_start());
        let found = bearer.or_else(|| text(API_KEY)).or(field);
        match found
            .filter(|found| self.keys.iter().any(|key| is_equal(key.as_bytes(), found.as_bytes())))
        {
            Some(_) => Ok(()),
            None => Err(Failure::new(StatusCode::UNAUTHORIZED, "expected an API key")),
        }
    }

    /// The body of a request within the limits of size and time, decompressed.
    pub(crate) async fn body(&self, request: Request) -> Result<Bytes, Failure> {
        let limit = self.max_body;
        let (head, body) = request.into_parts();
        let length = head
            .headers
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|length| length > limit) {
            return Err(Failure::too_large(limit));
        }
        let read = axum::body::to_bytes(body, limit);
        match tokio::time::timeout(self.client_timeout, read).await {
            Ok(Ok(bytes)) => decompressed(bytes, head.headers.get(header::CONTENT_ENCODING), limit),
            Ok(Err(error)) if error.source().is_some_and(<dyn Error>::is::<LengthLimitError>) => {
                Err(Failure::too_large(limit))
            }
            Ok(Err(error)) => Err(Failure::bad(format_args!("the body: {error}"))),
            Err(_) => {
                Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))
            }
        }
    }
}

/// Takes the same time for every wrong key of a length.
fn is_equal(key: &[u8], found: &[u8]) -> bool {
    key.len() == found.len()
        && key.iter().zip(found).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

/// Gives each request an id, counts it and writes it to the log when its response ends, streams
/// included.
pub(crate) async fn observe(
    State(server): State<Arc<Server>>,
    mut request: Request<Body>,
    next: Next,
) -> Response {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let began = Instant::now();
    let given = request.headers().get(&REQUEST_ID).filter(|id| id.len() <= 128).cloned();
    let id = given.unwrap_or_else(|| {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let id = format!("{time:x}-{:x}", NUMBER.fetch_add(1, Ordering::Relaxed));
        HeaderValue::from_str(&id).expect("hexadecimal digits")
    });
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "other".to_owned(), |path| path.as_str().to_owned());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let mut entry = LogEntry { began, id: id.clone(), method, path, status: CLIENT_CLOSED };
    let mut response = next.run(request).await;
    entry.status = response.status().as_u16();
    server.metrics.request(&route, entry.status);
    response.headers_mut().insert(REQUEST_ID, id);
    response.map(|body| {
        Body::new(body.map_err(move |error| {
            // The body has the entry until it is dropped.
            let _ = &entry;
            error
        }))
    })
}

/// The status of requests whose clients left before there was a response, as nginx logs them.
const CLIENT_CLOSED: u16 = 499;

/// Is written to the log when it is dropped.
struct LogEntry {
    began: Instant,
    id: HeaderValue,
    method: Method,
    path: String,
    status: u16,
}

impl Drop for LogEntry {
    fn drop(&mut self) {
        let Self { began, id, method, path, status } = self;
        let milliseconds = began.elapsed().as_secs_f64() * 1e3;
        tracing::info!(id = id.to_str().unwrap_or_default(), %method, path, status, milliseconds, "request");
    }
}
