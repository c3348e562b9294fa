//! Errors of decoding audio and of configuring features.

use std::fmt;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that names the file.
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
    /// The file cannot be read.
    Io,
    /// The file is not audio of a supported format.
    Format,
    /// The format is supported, but its codec is not.
    Codec,
    /// The audio is damaged.
    Data,
    /// The settings of a feature extractor are not supported.
    Settings,
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
