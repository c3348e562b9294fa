//! The special tokens of Whisper (Radford et al. 2022, section 2.3), from `generation_config.json`
//! or the tokenizer.

use super::languages::LANGUAGES;
use crate::error::{Cause, Error, Result};
use cognate_generate::{Settings, TimestampRules};
use cognate_model::Config;
use cognate_text::Tokenizer;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The vocabulary of OpenAI's multilingual models; English-only ones are smaller.
const MULTILINGUAL_VOCAB: usize = 51_865;

/// What a speech model is asked to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// The words in the language spoken.
    #[default]
    Transcribe,
    /// Their translation into English.
    Translate,
}

/// The special tokens of a speech model.
#[derive(Clone, Debug)]
pub(super) struct SpeechTokens {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) previous: i64,
    pub(super) no_speech: i64,
    pub(super) no_timestamps: i64,
    /// Codes with their tokens; empty in an English-only model.
    pub(super) languages: Vec<(String, i64)>,
    /// Those of [`Task`].
    tasks: [Option<i64>; 2],
    /// The latest initial timestamp in steps.
    max_initial: Option<usize>,
    /// `[layer, head]`s of the cross-attention that align words.
    pub(super) alignment_heads: Vec<[usize; 2]>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields {
    is_multilingual: Option<bool>,
    lang_to_id: Option<BTreeMap<String, i64>>,
    task_to_id: Option<BTreeMap<String, i64>>,
    no_timestamps_token_id: Option<i64>,
    prev_sot_token_id: Option<i64>,
    max_initial_timestamp_index: Option<usize>,
    alignment_heads: Option<Vec<[usize; 2]>>,
}

impl SpeechTokens {
    /// The tokens of a model; `generation` is the text of its `generation_config.json`.
    pub(super) fn read(
        generation: Option<&str>,
        tokenizer: &Tokenizer,
        config: &Config,
        settings: &Settings,
    ) -> Result<Self> {
        let wrong = |error| Cause::InFolder(format!("generation_config.json: {error}"));
        let fields: Fields =
            generation.map(serde_json::from_str).transpose().map_err(wrong)?.unwrap_or_default();
        let named = |name: &str| {
            tokenizer.target_id(&format!("<|{name}|>")).filter(|id| (*id as usize) < config.vocab)
        };
        let missing = |name: &str| {
            Error::from(Cause::InFolder(format!(
                "the model has no token <|{name}|>: expected a Whisper model with its tokenizer"
            )))
        };
        let no_timestamps = fields
            .no_timestamps_token_id
            .or_else(|| named("notimestamps"))
            .ok_or_else(|| missing("notimestamps"))?;
        let is_multilingual = fields.is_multilingual.unwrap_or(config.vocab >= MULTILINGUAL_VOCAB);
        let languages = match (is_multilingual, fields.lang_to_id) {
            (false, _) => Vec::new(),
            (true, Some(known)) => known
                .into_iter()
                .map(|(name, id)| (name.trim_matches(['<', '|', '>']).to_owned(), id))
                .collect(),
            (true, None) => LANGUAGES
                .iter()
                .filter_map(|(code, _)| Some(((*code).to_owned(), named(code)?)))
                .collect(),
        };
        let tasks = ["transcribe", "translate"].map(|task| {
            let known = fields.task_to_id.as_ref().and_then(|tasks| tasks.get(task).copied());
            known.or_else(|| named(task)).filter(|_| is_multilingual)
        });
        let stack = config.decoder;
        let alignment_heads = fields.alignment_heads.unwrap_or_else(|| {
            // OpenAI's default: all heads of the upper half.
            (stack.n_layers / 2..stack.n_layers)
                .flat_map(|layer| (0..stack.heads).map(move |head| [layer, head]))
                .collect()
        });
        if let Some([layer, head]) = alignment_heads
            .iter()
            .find(|[layer, head]| *layer >= stack.n_layers || *head >= stack.heads)
        {
            let found = format!("layer {layer}, head {head}");
            let message = format!(
                "alignment_heads: expected less than {} layers of {} heads, found {found}",
                stack.n_layers, stack.heads
            );
            return Err(wrong_setting(message));
        }
        let tokens = Self {
            start: settings.start_token,
            end: settings.eos_tokens.first().copied().unwrap_or(config.eos_token as i64),
            previous: fields
                .prev_sot_token_id
                .or_else(|| named("startofprev"))
                .unwrap_or(no_timestamps - 2),
            no_speech: no_timestamps - 1,
            no_timestamps,
            languages,
            tasks,
            max_initial: fields.max_initial_timestamp_index,
            alignment_heads,
        };
        let used = [tokens.start, tokens.end, tokens.previous, tokens.no_speech, no_timestamps + 1];
        match used
            .into_iter()
            .chain(tokens.languages.iter().map(|(_, id)| *id))
            .find(|id| !(0..config.vocab as i64).contains(id))
        {
            Some(id) => Err(wrong_setting(format!(
                "the token {id} is outside the vocabulary of {}",
                config.vocab
            ))),
            None => Ok(tokens),
        }
    }

    /// Whether the model reads several languages.
    pub(super) fn is_multilingual(&self) -> bool {
        !self.languages.is_empty()
    }

    /// The token of time 0.
    pub(super) fn first_timestamp(&self) -> i64 {
        self.no_timestamps + 1
    }

    /// `max_initial` is the latest initial timestamp, in steps, of a model that does not say one.
    pub(super) fn rules(&self, max_initial: Option<usize>) -> TimestampRules {
        TimestampRules {
            no_timestamps: self.no_timestamps,
            first: self.first_timestamp(),
            max_initial: self.max_initial.or(max_initial),
        }
    }

    /// The code of a language given by code or English name.
    pub(super) fn language(&self, named: &str) -> Result<String> {
        let named = named.to_lowercase();
        let code = LANGUAGES
            .iter()
            .find(|(code, names)| *code == named || names.split('|').any(|name| name == named));
        let code = code.map_or(named.as_str(), |(code, _)| code);
        if !self.is_multilingual() {
            let message = format!("expected en, found {named}: the model is English-only");
            return if code == "en" {
                Ok(code.into())
            } else {
                Err(Error::wrong_option("language", message))
            };
        }
        match self.languages.iter().any(|(known, _)| known == code) {
            true => Ok(code.into()),
            false => {
                let known: Vec<_> = self.languages.iter().map(|(code, _)| code.as_str()).collect();
                Err(Error::wrong_option(
                    "language",
                    format!("expected one of {}, found {named}", known.join(", ")),
                ))
            }
        }
    }

    /// What precedes the text of a window, in the order of faster-whisper: hot words, the end of
    /// earlier text, and `prompt`. Earlier text gives way to hot words where less than a quarter of
    /// the positions would be left.
    pub(super) fn start_of_window(
        &self,
        [hotwords, previous, prompt]: [&[i64]; 3],
        positions: usize,
    ) -> Vec<i64> {
        let mut start = Vec::new();
        if !hotwords.is_empty() || !previous.is_empty() {
            start.push(self.previous);
            start.extend(hotwords);
            let room = (positions - positions / 4)
                .saturating_sub(start.len() + prompt.len())
                .min(longest_part(positions));
            start.extend(&previous[previous.len().saturating_sub(room)..]);
        }
        start.extend(prompt);
        start
    }

    /// The prompt of a window: start, language, task, and the token that says that there are no
    /// timestamps.
    pub(super) fn prompt(&self, language: &str, task: Task, timestamps: bool) -> Result<Vec<i64>> {
        let mut prompt = vec![self.start];
        if self.is_multilingual() {
            prompt.extend(
                self.languages.iter().find(|(code, _)| code == language).map(|(_, id)| *id),
            );
            prompt.extend(self.tasks[usize::from(task == Task::Translate)]);
        } else if task == Task::Translate {
            return Err(Error::wrong_option(
                "task",
                "the model is English-only and does not translate",
            ));
        }
        prompt.extend((!timestamps).then_some(self.no_timestamps));
        Ok(prompt)
    }
}

/// The most tokens of earlier text, and of hot words, before a window.
pub(super) fn longest_part(positions: usize) -> usize {
    (positions / 2).saturating_sub(1)
}

fn wrong_setting(message: String) -> Error {
    Cause::InFolder(format!("generation_config.json: {message}")).into()
}
