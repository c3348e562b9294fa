//! What can go wrong in drawing.

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that names what does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// What an [`Error`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Weights and words do not have the same sizes.
    Sizes,
    /// There is no such layer or head.
    Choice,
    /// A text is no page of this crate.
    Page,
    /// A picture is too large, or its font cannot be read.
    Raster,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What the error is about.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
