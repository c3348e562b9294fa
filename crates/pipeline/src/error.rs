//! Errors of translating, scoring and observing.

use std::fmt;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that names the folder, the file, the option or the sentence.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Cause);

/// The category of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The tokenizer cannot be read, or rejects a text.
    Text,
    /// Tokenizer and model do not belong together.
    Mismatch,
    /// The model's folder cannot be read or used.
    Folder,
    /// An option contradicts the model or another option.
    Options,
    /// A sentence or its translation is invalid.
    Input,
    /// An engine cannot load or run the model.
    Engine,
    /// The caller cancelled the operation.
    Cancelled,
    /// Too much is waiting already.
    Busy,
    /// A sentence has more tokens than the model can read.
    TooLong,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    #[error(transparent)]
    Text(#[from] cognate_text::Error),
    #[error(
        "{folder}: vocab_size in config.json is {rows}, but {files} needs at least {required} ({piece:?} has the id {id}): \
         tokenizer and model do not belong together; take all files from one checkpoint"
    )]
    Rows { folder: String, rows: usize, files: String, required: usize, piece: String, id: i64 },
    #[error(
        "token {piece:?} has the id {id}, but vocab_size in config.json is {vocab}; remove it from the text"
    )]
    Unknown { piece: String, id: i64, vocab: usize },

    #[error(transparent)]
    Audio(#[from] cognate_audio::Error),
    #[error(transparent)]
    Image(#[from] cognate_images::Error),
    #[error(transparent)]
    Folder(#[from] cognate_folder::Error),
    #[error(transparent)]
    Model(#[from] cognate_model::Error),
    #[error(transparent)]
    Export(#[from] cognate_export::Error),
    #[error("{0}")]
    InFolder(String),

    #[error("{option}: {message}")]
    Option { option: &'static str, message: String },
    #[error("{0}")]
    Input(String),
    #[error("{place}: {error}")]
    At { place: String, error: Box<Error> },

    #[error(transparent)]
    Generate(#[from] cognate_generate::Error),
    #[error(transparent)]
    Runtime(#[from] cognate_runtime::Error),
    #[error("cancelled")]
    Cancelled,
    #[error("too many sentences are waiting; expected at most {limit}; try again later")]
    Busy { limit: usize },
    #[error("has {tokens} tokens; expected at most {limit}, the positions of the model")]
    TooLong { tokens: usize, limit: usize },
    #[error("{place}: {message}")]
    System { place: &'static str, message: String },
    #[error("{message}")]
    Other { kind: ErrorKind, message: String },
}

impl Error {
    /// An error of a higher crate, so that all have one type.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Self(Cause::Other { kind, message: message.to_string() })
    }

    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        match &self.0 {
            Cause::Text(_) => ErrorKind::Text,
            Cause::Rows { .. } | Cause::Unknown { .. } => ErrorKind::Mismatch,
            Cause::Folder(_) | Cause::Model(_) | Cause::Export(_) | Cause::InFolder(_) => {
                ErrorKind::Folder
            }
            Cause::Option { .. } => ErrorKind::Options,
            Cause::Input(_) | Cause::Audio(_) | Cause::Image(_) => ErrorKind::Input,
            Cause::At { error, .. } => error.kind(),
            Cause::Cancelled => ErrorKind::Cancelled,
            Cause::Busy { .. } => ErrorKind::Busy,
            Cause::TooLong { .. } => ErrorKind::TooLong,
            Cause::Other { kind, .. } => *kind,
            Cause::Generate(error) => match error.kind() {
                cognate_generate::ErrorKind::Settings => ErrorKind::Options,
                cognate_generate::ErrorKind::Source => ErrorKind::Input,
                _ => ErrorKind::Engine,
            },
            Cause::Runtime(_) | Cause::System { .. } => ErrorKind::Engine,
        }
    }

    /// The name of the invalid option, a field of [`crate::DecodingOptions`] or
    /// [`crate::LoadOptions`], and the message.
    pub fn option(&self) -> Option<(&'static str, &str)> {
        match &self.0 {
            Cause::Option { option, message } => Some((option, message)),
            _ => None,
        }
    }

    /// An error about an option.
    pub fn wrong_option(option: &'static str, message: impl fmt::Display) -> Self {
        Self(Cause::Option { option, message: message.to_string() })
    }

    pub(crate) fn input(message: impl fmt::Display) -> Self {
        Self(Cause::Input(message.to_string()))
    }

    /// Adds the name of the sentence to an error, unless its message begins with it.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        let place = place.to_string();
        let is_there =
            self.to_string().strip_prefix(&place).is_some_and(|rest| rest.starts_with([',', ':']));
        if is_there {
            return self;
        }
        Self(Cause::At { place, error: Box::new(self) })
    }
}

macro_rules! from {
    ($($error:ty),*) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self(error.into())
            }
        })*
    };
}

from!(
    cognate_audio::Error,
    cognate_text::Error,
    cognate_images::Error,
    cognate_folder::Error,
    cognate_model::Error,
    cognate_export::Error,
    cognate_generate::Error,
    cognate_runtime::Error
);
