//! What can go wrong between text and tokens.

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that names the folder, the file or the piece.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Cause);

/// What an [`Error`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The tokenizer cannot be read, or rejects a text.
    Text,
    /// Tokenizer and model do not belong together.
    Mismatch,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    #[error(transparent)]
    Text(#[from] cognate_text::Error),
    #[error(
        "{folder}: vocab_size in config.json is {rows}, but {files} wants at least {required} ({piece:?} has the id {id}): \
         tokenizer and model do not belong together; take all files from one checkpoint"
    )]
    Rows { folder: String, rows: usize, files: String, required: usize, piece: String, id: i64 },
    #[error(
        "the tokenizer gives {piece:?} the id {id}, but vocab_size in config.json is {vocab}: the model knows no such token; \
         leave it out of the text"
    )]
    Unknown { piece: String, id: i64, vocab: usize },
}

impl Error {
    /// What the error is about.
    pub fn kind(&self) -> ErrorKind {
        match self.0 {
            Cause::Text(_) => ErrorKind::Text,
            Cause::Rows { .. } | Cause::Unknown { .. } => ErrorKind::Mismatch,
        }
    }
}

impl From<cognate_text::Error> for Error {
    fn from(error: cognate_text::Error) -> Self {
        Self(Cause::Text(error))
    }
}
