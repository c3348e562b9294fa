//! Errors of decoding.

use crate::scores::Unusable;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that names the file's field, the sentence or the engine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Cause);

/// The category of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A generation setting is malformed or not supported.
    Settings,
    /// The graphs are not an encoder and a decoder of the expected layout.
    Layout,
    /// A sentence, its target or its prefix is invalid.
    Source,
    /// The model's scores do not allow choosing a token.
    Scores,
    /// The engine failed.
    Runtime,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Cause {
    #[error("{file}: expected a JSON object: {message}")]
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
        "the target prefix of sentence {sentence} of the batch has {tokens} tokens; expected at most {room}"
    )]
    Prefix { sentence: usize, tokens: usize, room: usize },
    #[error("prompt {sentence} of the batch has {tokens} tokens; expected at most {room}")]
    Prompt { sentence: usize, tokens: usize, room: usize },
    #[error("the target of sentence {sentence} of the batch does not begin with its prefix")]
    Target { sentence: usize },
    #[error("the target of sentence {sentence} of the batch has the token {token}, expected 0 to {}", vocab - 1)]
    Vocabulary { sentence: usize, token: i64, vocab: usize },
    #[error(
        "sentence {sentence}, step {step}: a logit is NaN or infinite; weights or activations may exceed the range of their type"
    )]
    NotFinite { sentence: u64, step: usize },
    #[error(
        "sentence {sentence}, step {step}: every token is forbidden: all scores are minus infinity"
    )]
    Forbidden { sentence: u64, step: usize },
    #[error(transparent)]
    Graph(#[from] cognate_graph::Error),
    #[error(transparent)]
    Runtime(#[from] cognate_runtime::Error),
}

impl Cause {
    /// The error that the `step`-th token of a sentence, from 1, cannot be chosen.
    pub(crate) fn scores(why: Unusable, sentence: u64, step: usize) -> Self {
        match why {
            Unusable::NotFinite => Cause::NotFinite { sentence, step },
            Unusable::Forbidden => Cause::Forbidden { sentence, step },
        }
    }
}

impl Error {
    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self.0 {
            Cause::Json { .. } | Cause::Setting { .. } | Cause::Contradiction(_) => {
                ErrorKind::Settings
            }
            Cause::Layout { .. } | Cause::Graph(_) => ErrorKind::Layout,
            Cause::Empty(_)
            | Cause::Count { .. }
            | Cause::Prefix { .. }
            | Cause::Prompt { .. }
            | Cause::Target { .. }
            | Cause::Vocabulary { .. } => ErrorKind::Source,
            Cause::NotFinite { .. } | Cause::Forbidden { .. } => ErrorKind::Scores,
            Cause::Runtime(_) => ErrorKind::Runtime,
        }
    }
}

impl From<cognate_graph::Error> for Error {
    fn from(error: cognate_graph::Error) -> Self {
        Self(Cause::Graph(error))
    }
}

impl From<cognate_runtime::Error> for Error {
    fn from(error: cognate_runtime::Error) -> Self {
        Self(Cause::Runtime(error))
    }
}
