//! What can go wrong in decoding.

use crate::scores::Unusable;

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
    /// A sentence, its target or its prefix is not as it must be.
    Source,
    /// A model's scores are no numbers to choose a token by.
    Scores,
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
    #[error("{0}")]
    Contradiction(String),
    #[error("expected as many {what} as sources, {expected}, found {found}")]
    Count { what: &'static str, expected: usize, found: usize },
    #[error(
        "the target prefix of sentence {sentence} of the batch has {tokens} tokens; expected at most {room}, which leaves room for one more"
    )]
    Prefix { sentence: usize, tokens: usize, room: usize },
    #[error("the target of sentence {sentence} of the batch does not begin with its prefix")]
    Target { sentence: usize },
    #[error("the target of sentence {sentence} of the batch has the token {token}; the model knows those from 0 to {}", vocab - 1)]
    Vocabulary { sentence: usize, token: i64, vocab: usize },
    #[error(
        "sentence {sentence}, step {step}: a score of the model is NaN or infinite; look for weights or activations beyond the range of \
         their type"
    )]
    NotFinite { sentence: u64, step: usize },
    #[error(
        "sentence {sentence}, step {step}: no token may come: every score is minus infinity, by the model or by what the settings forbid"
    )]
    Forbidden { sentence: u64, step: usize },
    #[error(transparent)]
    Runtime(#[from] cognate_runtime::Error),
}

impl Cause {
    /// Why the `step`-th token of a sentence, counted from 1, cannot be chosen.
    pub(crate) fn scores(why: Unusable, sentence: u64, step: usize) -> Self {
        match why {
            Unusable::NotFinite => Cause::NotFinite { sentence, step },
            Unusable::Forbidden => Cause::Forbidden { sentence, step },
        }
    }
}

impl Error {
    /// What the error is about.
    pub fn kind(&self) -> ErrorKind {
        match self.0 {
            Cause::Json { .. } | Cause::Setting { .. } | Cause::Contradiction(_) => ErrorKind::Settings,
            Cause::Layout { .. } => ErrorKind::Layout,
            Cause::Empty(_) | Cause::Count { .. } | Cause::Prefix { .. } | Cause::Target { .. } | Cause::Vocabulary { .. } => {
                ErrorKind::Source
            }
            Cause::NotFinite { .. } | Cause::Forbidden { .. } => ErrorKind::Scores,
            Cause::Runtime(_) => ErrorKind::Runtime,
        }
    }
}

impl From<cognate_runtime::Error> for Error {
    fn from(error: cognate_runtime::Error) -> Self {
        Self(Cause::Runtime(error))
    }
}
