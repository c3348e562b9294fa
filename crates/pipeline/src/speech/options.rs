//! Options of transcription, with the names and defaults of OpenAI's command.

use super::tokens::Task;
use crate::LoadOptions;
use crate::error::{Error, Result};
use crate::options::{options_over, read_options};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::str::FromStr;

/// Where OpenAI's `whisper` and transformers differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Semantics {
    /// OpenAI's: a window's features end with the speech, and beams are ranked by masked
    /// probabilities.
    #[default]
    OpenAi,
    /// transformers': audio up to one window is padded with zeros, beams are ranked by unmasked
    /// probabilities, a rare text is told by its tokens.
    Transformers,
}

/// Punctuation that belongs to the next word.
pub(super) const PREPENDED: &str = "\"'“¿([{-";
/// Punctuation that belongs to the previous word.
pub(super) const APPENDED: &str = "\"'.。,，!！?？:：”)]}、";
/// A time in seconds that no audio reaches.
const LONGEST: f64 = 1e9;
/// Stands for the tokens that the model's configuration suppresses and, with OpenAI's semantics,
/// symbols that nobody speaks.
pub(super) const STANDARD: i64 = -1;

/// Options of transcription.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranscriptionOptions {
    /// The language spoken, as code or English name; by default that of the model's
    /// `generation_config.json`, or else detected.
    pub language: Option<String>,
    /// What is written; by default what `generation_config.json` says, or else a transcript.
    pub task: Option<Task>,
    /// Where implementations differ.
    pub semantics: Semantics,
    /// The temperatures to try in turn, from 0: search at 0, sampling above.
    #[serde(alias = "temperature", deserialize_with = "temperatures")]
    pub temperatures: Vec<f32>,
    /// The number of beams at temperature 0; 1 for greedy search.
    #[serde(alias = "beams", alias = "num_beams")]
    pub beam_size: usize,
    /// The number of samples at temperatures above 0.
    pub best_of: usize,
    /// The factor of beams that have to finish.
    pub patience: f32,
    /// The power of the length by which hypotheses and samples of a window are compared, 0 to 1
    /// (Wu et al. 2016, section 7); by default the mean log-probability decides.
    pub length_penalty: Option<f32>,
    /// The compression ratio above which a text is too repetitive, if any; by default 2.4, with
    /// transformers' semantics 1.35.
    #[serde(deserialize_with = "threshold")]
    pub compression_ratio_threshold: Option<Option<f32>>,
    /// The mean log-probability below which a text is rejected, if any.
    #[serde(alias = "logprob_threshold")]
    pub log_probability_threshold: Option<f32>,
    /// The probability of no speech above which a window with a rejected text is silence, if any.
    pub no_speech_threshold: Option<f32>,
    /// Whether earlier text is part of the prompt.
    pub condition_on_previous_text: bool,
    /// A text before the first window.
    pub initial_prompt: Option<String>,
    /// Whether `initial_prompt` stands before every window.
    pub carry_initial_prompt: bool,
    /// Words that are likely, such as names, before every window.
    pub hotwords: Option<String>,
    /// Whether the text has timestamps, by which windows follow each other.
    pub timestamps: bool,
    /// Whether words have times and probabilities.
    pub word_timestamps: bool,
    /// Punctuation that belongs to the next word.
    pub prepend_punctuations: String,
    /// Punctuation that belongs to the previous word.
    pub append_punctuations: String,
    /// The maximum number of new tokens of a window; by default half of the decoder's positions.
    #[serde(alias = "sample_len")]
    pub max_new_tokens: Option<usize>,
    /// Tokens that are not written; -1 stands for the symbols that the model's configuration
    /// names and, with OpenAI's semantics, those that its code does. Special tokens are never
    /// written.
    #[serde(deserialize_with = "list")]
    pub suppress_tokens: Vec<i64>,
    /// The times in seconds at which the clips to transcribe begin and end, in turn; the last clip
    /// can go to the end of the audio. All audio if empty.
    #[serde(deserialize_with = "list")]
    pub clip_timestamps: Vec<f64>,
    /// Silences longer than this number of seconds are skipped where the words beside them are
    /// improbable or have improbable durations; needs `word_timestamps`.
    pub hallucination_silence_threshold: Option<f64>,
    /// The seed of sampling.
    pub seed: u64,
    /// Whether windows end 2 s after their audio, and are not padded to their full length: short
    /// audio is read faster, and its text can differ.
    pub short_windows: bool,
    /// The number of windows that are decoded together, cut in pauses; 1 for windows that follow
    /// timestamps.
    pub batch: usize,
    /// The file of the package silero-vad that finds pauses; by default one in the model's folder,
    /// else the energy of the audio tells them.
    #[serde(alias = "vad")]
    pub voice_detector: Option<PathBuf>,
}

/// OpenAI's name for the opposite of `timestamps`.
const WITHOUT_TIMESTAMPS: &str = "without_timestamps";

/// The other names of fields, as in their attributes.
const ALIASES: [(&str, &str); 7] = [
    ("temperature", "temperatures"),
    ("beams", "beam_size"),
    ("num_beams", "beam_size"),
    ("logprob_threshold", "log_probability_threshold"),
    ("vad", "voice_detector"),
    ("sample_len", "max_new_tokens"),
    (WITHOUT_TIMESTAMPS, "timestamps"),
];

fn field(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, field)| field)
}

/// A temperature, or several.
fn temperatures<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<f32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a temperature or a list of temperatures")]
    enum Temperatures {
        One(f32),
        Many(Vec<f32>),
    }
    Ok(match Temperatures::deserialize(value)? {
        Temperatures::One(temperature) => vec![temperature],
        Temperatures::Many(temperatures) => temperatures,
    })
}

/// A list, or one separated by commas as on OpenAI's command line.
fn list<'de, D: Deserializer<'de>, T: DeserializeOwned + FromStr>(
    value: D,
) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a list of numbers, or numbers separated by commas")]
    enum List<T> {
        Many(Vec<T>),
        Text(String),
    }
    match List::deserialize(value)? {
        List::Many(values) => Ok(values),
        List::Text(text) if text.trim().is_empty() => Ok(Vec::new()),
        List::Text(text) => text
            .split(',')
            .map(|value| {
                let expected = || D::Error::custom(format!("expected a number, found {value:?}"));
                value.trim().parse().map_err(|_| expected())
            })
            .collect(),
    }
}

/// A threshold, or none.
fn threshold<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<f32>>, D::Error> {
    Option::deserialize(value).map(Some)
}

impl Default for TranscriptionOptions {
    fn default() -> Self {
        Self {
            language: None,
            task: None,
            semantics: Semantics::default(),
            temperatures: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            beam_size: 5,
            best_of: 5,
            patience: 1.0,
            length_penalty: None,
            compression_ratio_threshold: None,
            log_probability_threshold: Some(-1.0),
            no_speech_threshold: Some(0.6),
            condition_on_previous_text: true,
            initial_prompt: None,
            carry_initial_prompt: false,
            hotwords: None,
            timestamps: true,
            word_timestamps: false,
            prepend_punctuations: PREPENDED.into(),
            append_punctuations: APPENDED.into(),
            max_new_tokens: None,
            suppress_tokens: vec![STANDARD],
            clip_timestamps: Vec::new(),
            hallucination_silence_threshold: None,
            seed: 0,
            short_windows: false,
            batch: 1,
            voice_detector: None,
        }
    }
}

impl TranscriptionOptions {
    /// Reads options by name: the fields' names, or those of OpenAI's command (`temperature`,
    /// `logprob_threshold`). Others have their defaults.
    ///
    /// # Errors
    /// If a name is unknown, or a value has another type; the error names it.
    pub fn from_json(options: &Map<String, Value>) -> Result<Self> {
        Self::from_json_over(&Map::new(), options)
    }

    /// As [`TranscriptionOptions::from_json`]; `options` replace `earlier` ones, whichever of their
    /// names they have. `null` switches a threshold off and restores another default.
    ///
    /// # Errors
    /// As [`TranscriptionOptions::from_json`].
    pub fn from_json_over(
        earlier: &Map<String, Value>,
        options: &Map<String, Value>,
    ) -> Result<Self> {
        let renamed = |(name, value): (String, Value)| match (name.as_str(), &value) {
            (WITHOUT_TIMESTAMPS, Value::Bool(without)) => ("timestamps".into(), (!without).into()),
            _ => (name, value),
        };
        let all = options_over(earlier, options, field).into_iter();
        let set = all.filter(|(name, value)| !value.is_null() || name.ends_with("_threshold"));
        read_options(&set.map(renamed).collect())
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.temperatures.is_empty()
            || self.temperatures.iter().any(|temperature| !(0.0..=10.0).contains(temperature))
        {
            return Err(Error::wrong_option(
                "temperature",
                format!("expected numbers from 0 to 10, found {:?}", self.temperatures),
            ));
        }
        for (name, count) in
            [("beam_size", self.beam_size), ("best_of", self.best_of), ("batch", self.batch)]
        {
            if !(1..=256).contains(&count) {
                return Err(Error::wrong_option(name, format!("expected 1 to 256, found {count}")));
            }
        }
        if self.voice_detector.is_some() && self.batch == 1 {
            let message = "is used only for batches of windows; expected a batch of 2 or more";
            return Err(Error::wrong_option("vad", message));
        }
        for (name, threshold) in [
            ("compression_ratio_threshold", self.compression_ratio_threshold.flatten()),
            ("logprob_threshold", self.log_probability_threshold),
            ("no_speech_threshold", self.no_speech_threshold),
        ] {
            if threshold.is_some_and(f32::is_nan) {
                return Err(Error::wrong_option(name, "expected a number, found NaN"));
            }
        }
        if self.max_new_tokens == Some(0) {
            return Err(Error::wrong_option("max_new_tokens", "expected 1 or more, found 0"));
        }
        if !(0.01..=100.0).contains(&self.patience) {
            return Err(Error::wrong_option(
                "patience",
                format!("expected 0.01 to 100, found {}", self.patience),
            ));
        }
        if let Some(alpha) = self.length_penalty.filter(|alpha| !(0.0..=1.0).contains(alpha)) {
            return Err(Error::wrong_option(
                "length_penalty",
                format!("expected 0 to 1, found {alpha}"),
            ));
        }
        let is_ordered = self.clip_timestamps.is_sorted()
            && self.clip_timestamps.iter().all(|time| (0.0..=LONGEST).contains(time))
            && self.clip_timestamps.chunks_exact(2).all(|clip| clip[0] < clip[1]);
        if !is_ordered {
            return Err(Error::wrong_option(
                "clip_timestamps",
                format!(
                    "expected times in order, in seconds, and clips with a length, found {:?}",
                    self.clip_timestamps
                ),
            ));
        }
        self.check_silence()
    }

    fn check_silence(&self) -> Result<()> {
        let Some(threshold) = self.hallucination_silence_threshold else { return Ok(()) };
        let wrong =
            |message: String| Err(Error::wrong_option("hallucination_silence_threshold", message));
        if !(0.0..=LONGEST).contains(&threshold) {
            return wrong(format!("expected seconds from 0, found {threshold}"));
        }
        if !self.word_timestamps {
            return wrong("needs word_timestamps: improbable words are told by their times".into());
        }
        if self.batch > 1 {
            return wrong("expected a batch of 1: windows of a batch are cut in silence".into());
        }
        Ok(())
    }

    pub(super) fn compression_limit(&self) -> Option<f32> {
        self.compression_ratio_threshold.unwrap_or(Some(if self.semantics == Semantics::OpenAi {
            2.4
        } else {
            1.35
        }))
    }
}

/// Options of a transcriber.
#[derive(Clone, Debug, Default)]
pub struct TranscriberOptions {
    /// Options of loading.
    pub load: LoadOptions,
    /// Options of transcription.
    pub transcription: TranscriptionOptions,
}
