//! The special tokens of Whisper (Radford et al. 2022, section 2.3), from `generation_config.json`
//! or the tokenizer.

use super::languages::LANGUAGES;
use crate::error::{Cause, Error, Result};
use cognate_generate::{Settings, TimestampRules};
use cognate_model::Config;
use cognate_text::Tokenizer;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
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
    /// The language and the task of the model's author.
    pub(super) language: Option<String>,
    pub(super) task: Option<Task>,
    /// What OpenAI's code never writes: [`symbols`], and above the end special tokens.
    pub(super) unspoken: Vec<i64>,
    /// The latest initial timestamp in steps.
    max_initial: Option<usize>,
    /// `[layer, head]`s of the cross-attention that align words.
    pub(super) alignment_heads: Vec<[usize; 2]>,
}

/// What `generation_config.json` says.
#[derive(Default)]
struct Fields {
    is_multilingual: Option<bool>,
    language: Option<String>,
    task: Option<Task>,
    /// Tokens by position: the language at 1, the task at 2.
    forced_decoder_ids: Option<Vec<(usize, Option<i64>)>>,
    lang_to_id: Option<BTreeMap<String, i64>>,
    task_to_id: Option<BTreeMap<String, i64>>,
    no_timestamps_token_id: Option<i64>,
    prev_sot_token_id: Option<i64>,
    max_initial_timestamp_index: Option<usize>,
    alignment_heads: Option<Vec<[usize; 2]>>,
}

impl Fields {
    fn read(text: &str) -> Result<Self> {
        let object: Value =
            serde_json::from_str(text).map_err(|error| wrong_setting(error.to_string()))?;
        Ok(Self {
            is_multilingual: field(&object, "is_multilingual")?,
            language: field(&object, "language")?,
            task: field(&object, "task")?,
            forced_decoder_ids: field(&object, "forced_decoder_ids")?,
            lang_to_id: field(&object, "lang_to_id")?,
            task_to_id: field(&object, "task_to_id")?,
            no_timestamps_token_id: field(&object, "no_timestamps_token_id")?,
            prev_sot_token_id: field(&object, "prev_sot_token_id")?,
            max_initial_timestamp_index: field(&object, "max_initial_timestamp_index")?,
            alignment_heads: field(&object, "alignment_heads")?,
        })
    }
}

/// A field of an object; its error names it.
fn field<T: DeserializeOwned>(object: &Value, name: &str) -> Result<Option<T>> {
    Option::deserialize(&object[name]).map_err(|error| {
        let message = error.to_string();
        let found = message.replace("unknown variant", "found").replace("invalid type:", "found");
        wrong_setting(format!("{name}: {found}"))
    })
}

impl SpeechTokens {
    /// The tokens of a model; `generation` is the text of its `generation_config.json`.
    pub(super) fn read(
        generation: Option<&str>,
        tokenizer: &Tokenizer,
        config: &Config,
        settings: &Settings,
    ) -> Result<Self> {
        let fields = generation.map(Fields::read).transpose()?.unwrap_or_default();
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
        let outside = |id: i64| {
            let n = config.vocab;
            wrong_setting(format!("the token {id} is outside the vocabulary of {n}"))
        };
        let is_inside = |id: &i64| (0..config.vocab as i64).contains(id);
        if !is_inside(&no_timestamps) {
            return Err(outside(no_timestamps));
        }
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
        let forced = |position: usize| {
            let mut tokens = fields.forced_decoder_ids.iter().flatten();
            tokens.find(|(place, _)| *place == position).and_then(|(_, id)| *id)
        };
        let forced_language = || {
            let id = forced(1)?;
            Some(languages.iter().find(|(_, known)| *known == id)?.0.clone())
        };
        let translates = tasks[1].is_some() && forced(2) == tasks[1];
        let mut tokens = Self {
            language: fields.language.or_else(forced_language).filter(|_| is_multilingual),
            task: fields.task.or(translates.then_some(Task::Translate)).filter(|_| is_multilingual),
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
            unspoken: Vec::new(),
            max_initial: fields.max_initial_timestamp_index,
            alignment_heads,
        };
        if let Some(language) = &tokens.language {
            let code = tokens.language(language.trim_matches(['<', '|', '>']));
            tokens.language = Some(code.map_err(|error| wrong_setting(error.to_string()))?);
        }
        tokens.unspoken = symbols(tokenizer)?;
        tokens.unspoken.retain(|id| *id < tokens.end);
        let special = ["translate", "transcribe", "startoflm"].map(named);
        tokens.unspoken.extend([tokens.start, tokens.previous, tokens.no_speech]);
        tokens.unspoken.extend(special.into_iter().flatten());
        let used = [tokens.start, tokens.end, tokens.previous, tokens.no_speech, no_timestamps + 1];
        let of_languages = tokens.languages.iter().map(|(_, id)| *id);
        match used.into_iter().chain(of_languages).find(|id| !is_inside(id)) {
            Some(id) => Err(outside(id)),
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
    pub(super) fn prompt(
        &self,
        language: &str,
        task: Option<Task>,
        timestamps: bool,
    ) -> Result<Vec<i64>> {
        let translates = task == Some(Task::Translate);
        let mut prompt = vec![self.start];
        if self.is_multilingual() {
            prompt.extend(
                self.languages.iter().find(|(code, _)| code == language).map(|(_, id)| *id),
            );
            prompt.extend(self.tasks[usize::from(translates)]);
        } else if translates {
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

/// The tokens of symbols that nobody speaks, by OpenAI's list: brackets, signs and notes, alone or
/// after a space, if they are one token, and of dashes and quotation marks that begin a word.
fn symbols(tokenizer: &Tokenizer) -> Result<Vec<i64>> {
    const SIGNS: &str = "\"#()*+/:;<=>@[\\]^_`{|}~「」『』";
    const GROUPS: &str = "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪";
    /// Their first token stands for all of them.
    const NOTES: &str = "♩♪♫♬♭♮♯";
    let first = |text: &str| -> Result<_> { Ok(tokenizer.encode_target(text)?.first().copied()) };
    let only = |text: &str| -> Result<Option<i64>> {
        let ids = tokenizer.encode_target(text)?;
        Ok(ids.first().copied().filter(|_| ids.len() == 1))
    };
    let signs = SIGNS.chars().map(String::from).chain(GROUPS.split(' ').map(String::from));
    let mut ids: Vec<Option<i64>> = vec![first(" -")?, first(" '")?];
    for sign in signs {
        ids.extend([only(&sign)?, only(&format!(" {sign}"))?]);
    }
    for note in NOTES.chars() {
        ids.extend([first(&note.to_string())?, first(&format!(" {note}"))?]);
    }
    let mut ids: Vec<i64> = ids.into_iter().flatten().collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

fn wrong_setting(message: String) -> Error {
    Cause::InFolder(format!("generation_config.json: {message}")).into()
}
