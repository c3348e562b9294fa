//! `generation_config.json`, and what a checkpoint's `config.json` says of decoding.
//!
//! Fields and defaults are those of transformers' `GenerationConfig`; what a checkpoint leaves out comes from its
//! `config.json`. What is set there and not supported is refused, never ignored.

use crate::error::Cause;
use crate::{EarlyStopping, Error, Result, Sampling, Settings};
use cognate_model::Config;
use serde_json::Value;

/// New tokens where neither the settings nor the model have a limit.
const UNLIMITED: usize = 512;

/// Memory grows with them; a file may not ask for more.
const MOST_BEAMS: usize = 1 << 10;
const MOST_SEQUENCES: usize = 1 << 16;

const GENERATION: &str = "generation_config.json";
const CONFIG: &str = "config.json";

const ZERO: &[&str] = &["0", "0.0"];
const ONE: &[&str] = &["1", "1.0"];

/// Fields that nothing here follows, with the values for which nothing needs to be done.
const NEUTRAL: [(&str, &[&str]); 18] = [
    ("num_beam_groups", ONE),
    ("diversity_penalty", ZERO),
    ("penalty_alpha", ZERO),
    ("force_words_ids", &["[]"]),
    ("constraints", &["[]"]),
    ("sequence_bias", &[]),
    ("guidance_scale", ONE),
    ("remove_invalid_values", &["false"]),
    ("exponential_decay_length_penalty", &[]),
    ("token_healing", &["false"]),
    ("stop_strings", &["[]"]),
    ("max_time", &[]),
    ("watermarking_config", &[]),
    ("dola_layers", &[]),
    ("low_memory", &["false"]),
    ("prompt_lookup_num_tokens", &[]),
    ("assistant_early_exit", &[]),
    ("forced_decoder_ids", &["[]"]),
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
        // The start token and a prefix count in lengths without `new` in their names; fields with it come first.
        let positions = model.max_positions.map_or(usize::MAX, |positions| positions + 1);
        let (max_new_tokens, max_length) = match (files.size("max_new_tokens")?, files.size("max_length")?) {
            (Some(new), _) => (new, positions),
            (None, Some(length)) => (length - 1, length),
            (None, None) => (model.max_positions.unwrap_or(UNLIMITED), positions),
        };
        let min_length = match files.count("min_new_tokens")? {
            Some(_) => 0,
            None => files.count("min_length")?.unwrap_or(0),
        };
        Ok(Self {
            start_token: files.known("decoder_start_token_id", model.vocab)?.unwrap_or(model.start_token as i64),
            pad_token: files.known("pad_token_id", model.vocab.max(model.source_vocab))?.unwrap_or(model.pad_token as i64),
            eos_tokens,
            forced_bos_token: files.known("forced_bos_token_id", model.vocab)?,
            forced_eos_token: files.known("forced_eos_token_id", model.vocab)?,
            bad_words: files.words("bad_words_ids")?,
            suppressed_tokens: files.tokens("suppress_tokens")?,
            suppressed_first_tokens: files.tokens("begin_suppress_tokens")?,
            repetition_penalty: files.positive("repetition_penalty")?.unwrap_or(1.0),
            encoder_repetition_penalty: files.positive("encoder_repetition_penalty")?.unwrap_or(1.0),
            no_repeat_ngram_size: files.count("no_repeat_ngram_size")?.unwrap_or(0),
            encoder_no_repeat_ngram_size: files.count("encoder_no_repeat_ngram_size")?.unwrap_or(0),
            renormalize: files.flag("renormalize_logits")?,
            min_length,
            min_new_tokens: files.count("min_new_tokens")?.unwrap_or(0),
            max_length: max_length.min(positions),
            max_new_tokens: max_new_tokens.clamp(1, model.max_positions.unwrap_or(usize::MAX)),
            num_beams: files.beams()?.unwrap_or(1),
            length_penalty: files.number("length_penalty")?.unwrap_or(1.0),
            early_stopping: files.early_stopping()?,
            num_return_sequences: files.returned()?.unwrap_or(1),
            sampling: files.sampling()?,
            scores: false,
            alignment_layer: None,
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

    /// A token that the decoder may be given.
    fn known(&self, field: &'static str, vocab: usize) -> Result<Option<i64>> {
        let is_known = |token: &i64| usize::try_from(*token).is_ok_and(|token| token < vocab);
        self.read(field, "the id of a token that the model has", |value| as_token(value).filter(is_known))
    }

    fn beams(&self) -> Result<Option<usize>> {
        self.read("num_beams", "a number from 1 to 1024", |value| count_to(value, MOST_BEAMS))
    }

    fn returned(&self) -> Result<Option<usize>> {
        self.read("num_return_sequences", "a number from 1 to 65536", |value| count_to(value, MOST_SEQUENCES))
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

    fn positive(&self, field: &'static str) -> Result<Option<f32>> {
        let convert = |value: &Value| value.as_f64().map(|number| number as f32).filter(|&number| number > 0.0 && number.is_finite());
        self.read(field, "a number above 0", convert)
    }

    /// A number from 0 to 1.
    fn share(&self, field: &'static str) -> Result<Option<f32>> {
        let convert = |value: &Value| value.as_f64().map(|number| number as f32).filter(|share| (0.0..=1.0).contains(share));
        self.read(field, "a number from 0 to 1", convert)
    }

    fn flag(&self, field: &'static str) -> Result<bool> {
        Ok(self.read(field, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    /// Sequences of at least one token each.
    fn words(&self, field: &'static str) -> Result<Vec<Vec<i64>>> {
        let word = |word: &Value| word.as_array().filter(|tokens| !tokens.is_empty())?.iter().map(as_token).collect();
        Ok(self.read(field, "a list of lists of token ids", |value| value.as_array()?.iter().map(word).collect())?.unwrap_or_default())
    }

    /// How to draw, if `do_sample` asks for it; else its fields mean nothing, as in transformers.
    fn sampling(&self) -> Result<Option<Sampling>> {
        if !self.flag("do_sample")? {
            return Ok(None);
        }
        let standard = Sampling::default();
        Ok(Some(Sampling {
            temperature: self.positive("temperature")?.unwrap_or(standard.temperature),
            top_k: self.count("top_k")?.unwrap_or(standard.top_k),
            top_p: self.share("top_p")?.unwrap_or(standard.top_p),
            min_p: self.share("min_p")?.unwrap_or(standard.min_p),
            typical_p: self.share("typical_p")?.unwrap_or(standard.typical_p),
            epsilon_cutoff: self.share("epsilon_cutoff")?.unwrap_or(standard.epsilon_cutoff),
            eta_cutoff: self.share("eta_cutoff")?.unwrap_or(standard.eta_cutoff),
            seed: standard.seed,
        }))
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

fn count_to(value: &Value, limit: usize) -> Option<usize> {
    value.as_u64().and_then(|count| usize::try_from(count).ok()).filter(|count| (1..=limit).contains(count))
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
