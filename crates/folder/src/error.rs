//! Errors of a model's folder.

use std::fmt;
use std::io;
use std::path::{MAIN_SEPARATOR, Path};

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that names the file or the folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The category of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file is missing, or cannot be read or written.
    File,
    /// The folder has no model, or not one of the required kind.
    NoModel,
    /// `cognate.json` is malformed, newer than this version, or does not describe the files beside
    /// it.
    Manifest,
    /// `config.json` or the weights are malformed or do not fit each other.
    Model,
    /// The checkpoint has unused tensors, which can be ignored.
    UnusedTensors,
    /// The engine cannot run the graphs of the folder.
    Engine,
}

impl Error {
    pub(crate) fn new(
        kind: ErrorKind,
        place: impl fmt::Display,
        message: impl fmt::Display,
    ) -> Self {
        Self { kind, message: format!("{place}: {message}") }
    }

    /// An error whose message begins with the name of a file in `folder`.
    pub(crate) fn within(kind: ErrorKind, folder: &Path, message: impl fmt::Display) -> Self {
        Self { kind, message: format!("{}{MAIN_SEPARATOR}{message}", folder.display()) }
    }

    /// The error of unused tensors of a checkpoint.
    pub(crate) fn unused_tensors(error: &cognate_model::Error) -> Self {
        Self {
            kind: ErrorKind::UnusedTensors,
            message: format!("{error}\npass --ignore-unused to ignore them"),
        }
    }

    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Adds the file to an error of the system.
pub(crate) trait AtPath<T> {
    fn at(self, path: &Path, action: &str) -> Result<T>;
}

impl<T> AtPath<T> for io::Result<T> {
    fn at(self, path: &Path, action: &str) -> Result<T> {
        self.map_err(|error| {
            Error::new(ErrorKind::File, path.display(), format_args!("cannot be {action}: {error}"))
        })
    }
}

impl From<cognate_model::Error> for Error {
    fn from(error: cognate_model::Error) -> Self {
        Self { kind: ErrorKind::Model, message: error.to_string() }
    }
}

impl From<cognate_graph::Error> for Error {
    fn from(error: cognate_graph::Error) -> Self {
        Self { kind: ErrorKind::Model, message: error.to_string() }
    }
}

impl From<cognate_export::Error> for Error {
    fn from(error: cognate_export::Error) -> Self {
        Self { kind: ErrorKind::File, message: error.to_string() }
    }
}
