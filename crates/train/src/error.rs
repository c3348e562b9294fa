//! Errors of training.

use crate::left_out::LeftOut;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that names the file, the line or the setting.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] pub(crate) Cause);

/// The category of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file is missing, cannot be read, or changed while it was used.
    File,
    /// The text is invalid.
    Corpus,
    /// The tokenizer cannot be trained, or fails on a text.
    Tokenizer,
    /// Settings are invalid.
    Settings,
    /// The model cannot be read or built.
    Model,
    /// The engine cannot load or run a graph.
    Engine,
    /// The folder of a training run has unexpected contents, or cannot be written.
    Folder,
    /// The processes that train together do not match.
    Ranks,
    /// The loss is not a finite number.
    Diverged,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Cause {
    // corpus
    #[error("{file}: cannot read: {reason}")]
    Unreadable { file: String, reason: String },
    #[error("{file}: changed since it was opened (line {line} is not where it was); start again")]
    Changed { file: String, line: u64 },
    #[error(
        "{source_file} has {n_source} lines, {target_file} has {n_target}; expected as many: line n of one is the translation of line n \
         of the other"
    )]
    LineCounts { source_file: String, n_source: u64, target_file: String, n_target: u64 },
    #[error(
        "{file}: line {line}: has {found} columns, expected at least {expected}, separated by tabs"
    )]
    Columns { file: String, line: u64, found: usize, expected: usize },
    #[error("{file}: columns are counted from 1, found 0")]
    ColumnZero { file: String },
    #[error("{file}: is empty; expected one sentence a line")]
    NoLines { file: String },
    #[error("no corpus; expected at least one pair of files")]
    NoCorpus,
    #[error("{files}: no pair of sentences is left of {n_lines}: {dropped}")]
    NothingLeft { files: String, n_lines: u64, dropped: String },
    #[error(transparent)]
    Text(#[from] cognate_text::Error),

    // config
    /// One line for each problem.
    #[error("{0}")]
    Config(String),

    // batches
    #[error("{field} is {found}, expected {expected}")]
    Setting { field: &'static str, found: String, expected: String },
    #[error(
        "no pair of sentences fits into a batch: {0}; raise max_tokens, max_source_tokens, max_target_tokens or max_ratio"
    )]
    NothingFits(LeftOut),
    #[error(
        "data.valid: no pair of sentences fits into the model and a batch: {0}; raise data.max_tokens or model.max_positions"
    )]
    NothingFitsInValidation(LeftOut),
    #[error("{place}: {error}")]
    Encode { place: String, error: cognate_text::Error },

    // trainer
    #[error("{0}")]
    Tokenizer(String),
    #[error("{0}")]
    Model(String),
    #[error("{0}")]
    Engine(String),
    #[error("{0}")]
    Ranks(String),
    #[error("{folder}: {problem}")]
    Folder { folder: String, problem: String },
    #[error(
        "update {update}: {what} is {value}; the batch is saved in {file}, {kept}. Lower optimiser.learning_rate, raise \
         optimiser.warmup_updates, or set optimiser.clip_norm"
    )]
    Diverged { update: u64, what: &'static str, value: f64, file: String, kept: String },
    #[error(
        "update {update}: the validation loss is {value}; {kept}. Lower optimiser.learning_rate, raise \
         optimiser.warmup_updates, or set optimiser.clip_norm"
    )]
    DivergedInValidation { update: u64, value: f64, kept: String },
}

impl Error {
    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        match &self.0 {
            Cause::Unreadable { .. } | Cause::Changed { .. } => ErrorKind::File,
            Cause::LineCounts { .. }
            | Cause::Columns { .. }
            | Cause::NoLines { .. }
            | Cause::NothingLeft { .. }
            | Cause::NothingFits(_)
            | Cause::NothingFitsInValidation(_) => ErrorKind::Corpus,
            Cause::Text(error) => match error.kind() {
                cognate_text::ErrorKind::File => ErrorKind::File,
                cognate_text::ErrorKind::Format => ErrorKind::Corpus,
                _ => ErrorKind::Tokenizer,
            },
            Cause::Encode { .. } | Cause::Tokenizer(_) => ErrorKind::Tokenizer,
            Cause::Model(_) => ErrorKind::Model,
            Cause::Engine(_) => ErrorKind::Engine,
            Cause::Folder { .. } => ErrorKind::Folder,
            Cause::Ranks(_) => ErrorKind::Ranks,
            Cause::Diverged { .. } | Cause::DivergedInValidation { .. } => ErrorKind::Diverged,
            Cause::Config(_)
            | Cause::NoCorpus
            | Cause::ColumnZero { .. }
            | Cause::Setting { .. } => ErrorKind::Settings,
        }
    }
}

/// Conversions of errors, by their messages, which name the place.
macro_rules! from {
    ($($error:ty => $cause:ident),* $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self(Cause::$cause(error.to_string()))
            }
        })*
    };
}

from!(
    cognate_model::Error => Model,
    cognate_passes::Error => Model,
    cognate_graph::Error => Model,
    cognate_export::Error => Model,
    cognate_runtime::Error => Engine,
    cognate_generate::Error => Engine,
);

impl From<cognate_text::Error> for Error {
    fn from(error: cognate_text::Error) -> Self {
        Self(Cause::Text(error))
    }
}

impl From<cognate_pipeline::Error> for Error {
    fn from(error: cognate_pipeline::Error) -> Self {
        match error.kind() {
            cognate_pipeline::ErrorKind::Mismatch => Self(Cause::Model(error.to_string())),
            _ => Self(Cause::Tokenizer(error.to_string())),
        }
    }
}

/// One type of errors for users of several crates.
impl From<Error> for cognate_pipeline::Error {
    fn from(error: Error) -> Self {
        use cognate_pipeline::ErrorKind as Kind;
        let kind = match error.kind() {
            ErrorKind::Settings => Kind::Options,
            ErrorKind::Corpus => Kind::Input,
            ErrorKind::Tokenizer => Kind::Text,
            ErrorKind::File | ErrorKind::Model | ErrorKind::Folder => Kind::Folder,
            ErrorKind::Engine | ErrorKind::Ranks | ErrorKind::Diverged => Kind::Engine,
        };
        Self::new(kind, error)
    }
}
