//! What can go wrong when a graph is loaded or run.

use std::fmt;

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with the place where it happened: a file, an input, an engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Error {
    kind: ErrorKind,
    place: String,
    message: String,
}

/// What an [`Error`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The engine or the device is not there.
    Unavailable,
    /// An engine's library was found, but cannot be used.
    Library,
    /// The source cannot be read or executed.
    Load,
    /// An input is missing, unknown, or of a wrong type or shape.
    Input,
    /// The engine failed while running.
    Run,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, place: impl fmt::Display, message: impl fmt::Display) -> Self {
        Self { kind, place: place.to_string(), message: message.to_string() }
    }

    /// An error of an export or of a file's check, which names the file itself.
    #[cfg(any(feature = "tract", feature = "ort"))]
    pub(crate) fn from_export(error: cognate_export::Error) -> Self {
        let text = error.to_string();
        let (place, message) = text.split_once(": ").unwrap_or(("", &text));
        Self::new(ErrorKind::Load, place, message)
    }

    /// What the error is about.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
