//! Transformers with an encoder, a decoder or both: translation, training, export to ONNX and
//! verification.
//!
//! ```no_run
//! fn main() -> cognate::Result<()> {
//!     let t = cognate::Translator::open("testdata/multi30k-en-de")?;
//!     for line in t.translate(&["A man is riding a bicycle."])? {
//!         println!("{}", line.text);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! - [`Translator`] translates with a checkpoint of Hugging Face, an export of Cognate, or an
//!   export of Optimum.
//! - [`Export`] writes a checkpoint as ONNX graphs, in several layouts and precisions.
//! - [`verify`] compares an export with the f64 reference evaluator on every available engine.
//! - [`Embedder`] turns texts into vectors, [`Classifier`] texts and images into classes, by an
//!   encoder alone.
//! - [`Generator`] continues texts, by a decoder alone.
//! - [`Transcriber`] writes the text of speech.
//! - [`ImageReader`] reads the text of images.
//! - [`Scorer`] computes the probabilities of translations, [`Observer`] attention weights.
//! - [`train`] trains models, [`evaluation`] computes BLEU and chrF.
//!
//! All functions return [`Error`], whose category is [`Error::kind`].

pub mod amounts;
pub mod description;
pub mod diagram;
pub mod evaluation;
mod export;
mod sentences;
pub mod train;
mod training_export;
mod verification;

pub use cognate_audio::AudioReader;
pub use cognate_export::Target;
pub use cognate_folder::{
    BleuComparison, Calibration, Manifest, ModelSource, Origin, Pooling, Precision, Quality,
    SentenceSettings, Verification,
};
pub use cognate_generate::{EarlyStopping, Hypothesis};
pub use cognate_images::Image;
pub use cognate_model::{Layout, Preset};
pub use cognate_pipeline::{
    CancellationToken, Class, Classifier, DecodingOptions, Details, EmbedOptions, Embedder, Error,
    ErrorKind, Generator, ImageReader, Languages, Line, LineEvent, LineOptions, LoadOptions,
    LoadedEncoder, Notice, Observer, Pair, Result, SILERO_FILES, ScoredPair, Scorer, Segment,
    Semantics, SubtitleOptions, Task, Transcriber, TranscriberOptions, TranscriptFormat,
    TranscriptWriter, Transcription, TranscriptionEvent, TranscriptionOptions, TranslatedText,
    Translation, Translator, TranslatorOptions, Warning, Word,
};
pub use cognate_runtime::{Device, Devices, Engine};
pub use export::{ComparisonText, Export, ExportEvent, Exported};
pub use training_export::{ExportedStep, TrainingExport};
pub use verification::{Verified, VerifyOptions, verify};
