//! `generation_config.json`: how to decode.
//!
//! Fields and defaults are those of transformers' `GenerationConfig`; what a checkpoint leaves out comes from its
//! `config.json`. What is set there and not supported is refused, never ignored.

use crate::error::Cause;
use crate::{Error, Result};
use cognate_model::Config;
use serde_json::Value;

/// How to decode.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The token that decoding starts from.
    pub start_token: i64,
    /// Tokens that end a sentence.
    pub eos_tokens: Vec<i64>,
    /// The token that fills short sources of a batch.
    pub pad_token: i64,
    /// The token that must come first, if any.
    pub forced_bos_token: Option<i64>,
    /// The token that must come last where the limit cuts a sentence, if any.
    pub forced_eos_token: Option<i64>,
    /// Tokens that are never generated.
    pub banned_tokens: Vec<i64>,
    /// The fewest tokens that are generated before one may end the sentence.
    pub min_new_tokens: usize,
    /// The most tokens that are generated, the end token included; at least 1.
    pub max_new_tokens: usize,
    /// Hypotheses kept in beam search; 1 decodes greedily.
    pub num_beams: usize,
    /// The power of the length by which beam search divides log-probabilities.
    pub length_penalty: f32,
    /// When beam search stops.
    pub early_stopping: EarlyStopping,
}

/// When beam search takes a sentence for done (transformers' `early_stopping`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyStopping {
    /// When the best running hypothesis, at its present length, cannot beat the worst finished one.
    #[default]
    Heuristic,
    /// As soon as there are as many finished hypotheses as beams.
    Full,
    /// When no running hypothesis, at any length, can beat the worst finished one.
    Never,
}

/// New tokens where neither the settings nor the model have a limit.
const UNLIMITED: usize = 512;

const GENERATION: &str = "generation_config.json";
const CONFIG: &str = "config.json";

/// Fields with the values for which nothing needs to be done.
const NEUTRAL: [(&str, &[&str]); 10] = [
    ("do_sample", &["false"]),
    ("num_beam_groups", &["1"]),
    ("penalty_alpha", &[]),
    ("repetition_penalty", &["1", "1.0"]),
    ("encoder_repetition_penalty", &["1", "1.0"]),
    ("no_repeat_ngram_size", &["0"]),
    ("encoder_no_repeat_ngram_size", &["0"]),
    ("suppress_tokens", &["[]"]),
    ("begin_suppress_tokens", &["[]"]),
    ("force_words_ids", &["[]"]),
];

impl Settings {
    /// The settings of a checkpoint: the texts of its `config.json` and, if it has one, its `generation_config.json`.
    /// Where they name no token, `model` does; where they name no limit, as many tokens are generated as the decoder has
    /// positions, or 512 where it has no limit either.
    ///
    /// # Errors
    /// If a text is no JSON, a field has the wrong type, or asks for what is not supported; the message names file and field.
    pub fn from_json(config: &str, generation: Option<&str>, model: &Config) -> Result<Self> {
        let files = Files { config: parse(CONFIG, config)?, generation: generation.map(|text| parse(GENERATION, text)).transpose()? };
        for (field, neutral) in NEUTRAL {
            if let Some((file, found)) = files.find(field).filter(|(_, found)| !neutral.contains(&found.to_string().as_str())) {
                return Err(refuse(file, field, found, "the default; leave it out"));
            }
        }
        let mut eos_tokens = files.tokens("eos_token_id")?;
        if eos_tokens.is_empty() {
            eos_tokens.push(model.eos_token as i64);
        }
        // The start token counts in lengths without `new` in their names.
        let min_length = files.count("min_length")?.unwrap_or(0).saturating_sub(1);
        let limit = match (files.size("max_new_tokens")?, files.size("max_length")?) {
            (Some(new), _) => new,
            (None, Some(length)) => length - 1,
            (None, None) => model.max_positions.unwrap_or(UNLIMITED),
        };
        Ok(Self {
            start_token: files.token("decoder_start_token_id")?.unwrap_or(model.start_token as i64),
            pad_token: files.token("pad_token_id")?.unwrap_or(model.pad_token as i64),
            eos_tokens,
            forced_bos_token: files.token("forced_bos_token_id")?,
            forced_eos_token: files.token("forced_eos_token_id")?,
            banned_tokens: files.banned()?,
            min_new_tokens: files.count("min_new_tokens")?.unwrap_or(min_length),
            max_new_tokens: limit.clamp(1, model.max_positions.unwrap_or(usize::MAX)),
            num_beams: files.size("num_beams")?.unwrap_or(1),
            length_penalty: files.number("length_penalty")?.unwrap_or(1.0),
            early_stopping: files.early_stopping()?,
        })
    }
}

struct Files {
    config: Value,
    generation: Option<Value>,
}

type Found<'a> = Option<(&'static str, &'a Value)>;

impl Files {
    /// The field's value that is not null, from `generation_config.json` before `config.json`.
    fn find(&self, field: &str) -> Found<'_> {
        let generation = self.generation.as_ref().and_then(|value| value.get(field)).map(|value| (GENERATION, value));
        let config = self.config.get(field).map(|value| (CONFIG, value));
        generation.into_iter().chain(config).find(|(_, value)| !value.is_null())
    }

    fn read<T>(&self, field: &'static str, expected: &'static str, convert: impl Fn(&Value) -> Option<T>) -> Result<Option<T>> {
        self.find(field).map(|(file, value)| convert(value).ok_or_else(|| refuse(file, field, value, expected))).transpose()
    }

    fn token(&self, field: &'static str) -> Result<Option<i64>> {
        self.read(field, "a token id", as_token)
    }

    fn tokens(&self, field: &'static str) -> Result<Vec<i64>> {
        let convert = |value: &Value| match value {
            Value::Array(tokens) => tokens.iter().map(as_token).collect(),
            single => as_token(single).map(|token| vec![token]),
        };
        Ok(self.read(field, "a token id or a list of them", convert)?.unwrap_or_default())
    }

    fn size(&self, field: &'static str) -> Result<Option<usize>> {
        let convert = |value: &Value| value.as_u64().filter(|&size| size > 0).and_then(|size| usize::try_from(size).ok());
        self.read(field, "a positive number", convert)
    }

    /// A number that may be zero.
    fn count(&self, field: &'static str) -> Result<Option<usize>> {
        self.read(field, "a number of tokens", |value| value.as_u64().and_then(|size| usize::try_from(size).ok()))
    }

    fn number(&self, field: &'static str) -> Result<Option<f32>> {
        self.read(field, "a number", |value| value.as_f64().map(|number| number as f32))
    }

    fn banned(&self) -> Result<Vec<i64>> {
        let convert = |value: &Value| {
            let words = value.as_array()?.iter();
            words.map(|word| word.as_array().filter(|tokens| tokens.len() == 1).and_then(|tokens| as_token(&tokens[0]))).collect()
        };
        Ok(self.read("bad_words_ids", "a list of one-token lists", convert)?.unwrap_or_default())
    }

    fn early_stopping(&self) -> Result<EarlyStopping> {
        let convert = |value: &Value| match value {
            Value::Bool(false) => Some(EarlyStopping::Heuristic),
            Value::Bool(true) => Some(EarlyStopping::Full),
            Value::String(text) if text == "never" => Some(EarlyStopping::Never),
            _ => None,
        };
        Ok(self.read("early_stopping", "false, true or \"never\"", convert)?.unwrap_or_default())
    }
}

fn as_token(value: &Value) -> Option<i64> {
    value.as_i64().filter(|&token| token >= 0)
}

/// The text's object; anything else would look like one without fields.
fn parse(file: &'static str, text: &str) -> Result<Value> {
    let fields = serde_json::from_str::<serde_json::Map<String, Value>>(text);
    fields.map(Value::Object).map_err(|error| Cause::Json { file, message: error.to_string() }.into())
}

fn refuse(file: &'static str, field: &'static str, found: &Value, expected: &'static str) -> Error {
    Cause::Setting { file, field, found: found.to_string(), expected }.into()
}

impl Settings {
    /// Takes from the scores `[vocab]` of new token number `step` what these settings forbid there.
    pub(crate) fn constrain(&self, step: usize, scores: &mut [f32]) {
        let mut set = |token: i64, value| {
            if let Some(score) = usize::try_from(token).ok().and_then(|token| scores.get_mut(token)) {
                *score = value;
            }
        };
        self.banned_tokens.iter().for_each(|&token| set(token, f32::NEG_INFINITY));
        if step < self.min_new_tokens {
            self.eos_tokens.iter().for_each(|&token| set(token, f32::NEG_INFINITY));
        }
        let first = self.forced_bos_token.filter(|_| step == 0);
        let last = self.forced_eos_token.filter(|_| step + 1 == self.max_new_tokens);
        if let Some(forced) = last.or(first) {
            scores.fill(f32::NEG_INFINITY);
            if let Some(score) = usize::try_from(forced).ok().and_then(|token| scores.get_mut(token)) {
                *score = 0.0;
            }
        }
    }
}
