//! Errors of a verification.

use cognate_pipeline::CancellationToken;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that names the model or the engine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Cause);

/// The category of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A graph of the model cannot be built.
    Model,
    /// An engine failed.
    Runtime,
    /// The caller cancelled the verification.
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Cause {
    #[error(transparent)]
    Model(#[from] cognate_model::Error),
    #[error(transparent)]
    Graph(#[from] cognate_graph::Error),
    #[error("{engine}: {message}")]
    Runtime { engine: String, message: String },
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self.0 {
            Cause::Model(_) | Cause::Graph(_) => ErrorKind::Model,
            Cause::Runtime { .. } => ErrorKind::Runtime,
            Cause::Cancelled => ErrorKind::Cancelled,
        }
    }

    pub(crate) fn runtime(engine: &str, message: impl std::fmt::Display) -> Self {
        Cause::Runtime { engine: engine.into(), message: message.to_string() }.into()
    }
}

/// # Errors
/// If the verification is cancelled.
pub(crate) fn check(cancellation: &CancellationToken) -> Result<()> {
    if cancellation.is_cancelled() { Err(Cause::Cancelled.into()) } else { Ok(()) }
}

impl From<cognate_model::Error> for Error {
    fn from(error: cognate_model::Error) -> Self {
        Self(Cause::Model(error))
    }
}

impl From<cognate_graph::Error> for Error {
    fn from(error: cognate_graph::Error) -> Self {
        Self(Cause::Graph(error))
    }
}

impl From<Error> for cognate_pipeline::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Model => cognate_pipeline::ErrorKind::Folder,
            ErrorKind::Runtime => cognate_pipeline::ErrorKind::Engine,
            ErrorKind::Cancelled => cognate_pipeline::ErrorKind::Cancelled,
        };
        Self::new(kind, error)
    }
}
