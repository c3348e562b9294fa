//! Errors of drawing.

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of drawing.
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
    /// The sizes of weights and tokens differ.
    Sizes,
    /// There is no such layer or head.
    Choice,
    /// A text is not a page of this crate.
    Page,
    /// A picture is too large, or its font cannot be read.
    Raster,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
