//! From audio files to the input of a speech model.
//!
//! [`AudioReader`] decodes WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A (AAC-LC, ALAC) and WebM audio,
//! mixes it to mono and resamples it to 16 kHz, block by block: memory does not grow with the
//! length of the audio. [`FeatureExtractor`] computes log-mel features equal to those of
//! transformers' `WhisperFeatureExtractor`.
//!
//! This crate does not depend on models or engines.
//!
//! ```no_run
//! use cognate_audio::{AudioReader, FeatureExtractor};
//!
//! let samples = AudioReader::open("speech.flac".as_ref())?.read_all()?;
//! let features = FeatureExtractor::whisper(80).extract(&samples);
//! assert_eq!(features.dim(), (80, samples.len() / 160));
//! # Ok::<(), cognate_audio::Error>(())
//! ```

mod codec;
mod error;
mod features;
mod mel;
mod reader;
mod resample;

pub use error::{Error, ErrorKind, Result};
pub use features::{FeatureExtractor, FeatureStream};
pub use reader::{AudioReader, Damage};

/// The sample rate of all output, in Hz.
pub const SAMPLE_RATE: u32 = 16_000;
