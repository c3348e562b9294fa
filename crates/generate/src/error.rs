//! What can go wrong in decoding.

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that names the file's field, the sentence or the engine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Cause);

/// What an [`Error`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A generation setting is malformed or not supported.
    Settings,
    /// The graphs are no encoder and decoder of the expected layout.
    Layout,
    /// A source sentence is empty.
    Source,
    /// The engine failed.
    Runtime,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Cause {
    #[error("{file}: no JSON object: {message}")]
    Json { file: &'static str, message: String },
    #[error("{file}: {field} {found} is not supported; expected {expected}")]
    Setting { file: &'static str, field: &'static str, found: String, expected: &'static str },
    #[error("{graph}: expected {expected}, found {found}")]
    Layout { graph: &'static str, expected: String, found: String },
    #[error("source {0} of the batch has no tokens")]
    Empty(usize),
    #[error(transparent)]
    Runtime(#[from] cognate_runtime::Error),
}

impl Error {
    /// What the error is about.
    pub fn kind(&self) -> ErrorKind {
        match self.0 {
            Cause::Json { .. } | Cause::Setting { .. } => ErrorKind::Settings,
            Cause::Layout { .. } => ErrorKind::Layout,
            Cause::Empty(_) => ErrorKind::Source,
            Cause::Runtime(_) => ErrorKind::Runtime,
        }
    }
}

impl From<cognate_runtime::Error> for Error {
    fn from(error: cognate_runtime::Error) -> Self {
        Self(Cause::Runtime(error))
    }
}
