//! Errors of loading and running graphs.

use std::fmt;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with its place: a file, an input, an engine.
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
    /// The engine or the device is missing, or lacks operators of the source.
    Unavailable,
    /// An engine's library was found, but cannot be used.
    Library,
    /// The source cannot be read or executed.
    Load,
    /// An input is missing, unknown, or has the wrong type or shape.
    Input,
    /// The engine failed during a run.
    Run,
}

impl Error {
    pub(crate) fn new(
        kind: ErrorKind,
        place: impl fmt::Display,
        message: impl fmt::Display,
    ) -> Self {
        Self { kind, place: place.to_string(), message: message.to_string() }
    }

    /// Converts an error of an export or a validation, whose text begins with the file.
    #[cfg(any(feature = "tract", feature = "ort"))]
    pub(crate) fn from_export(error: cognate_export::Error) -> Self {
        let text = error.to_string();
        let (place, message) = text.split_once(": ").unwrap_or(("", &text));
        Self::new(ErrorKind::Load, place, message)
    }

    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
