//! Reads decoding settings from `generation_config.json`, or from `config.json`.
//!
//! Fields and defaults are those of transformers' `GenerationConfig`. As in transformers 4.57,
//! `generation_config.json` is used if it exists, unless it was derived from `config.json`
//! (`_from_model_config`) and `config.json` sets decoding. Unsupported settings are rejected.

use crate::error::Cause;
use crate::settings::{A_FACTOR, FACTORS};
use crate::{EarlyStopping, Error, Result, Sampling, Settings};
use cognate_model::{Config, Front, Parts};
use serde_json::{Map, Value};

/// The maximum number of new tokens if neither the settings nor the model have a limit.
const UNLIMITED: usize = 512;

/// Limits of a file, since memory grows with them.
const MOST_BEAMS: usize = 1 << 10;
const MOST_SEQUENCES: usize = 1 << 16;

const GENERATION: &str = "generation_config.json";
const CONFIG: &str = "config.json";

/// The fields that transformers writes into `generation_config.json` when it derives it from
/// `config.json`, with their defaults.
const DERIVED: [(&str, &str); 22] = [
    ("max_length", "20"),
    ("min_length", "0"),
    ("do_sample", "false"),
    ("early_stopping", "false"),
    ("num_beams", "1"),
    ("num_beam_groups", "1"),
    ("diversity_penalty", "0.0"),
    ("temperature", "1.0"),
    ("top_k", "50"),
    ("top_p", "1.0"),
    ("typical_p", "1.0"),
    ("repetition_penalty", "1.0"),
    ("length_penalty", "1.0"),
    ("no_repeat_ngram_size", "0"),
    ("encoder_no_repeat_ngram_size", "0"),
    ("bad_words_ids", ""),
    ("num_return_sequences", "1"),
    ("forced_bos_token_id", ""),
    ("forced_eos_token_id", ""),
    ("remove_invalid_values", "false"),
    ("suppress_tokens", ""),
    ("begin_suppress_tokens", ""),
];

/// The defaults of decoding in a family's `config.json`: those of transformers' classes.
const FAMILIES: [(&str, &str, u64); 8] = [
    ("bart", "forced_eos_token_id", 2),
    ("mbart", "forced_eos_token_id", 2),
    ("plbart", "forced_eos_token_id", 2),
    ("blenderbot", "forced_eos_token_id", 2),
    ("blenderbot", "encoder_no_repeat_ngram_size", 3),
    ("blenderbot-small", "forced_eos_token_id", 2),
    ("marian", "forced_eos_token_id", 0),
    ("pegasus", "forced_eos_token_id", 1),
];

const ZERO: &[&str] = &["0", "0.0"];
const ONE: &[&str] = &["1", "1.0"];

/// Unsupported fields with the values that have no effect.
const NEUTRAL: [(&str, &[&str]); 19] = [
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
    ("top_h", &[]),
    ("low_memory", &["false"]),
    ("prompt_lookup_num_tokens", &[]),
    ("assistant_early_exit", &[]),
    ("forced_decoder_ids", &["[]"]),
];

impl Settings {
    /// The settings of a checkpoint: the texts of its `config.json` and, if it has one, its
    /// `generation_config.json`. Tokens that `config.json` does not name are `model`'s. The default
    /// limit is the number of the decoder's positions, or 512 (transformers: 20). A
    /// `generation_config.json` without an end token decodes to the limit.
    ///
    /// # Errors
    /// If a text is not JSON, a field has the wrong type or is not supported, or
    /// `generation_config.json` has no start token. The message names file and field.
    pub fn from_json(config: &str, generation: Option<&str>, model: &Config) -> Result<Self> {
        let files = File::followed(config, generation)?;
        // Of speech models it is the prompt, which is chosen elsewhere.
        let is_text = |(field, _): &(&str, &[&str])| {
            model.front == Front::Tokens || *field != "forced_decoder_ids"
        };
        for (field, neutral) in NEUTRAL.into_iter().filter(is_text) {
            if let Some(found) =
                files.find(field).filter(|found| !neutral.contains(&found.to_string().as_str()))
            {
                return Err(refuse(files.name, field, found, "the default; leave it out"));
            }
        }
        let mut eos_tokens = files.tokens("eos_token_id")?;
        if eos_tokens.is_empty() && files.name == CONFIG {
            eos_tokens.push(model.eos_token as i64);
        }
        let pad_token = files.known("pad_token_id", model.vocab.max(model.source_vocab))?;
        // Lengths without `new` in their names count the start token and a prefix; the others have
        // precedence.
        let positions = model.max_positions.map_or(usize::MAX, |positions| positions + 1);
        let (max_new_tokens, max_length) =
            match (files.size("max_new_tokens")?, files.size("max_length")?) {
                (Some(new), _) => (new, positions),
                (None, Some(length)) => (length - 1, length),
                (None, None) => (model.max_positions.unwrap_or(UNLIMITED), positions),
            };
        let min_length = match files.count("min_new_tokens")? {
            Some(_) => 0,
            None => files.count("min_length")?.unwrap_or(0),
        };
        Ok(Self {
            start_token: files.start_token(model)?,
            pad_token: pad_token.unwrap_or(match files.name {
                GENERATION => eos_tokens.first().copied().unwrap_or(model.pad_token as i64),
                _ => model.pad_token as i64,
            }),
            eos_tokens,
            forced_bos_token: files.known("forced_bos_token_id", model.vocab)?,
            forced_eos_token: files.known("forced_eos_token_id", model.vocab)?,
            bad_words: files.words("bad_words_ids")?,
            suppressed_tokens: files.tokens("suppress_tokens")?,
            suppressed_first_tokens: files.tokens("begin_suppress_tokens")?,
            repetition_penalty: files.factor("repetition_penalty")?.unwrap_or(1.0),
            encoder_repetition_penalty: files.factor("encoder_repetition_penalty")?.unwrap_or(1.0),
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
            timestamps: None,
            observe: None,
        })
    }
}

/// The file with the settings of decoding.
struct File {
    name: &'static str,
    fields: Map<String, Value>,
}

impl File {
    /// One of the two files, by the rules of transformers' `generate`.
    fn followed(config: &str, generation: Option<&str>) -> Result<Self> {
        let mut config = parse(CONFIG, config)?;
        let generation = generation.map(|text| parse(GENERATION, text)).transpose()?;
        let family =
            config.get("model_type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let defaults: Vec<_> = FAMILIES.into_iter().filter(|(of, ..)| *of == family).collect();
        let is_set = |(field, usual): &(&str, &str)| {
            let of_family =
                defaults.iter().find(|(_, of, _)| of == field).map(|(.., value)| value.to_string());
            let found = config.get(*field).filter(|value| !value.is_null());
            found.is_some_and(|value| !is_same(value, of_family.as_deref().unwrap_or(usual)))
        };
        match generation {
            Some(fields)
                if fields.get("_from_model_config") != Some(&Value::Bool(true))
                    || !DERIVED.iter().any(is_set) =>
            {
                Ok(Self { name: GENERATION, fields })
            }
            _ => {
                for (_, field, value) in defaults {
                    config.entry(field).or_insert(value.into());
                }
                Ok(Self { name: CONFIG, fields: config })
            }
        }
    }

    /// The value of a field, if it is not null.
    fn find(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        field: &'static str,
        expected: &'static str,
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        self.find(field)
            .map(|value| convert(value).ok_or_else(|| refuse(self.name, field, value, expected)))
            .transpose()
    }

    /// The start token of decoding.
    fn start_token(&self, model: &Config) -> Result<i64> {
        const START: &str = "decoder_start_token_id";
        match (self.known(START, model.vocab)?, self.name) {
            (Some(token), _) => Ok(token),
            // The start of a decoder-only model is its prompt.
            (None, GENERATION) if model.parts != Parts::Decoder => {
                let bos = self.known("bos_token_id", model.vocab)?;
                bos.ok_or_else(|| {
                    refuse(
                        GENERATION,
                        START,
                        &Value::Null,
                        "the id of the token that decoding starts from, here or as bos_token_id",
                    )
                })
            }
            (None, _) => Ok(model.start_token as i64),
        }
    }

    /// A token of the decoder's vocabulary.
    fn known(&self, field: &'static str, vocab: usize) -> Result<Option<i64>> {
        let is_known = |token: &i64| usize::try_from(*token).is_ok_and(|token| token < vocab);
        self.read(field, "the id of a token that the model has", |value| {
            as_token(value).filter(is_known)
        })
    }

    fn beams(&self) -> Result<Option<usize>> {
        self.read("num_beams", "a number from 1 to 1024", |value| count_to(value, MOST_BEAMS))
    }

    fn returned(&self) -> Result<Option<usize>> {
        self.read("num_return_sequences", "a number from 1 to 65536", |value| {
            count_to(value, MOST_SEQUENCES)
        })
    }

    fn tokens(&self, field: &'static str) -> Result<Vec<i64>> {
        let convert = |value: &Value| match value {
            Value::Array(tokens) => tokens.iter().map(as_token).collect(),
            single => as_token(single).map(|token| vec![token]),
        };
        Ok(self.read(field, "a token id or a list of them", convert)?.unwrap_or_default())
    }

    fn size(&self, field: &'static str) -> Result<Option<usize>> {
        let convert = |value: &Value| {
            value.as_u64().filter(|&size| size > 0).and_then(|size| usize::try_from(size).ok())
        };
        self.read(field, "a positive number", convert)
    }

    /// A number that may be zero.
    fn count(&self, field: &'static str) -> Result<Option<usize>> {
        self.read(field, "a number of tokens", |value| {
            value.as_u64().and_then(|size| usize::try_from(size).ok())
        })
    }

    fn number(&self, field: &'static str) -> Result<Option<f32>> {
        self.read(field, "a number", |value| value.as_f64().map(|number| number as f32))
    }

    fn factor(&self, field: &'static str) -> Result<Option<f32>> {
        let convert = |value: &Value| {
            value.as_f64().map(|number| number as f32).filter(|number| FACTORS.contains(number))
        };
        self.read(field, A_FACTOR, convert)
    }

    /// A number from 0 to 1.
    fn share(&self, field: &'static str) -> Result<Option<f32>> {
        let convert = |value: &Value| {
            value.as_f64().map(|number| number as f32).filter(|share| (0.0..=1.0).contains(share))
        };
        self.read(field, "a number from 0 to 1", convert)
    }

    fn flag(&self, field: &'static str) -> Result<bool> {
        Ok(self.read(field, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    /// Sequences of at least one token each.
    fn words(&self, field: &'static str) -> Result<Vec<Vec<i64>>> {
        let word = |word: &Value| {
            word.as_array().filter(|tokens| !tokens.is_empty())?.iter().map(as_token).collect()
        };
        Ok(self
            .read(field, "a list of lists of token ids", |value| {
                value.as_array()?.iter().map(word).collect()
            })?
            .unwrap_or_default())
    }

    /// The settings of sampling, if `do_sample` is set; otherwise its fields are ignored, as in
    /// transformers.
    fn sampling(&self) -> Result<Option<Sampling>> {
        if !self.flag("do_sample")? {
            return Ok(None);
        }
        let standard = Sampling::default();
        Ok(Some(Sampling {
            temperature: self.factor("temperature")?.unwrap_or(standard.temperature),
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
    value
        .as_u64()
        .and_then(|count| usize::try_from(count).ok())
        .filter(|count| (1..=limit).contains(count))
}

fn as_token(value: &Value) -> Option<i64> {
    value.as_i64().filter(|&token| token >= 0)
}

/// Whether a value equals the text; numbers with and without a fraction are equal.
fn is_same(value: &Value, written: &str) -> bool {
    let text = value.to_string();
    text == written || value.as_f64().is_some_and(|number| written.parse() == Ok(number))
}

/// The object of a JSON text.
fn parse(file: &'static str, text: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text)
        .map_err(|error| Cause::Json { file, message: error.to_string() }.into())
}

fn refuse(file: &'static str, field: &'static str, found: &Value, expected: &'static str) -> Error {
    Cause::Setting { file, field, found: found.to_string(), expected }.into()
}
