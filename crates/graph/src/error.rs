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

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Shapes or element types that an operation does not take.
    Type,
    /// A graph that breaks the grammar: order, names, unbound symbols.
    Grammar,
    /// An input whose sizes contradict the graph's.
    Input,
    /// Weights that are missing or unlike the graph's parameters.
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

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
