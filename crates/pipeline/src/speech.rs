//! Transcription of speech by Whisper (Radford et al. 2022).

mod features;
mod formats;
mod languages;
mod observed;
mod options;
mod segments;
mod silence;
mod subtitles;
mod tokens;
mod transcriber;
mod voice;
mod window;
mod words;

pub use formats::{TranscriptFormat, TranscriptWriter};
pub use options::{Semantics, TranscriberOptions, TranscriptionOptions};
pub use segments::{Segment, Word};
pub use subtitles::SubtitleOptions;
pub use tokens::Task;
pub use transcriber::{SILERO_FILES, Transcriber, Transcription, TranscriptionEvent};
