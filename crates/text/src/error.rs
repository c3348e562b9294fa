//! Errors of texts and tokenizer files.

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that names the file, the line or the argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Cause);

/// The category of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file is missing or cannot be read.
    File,
    /// The contents of a file are invalid.
    Format,
    /// Arguments are invalid: counts that differ, negative ids.
    Argument,
    /// The tokenizer fails on a text or in training.
    Tokenizer,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cause {
    // Any file.
    #[error("{file}: cannot read: {reason}")]
    Unreadable { file: String, reason: String },

    // tokenizer_file
    #[error(
        "{file}: no such file; expected Hugging Face's tokenizer.json beside the checkpoint's config.json, \
         or else source.spm, sentencepiece.bpe.model, spiece.model, or vocab.json with merges.txt"
    )]
    NoTokenizer { file: String },
    #[error("{file}: is a folder; expected {expected}")]
    Folder { file: String, expected: &'static str },
    #[error("{file}: more than {limit} bytes; expected {expected}")]
    TooLarge { file: String, limit: u64, expected: &'static str },
    #[error("{file}: is a Git LFS pointer; fetch the file itself with `git lfs pull`")]
    LfsPointer { file: String },
    #[error("{file}: ends too early ({reason}); fetch the file again")]
    Truncated { file: String, reason: String },
    #[error("{file}: is not JSON ({reason}); expected {expected}")]
    NotJson { file: String, reason: String, expected: &'static str },
    #[error("{file}: is JSON, but not {expected}: {reason}")]
    OtherJson { file: String, reason: String, expected: &'static str },
    #[error(
        "{file}: {place}: precompiled_charsmap is null, expected base64 text; \
         conversions for the browser leave it out: take tokenizer.json from the original checkpoint"
    )]
    NullCharsmap { file: String, place: String },
    #[error(
        "{file}: {place}: precompiled_charsmap is damaged ({reason}), expected base64 of SentencePiece's \
         normalization rules; fetch the file again"
    )]
    DamagedCharsmap { file: String, place: String, reason: String },
    #[error("{file}: rejected by the tokenizers library: {reason}")]
    Refused { file: String, reason: String },

    // folder
    #[error("{file}: no such file; expected {expected}")]
    MissingFile { file: String, expected: &'static str },
    #[error(
        "{file}: no such file; the folder has no tokenizer.json, so its {family} tokenizer is read from {expected}"
    )]
    NoFamilyFile { file: String, family: String, expected: String },
    #[error(
        "{file}: no such file; the folder has {found}, but neither `tokenizer_class` in tokenizer_config.json nor \
         `model_type` in config.json names a supported tokenizer"
    )]
    NoClass { file: String, found: String },
    #[error(
        "{file}: no such file; tokenizer_config.json names {class}, which needs a tokenizer.json: \
         save it with transformers' fast tokenizer"
    )]
    UnknownClass { file: String, class: String },
    #[error("{file}: {name} is {found}, expected {expected}")]
    WrongSetting { file: String, name: String, found: String, expected: String },
    #[error("{file}: {token:?} has the id {found}, expected a number from 0 to 4294967295")]
    BadId { file: String, token: String, found: String },
    #[error("{file}: the special token {token:?} is missing")]
    MissingToken { file: String, token: String },
    #[error("{file}: line {line}: has {n_pieces} pieces, expected 2")]
    BadMerge { file: String, line: usize, n_pieces: usize },

    // sentencepiece
    #[error("{file}: is not a SentencePiece model: {reason}")]
    NotSentencePiece { file: String, reason: String },
    #[error("{file}: its precompiled_charsmap is damaged: {reason}; fetch the file again")]
    BadCharsmap { file: String, reason: String },

    // language
    #[error("{file}: unknown language {code:?}; expected one of {known}")]
    UnknownLanguage { file: String, code: String, known: String },
    #[error("{file}: the tokenizer has no languages, found language {code:?}")]
    NoLanguages { file: String, code: String },
    #[error(
        "{file}: the tokenizer has no source languages, found source language {code:?}; set only the target language"
    )]
    NoSourceLanguage { file: String, code: String },

    // tokenizer
    #[error("{file}: the tokenizers library cannot encode {text:?}: {reason}")]
    Encode { file: String, text: String, reason: String },
    #[error("{file}: the tokenizers library cannot decode {n_ids} ids: {reason}")]
    Decode { file: String, n_ids: usize, reason: String },
    #[error("{file}: id {id} at position {position} is negative; expected ids of at least 0")]
    NegativeId { file: String, id: i64, position: usize },

    // segmentation
    #[error(
        "{file}: expected a tokenizer.json with a unigram model, which sampling of segmentations requires"
    )]
    NoUnigram { file: String },

    // piece_models
    #[error("{file}: cannot be written as SentencePiece models: {reason}")]
    NoPieceModels { file: String, reason: String },

    // training
    #[error("{name} is {found}; a tokenizer's training expects {expected}")]
    BadTraining { name: &'static str, found: String, expected: &'static str },
    #[error("no text to train a tokenizer on: it contains no words")]
    NoText,
    #[error("more than {limit} characters to train a tokenizer on; use a sample of the lines")]
    MuchText { limit: u64 },
    #[error(
        "vocab_size is {vocab_size}, expected at least {needed}: the text has {n_characters} characters, and there are {n_special} \
         special tokens; raise it, or lower the character coverage"
    )]
    SmallVocabulary { vocab_size: usize, n_characters: usize, n_special: usize, needed: usize },
    #[error("the tokenizers library cannot train: {reason}")]
    Training { reason: String },
    #[error("{file}: cannot write: {reason}")]
    Unwritable { file: String, reason: String },

    // lines
    #[error("{file}: compressed with {format}; expected text: decompress the file first")]
    Compressed { file: String, format: &'static str },
    #[error("{file}: line {line}: not UTF-8 at byte {byte}; convert the file to UTF-8")]
    NotUtf8 { file: String, line: usize, byte: usize },
    #[error(
        "{file}: line {line}: longer than {limit} bytes; expected text with one sentence a line"
    )]
    LongLine { file: String, line: usize, limit: usize },
    #[error("{file}: line {line}: cannot read: {reason}")]
    UnreadableLine { file: String, line: usize, reason: String },

    // metric
    #[error(
        "{hypotheses} hypotheses for {references} references; expected one reference per hypothesis"
    )]
    Counts { hypotheses: usize, references: usize },
    #[error("no sentences; expected at least one hypothesis and its reference")]
    NoSentences,
}

impl Error {
    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self.0 {
            Cause::Unreadable { .. }
            | Cause::NoTokenizer { .. }
            | Cause::MissingFile { .. }
            | Cause::NoFamilyFile { .. }
            | Cause::NoClass { .. }
            | Cause::UnknownClass { .. }
            | Cause::Folder { .. }
            | Cause::Unwritable { .. }
            | Cause::UnreadableLine { .. } => ErrorKind::File,
            Cause::TooLarge { .. }
            | Cause::LfsPointer { .. }
            | Cause::Truncated { .. }
            | Cause::NotJson { .. }
            | Cause::OtherJson { .. }
            | Cause::NullCharsmap { .. }
            | Cause::DamagedCharsmap { .. }
            | Cause::Refused { .. }
            | Cause::WrongSetting { .. }
            | Cause::BadId { .. }
            | Cause::MissingToken { .. }
            | Cause::BadMerge { .. }
            | Cause::NotSentencePiece { .. }
            | Cause::BadCharsmap { .. }
            | Cause::Compressed { .. }
            | Cause::NotUtf8 { .. }
            | Cause::LongLine { .. } => ErrorKind::Format,
            Cause::NegativeId { .. }
            | Cause::UnknownLanguage { .. }
            | Cause::NoLanguages { .. }
            | Cause::NoSourceLanguage { .. }
            | Cause::Counts { .. }
            | Cause::BadTraining { .. }
            | Cause::NoUnigram { .. }
            | Cause::NoPieceModels { .. }
            | Cause::NoText
            | Cause::MuchText { .. }
            | Cause::SmallVocabulary { .. }
            | Cause::NoSentences => ErrorKind::Argument,
            Cause::Encode { .. } | Cause::Decode { .. } | Cause::Training { .. } => {
                ErrorKind::Tokenizer
            }
        }
    }
}
