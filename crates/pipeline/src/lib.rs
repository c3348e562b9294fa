//! Translating, scoring and observing text with a model's folder.
//!
//! [`Translator`] encodes sentences, groups them into batches and decodes them on several workers;
//! [`Scorer`] computes the probabilities of translations; [`Observer`] computes attention weights
//! and explanations. All load a model as [`LoadedModel`]. [`Generator`] continues texts by a
//! decoder alone. [`Embedder`] and [`Classifier`] read texts, [`Classifier`] also images, by an
//! encoder alone. [`Transcriber`] writes the text of speech, [`ImageReader`] that of images.
//! [`TranslationQueue`] translates sentences of many callers together.
//!
//! This crate is independent of the command line and prints nothing: messages are returned as
//! [`Notice`]s and [`Warning`]s.

/// `Debug` of a type that has loaded a model, by where the model comes from.
macro_rules! debug_by_source {
    ($name:ident, |$it:ident| $source:expr) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                let model = format_args!("{}", $source);
                f.debug_struct(stringify!($name)).field("model", &model).finish_non_exhaustive()
            }
        }
    };
}

mod batches;
mod cancellation;
mod classify;
mod copies;
mod embed;
mod encoder;
mod error;
mod generator;
mod images;
mod language;
mod lines;
mod loaded;
mod notice;
mod observe;
mod options;
mod queue;
mod read;
mod score;
mod shortlist;
mod source;
mod speech;
mod tokenizer;
mod translation;
mod translator;

pub use batches::{BatchLimit, batches, in_batches};
pub use cancellation::CancellationToken;
pub use classify::{Class, Classifier};
pub use embed::{EmbedOptions, Embedder};
pub use encoder::{LoadedEncoder, Part, token_means};
pub use error::{Error, ErrorKind, Result};
pub use generator::Generator;
pub use language::{Languages, TargetNaming, decode_into};
pub use lines::{LineEvent, LineOptions};
pub use loaded::{InMemory, LoadedModel};
pub use notice::{Notice, listed};
pub use observe::{Details, Observer};
pub use options::{DecodingOptions, LoadOptions};
pub use queue::{Answer, QueueEvent, QueueOptions, Receiver, Ticket, TranslationQueue};
pub use read::ImageReader;
pub use score::{Pair, ScoredPair, Scorer};
pub use shortlist::{ShortlistBuilder, ShortlistOptions};
pub use source::{EncodedSource, SourceEncoder};
pub use speech::{
    SILERO_FILES, Segment, Semantics, SubtitleOptions, Task, Transcriber, TranscriberOptions,
    TranscriptFormat, TranscriptWriter, Transcription, TranscriptionEvent, TranscriptionOptions,
    Word,
};
pub use tokenizer::{check_tokenizer, open_tokenizer, open_tokenizer_if_readable};
pub use translation::{Line, TranslatedText, Translation, Warning};
pub use translator::{Translator, TranslatorOptions};
