//! Errors of configurations and checkpoints.

use std::fmt;
use std::path::Path;

/// An error that names file and field.
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
    /// A file is missing or cannot be read.
    File,
    /// `config.json` is malformed, inconsistent, or contains unsupported settings.
    Config,
    /// The weights are malformed or do not fit the configuration.
    Weights,
    /// A graph of the model is invalid: a bug of this crate.
    Graph,
}

impl Error {
    pub(crate) fn new(
        kind: ErrorKind,
        place: impl fmt::Display,
        message: impl fmt::Display,
    ) -> Self {
        Self { kind, place: place.to_string(), message: message.to_string() }
    }

    /// The error of an encoder-only model where a decoder is required.
    pub(crate) fn encoder_alone() -> Self {
        Self::new(
            ErrorKind::Config,
            "config.json",
            "expected a model with a decoder, found an encoder-only model",
        )
    }

    /// The error of a decoder-only model where an encoder is required.
    pub(crate) fn decoder_alone() -> Self {
        Self::new(
            ErrorKind::Config,
            "config.json",
            "expected a model with an encoder, found a decoder-only model",
        )
    }

    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::new(ErrorKind::File, path.display(), error)
    }

    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same error with `folder` in front of its path.
    pub(crate) fn within(mut self, folder: &Path) -> Self {
        self.place = folder.join(&self.place).display().to_string();
        self
    }
}

impl From<cognate_graph::Error> for Error {
    fn from(error: cognate_graph::Error) -> Self {
        Self::new(ErrorKind::Graph, "graph", error)
    }
}
