//! What can be wrong with a configuration or a checkpoint.

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

/// What an [`Error`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file is missing or cannot be read.
    File,
    /// `config.json` is malformed, contradicts itself, or asks for what is not supported.
    Config,
    /// The weights are malformed or do not fit the configuration.
    Weights,
    /// A graph of the model is illegal: a bug of this crate, or a configuration that slipped through.
    Graph,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, place: impl fmt::Display, message: impl fmt::Display) -> Self {
        Self { kind, place: place.to_string(), message: message.to_string() }
    }

    /// A model that has no decoder, where one is needed.
    pub(crate) fn encoder_alone() -> Self {
        Self::new(ErrorKind::Config, "config.json", "describes an encoder alone; expected an encoder with a decoder")
    }

    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::new(ErrorKind::File, path.display(), error)
    }

    /// What the error is about.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same error, at a place seen from further outside.
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
