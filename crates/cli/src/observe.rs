//! The options that `attend` and `explain` share.

use crate::amounts::at_most;
use crate::messages;
use crate::model_options::ModelOptions;
use crate::transcribe::tasks;
use anyhow::{Context, Result, bail};
use cognate::{
    DecodingOptions, Details, Observer, Task, Transcriber, TranscriberOptions, TranscriptionOptions,
};
use cognate_pictures::Example;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// The sentence and its translation.
#[derive(clap::Args)]
pub(crate) struct SentenceOptions {
    /// Sentence to translate [default: the line on standard input]
    #[arg(value_name = "SENTENCE")]
    sentence: Option<String>,
    /// Read this PNG or JPEG file instead of a sentence, by a model such as TrOCR
    #[arg(long, value_name = "FILE", conflicts_with = "sentence")]
    image: Option<PathBuf>,
    /// Read this audio file of at most 30 s instead of a sentence, by a speech model such as
    /// Whisper
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sentence", "image"])]
    audio: Option<PathBuf>,
    /// Language of the audio, as code or English name [default: the model's, or detected]
    #[arg(long, value_name = "LANGUAGE", requires = "audio", conflicts_with_all = ["sentence", "image"])]
    language: Option<String>,
    /// Text of the audio in the language spoken, or its translation into English [default: the
    /// model's, or transcribe]
    #[arg(
        long,
        requires = "audio",
        conflicts_with_all = ["sentence", "image"],
        value_parser = tasks()
    )]
    task: Option<Task>,
    /// Use this translation, or text of the image or audio, instead of the model's
    #[arg(long, value_name = "TEXT")]
    pub(crate) target: Option<String>,
}

impl SentenceOptions {
    /// The file that is read, by the option that names it.
    pub(crate) fn file(&self) -> Option<(&'static str, &Path)> {
        let image = self.image.as_deref().map(|file| ("--image", file));
        image.or_else(|| self.audio.as_deref().map(|file| ("--audio", file)))
    }

    /// What is read: an image, or the sentence from the command line or standard input.
    pub(crate) fn input(&self) -> Result<Input> {
        match (&self.image, &self.audio, &self.sentence) {
            (Some(path), ..) => Ok(Input::Image(path.clone())),
            (_, Some(path), _) => Ok(Input::Audio(path.clone())),
            (.., Some(sentence)) => Ok(Input::Sentence(sentence.clone())),
            (None, None, None) => line().map(Input::Sentence),
        }
    }
}

/// What the model reads.
pub(crate) enum Input {
    Sentence(String),
    Image(PathBuf),
    Audio(PathBuf),
}

impl Input {
    /// Its attention weights.
    pub(crate) fn example(
        &self,
        observer: &Observer,
        target: Option<&str>,
        details: Details,
    ) -> Result<Example> {
        Ok(match self {
            Self::Sentence(text) => observer.example(text, target, details)?,
            Self::Image(path) => observer.example_of_image(path, target, details)?,
            Self::Audio(path) => observer.example_of_audio(path, target, details)?,
        })
    }
}

/// The options of the model and of decoding.
#[derive(clap::Args)]
pub(crate) struct ObserveOptions {
    #[command(flatten)]
    model: ModelOptions,
    /// Number of hypotheses in beam search; 1 is greedy [default: the model's]
    #[arg(long, visible_aliases = ["num-beams", "beam-size"], value_name = "N", value_parser = at_most(256))]
    beams: Option<NonZeroUsize>,
    /// Maximum number of tokens of a translation [default: the model's]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24))]
    max_new_tokens: Option<NonZeroUsize>,
    /// Number of threads of ONNX Runtime [default: its own choice]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    threads: Option<NonZeroUsize>,
}

impl ObserveOptions {
    /// Loads the model that reads what `sentence` says.
    pub(crate) fn load(&self, sentence: &SentenceOptions) -> Result<Observer> {
        let load = self.model.load(Some(NonZeroUsize::MIN), self.threads);
        let source = self.model.source()?;
        let observer = if sentence.audio.is_some() {
            let transcription = TranscriptionOptions {
                language: sentence.language.clone(),
                task: sentence.task,
                beam_size: self.beams.map_or(1, NonZeroUsize::get),
                max_new_tokens: self.max_new_tokens.map(NonZeroUsize::get),
                ..TranscriptionOptions::default()
            };
            Observer::load_speech(source, TranscriberOptions { load, transcription })?
        } else if Transcriber::can_load(&source)? {
            bail!("{source}: a model of audio; give it a file by --audio");
        } else {
            let decoding = DecodingOptions {
                beams: self.beams,
                max_new_tokens: self.max_new_tokens,
                ..DecodingOptions::default()
            };
            Observer::load(source, &load, &decoding)?
        };
        messages::notices(observer.model().notices());
        Ok(observer)
    }
}

/// The single line on standard input.
fn line() -> Result<String> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).context("stdin: expected a sentence in UTF-8")?;
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    match (lines.next(), lines.count()) {
        (Some(line), 0) => Ok(line.to_owned()),
        (None, _) => bail!(
            "stdin: expected a sentence, found none; pass it as the argument, or through a pipe"
        ),
        (Some(_), more) => bail!("stdin: expected one sentence, found {} lines", more + 1),
    }
}
