//! Errors of graphs and weights.

use std::fmt;

/// An error and its location: a scope path, an input or a parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Error {
    kind: ErrorKind,
    place: String,
    message: String,
}

/// The category of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An operation does not accept its shapes or element types.
    Type,
    /// The graph violates the grammar: order, names, unbound symbols.
    Grammar,
    /// The sizes of an input contradict the graph.
    Input,
    /// Weights are missing or do not match the parameters of the graph.
    Weights,
}

impl Error {
    pub(crate) fn new(
        kind: ErrorKind,
        place: impl fmt::Display,
        message: impl fmt::Display,
    ) -> Self {
        Self { kind, place: place.to_string(), message: message.to_string() }
    }

    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
