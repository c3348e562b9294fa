//! Errors of starting the server, and failures of requests.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::fmt;

/// The server cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The category of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option is invalid.
    Options,
    /// A model cannot be loaded.
    Model,
    /// The address cannot be used.
    Network,
    /// The process was terminated twice; the second time ends running requests.
    Interrupted,
}

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string() }
    }

    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// A request that failed: `{"error": "..."}`, except in OpenAI's API.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl fmt::Display) -> Self {
        Self { status, message: message.to_string() }
    }

    /// Adds to a response the time after which to retry, or how to authenticate.
    pub(crate) fn advise(&self, response: &mut Response) {
        let (name, value) = match self.status {
            StatusCode::TOO_MANY_REQUESTS => (header::RETRY_AFTER, "1"),
            StatusCode::UNAUTHORIZED => (header::WWW_AUTHENTICATE, "Bearer"),
            _ => return,
        };
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }

    /// A body that is larger than the limit.
    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format_args!("expected at most {limit} bytes in a request");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    pub(crate) fn bad(message: impl fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

/// Errors that the caller can correct are client errors, others server errors.
impl From<cognate::Error> for Failure {
    fn from(error: cognate::Error) -> Self {
        use cognate::ErrorKind as Kind;
        let status = match error.kind() {
            Kind::Text | Kind::Mismatch | Kind::Options | Kind::Input => StatusCode::BAD_REQUEST,
            Kind::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::Busy => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = json(self.status, &serde_json::json!({ "error": self.message }));
        self.advise(&mut response);
        response
    }
}

/// A response of JSON.
pub(crate) fn json(status: StatusCode, value: &serde_json::Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
