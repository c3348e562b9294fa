//! Options of loading and decoding, with the names of the command's options.

use crate::error::{Error, ErrorKind, Result};
use crate::language::Languages;
use cognate_generate::{EarlyStopping, Sampling, Settings, alignment_layer};
use cognate_model::{Attentions, Config, Parts};
use cognate_runtime::{Device, Devices, Engine};
use cognate_text::Tokenizer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

/// Options of loading a model.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// The inference engine.
    pub engine: Engine,
    /// The devices of the engine, over which workers are spread. Several GPUs are not tested.
    pub device: Devices,
    /// The languages of a multilingual model.
    pub languages: Languages,
    /// The number of batches that are translated in parallel; by default the number of cores, or of
    /// GPUs. Those of a device share the weights.
    pub workers: Option<NonZeroUsize>,
    /// The number of threads of ONNX Runtime for each worker; by default 1 if `workers` is not set,
    /// else ONNX Runtime's choice.
    pub threads: Option<NonZeroUsize>,
    /// Ignore unused tensors of a checkpoint instead of rejecting it.
    pub ignore_unused: bool,
    /// Load a multilingual model without a target language; it can then decode any.
    pub allow_missing_language: bool,
    /// Move the weights into huge pages (Linux): faster, but it changes the memory mapping of the
    /// whole process.
    pub huge_pages: bool,
    /// The file of a lexical shortlist: translations have only the tokens that it allows the
    /// sentences of their batch, and the output layer is computed for these alone.
    pub shortlist: Option<PathBuf>,
}

impl LoadOptions {
    /// The number of workers: the given or the default one.
    pub fn n_workers(&self) -> NonZeroUsize {
        let one = NonZeroUsize::MIN;
        self.workers.unwrap_or_else(|| match self.device.are_gpus() {
            true => NonZeroUsize::new(self.device.all().len()).unwrap_or(one),
            false => thread::available_parallelism().unwrap_or(one),
        })
    }

    /// The number of threads of each worker; the engine's own choice if `None`.
    pub(crate) fn n_threads(&self) -> Option<NonZeroUsize> {
        self.threads
            .or((self.workers.is_none() && !self.device.are_gpus()).then_some(NonZeroUsize::MIN))
    }

    /// The options of the engine on a device.
    pub(crate) fn of_engine(&self, device: Device) -> cognate_runtime::Options {
        cognate_runtime::Options {
            device,
            threads: self.n_threads(),
            workers: Some(self.n_workers()),
            huge_pages: self.huge_pages,
            ..cognate_runtime::Options::default()
        }
    }

    /// Checks that the options do not contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        for (option, number) in [("workers", self.workers), ("threads", self.threads)] {
            if let Some(number) = number.filter(|number| number.get() > MOST_THREADS) {
                let message = format!("expected at most {MOST_THREADS}, found {number}");
                return Err(Error::wrong_option(option, message));
            }
        }
        let n_devices = self.device.all().len();
        if self.device.are_gpus() && self.workers.is_some_and(|workers| workers.get() > n_devices) {
            let message = format!(
                "expected at most {n_devices}, one for each GPU; increase batch_tokens to use it fully"
            );
            return Err(Error::wrong_option("workers", message));
        }
        Ok(())
    }
}

/// The maximum number of threads and of workers.
const MOST_THREADS: usize = 1_024;

/// The maximum number of hypotheses of a sentence, whose caches take memory.
const MOST_HYPOTHESES: usize = 256;

/// The names of tokens for unknown words.
pub(crate) const UNKNOWN: [&str; 3] = ["<unk>", "[UNK]", "__unk__"];

/// Options of decoding. The defaults are those of the model's `generation_config.json`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DecodingOptions {
    /// The number of hypotheses in beam search; 1 is greedy.
    #[serde(alias = "num_beams")]
    pub beams: Option<NonZeroUsize>,
    /// The maximum number of tokens of a translation.
    pub max_new_tokens: Option<NonZeroUsize>,
    /// The minimum number of tokens of a translation.
    pub min_new_tokens: Option<usize>,
    /// The minimum number of tokens of a translation, the start token included.
    pub min_length: Option<usize>,
    /// The number of translations of each sentence, at most `beams`; by default 1.
    #[serde(alias = "num_return_sequences")]
    pub n_best: Option<NonZeroUsize>,
    /// Compute scores of greedy and sampled translations too.
    pub scores: bool,
    /// Compute the source position of each token.
    pub alignments: bool,
    /// The exponent of the length by which beam search divides log-probabilities; values above 0
    /// favour long translations.
    pub length_penalty: Option<f32>,
    /// The stopping condition of beam search.
    #[serde(deserialize_with = "early_stopping")]
    pub early_stopping: Option<EarlyStopping>,
    /// The penalty of repeated tokens; values above 1 make them less likely.
    pub repetition_penalty: Option<f32>,
    /// The size of n-grams that do not repeat in a translation; 0 for none.
    pub no_repeat_ngram_size: Option<usize>,
    /// The size of n-grams of the sentence that do not occur in its translation; 0 for none.
    pub encoder_no_repeat_ngram_size: Option<usize>,
    /// Forbidden texts.
    pub bad_words: Vec<String>,
    /// Forbidden tokens.
    pub suppress_tokens: Vec<i64>,
    /// Forbid the unknown token.
    pub disable_unk: bool,
    /// Replace each unknown token of a translation by the source word that it attends to most.
    pub replace_unknowns: bool,
    /// The beginning of every translation.
    pub target_prefix: Option<String>,
    /// Sample each token; with beams, sample their continuations.
    #[serde(alias = "do_sample")]
    pub sample: bool,
    /// The divisor of logits before sampling, above 0; values below 1 sharpen the distribution.
    pub temperature: Option<f32>,
    /// Sample from this number of most probable tokens; 0 for all.
    pub top_k: Option<usize>,
    /// Sample from the most probable tokens with this total probability, above 0 and at most 1.
    pub top_p: Option<f32>,
    /// Sample from tokens of at least this share of the highest probability, from 0 to 1.
    pub min_p: Option<f32>,
    /// Sample from the tokens closest to the expected information with this total probability,
    /// above 0 and at most 1.
    pub typical_p: Option<f32>,
    /// Sample from tokens of at least this probability; 0 for all.
    pub epsilon_cutoff: Option<f32>,
    /// Sample from tokens above a probability that depends on the entropy (eta sampling); 0 for
    /// all.
    pub eta_cutoff: Option<f32>,
    /// The random seed of sampling.
    pub seed: Option<u64>,
}

/// transformers' values: `false`, `true` or `"never"`.
fn early_stopping<'de, D: Deserializer<'de>>(value: D) -> Result<Option<EarlyStopping>, D::Error> {
    match Value::deserialize(value)? {
        Value::Null => Ok(None),
        Value::Bool(false) => Ok(Some(EarlyStopping::Heuristic)),
        Value::Bool(true) => Ok(Some(EarlyStopping::Full)),
        Value::String(text) if text == "never" => Ok(Some(EarlyStopping::Never)),
        other => {
            Err(de::Error::custom(format_args!("expected true, false or \"never\", found {other}")))
        }
    }
}

/// Options of a type by name.
///
/// # Errors
/// If a name is unknown, or a value has another type; the error names it.
pub(crate) fn read_options<T: DeserializeOwned>(options: &Map<String, Value>) -> Result<T> {
    let read = |options: Map<String, Value>| serde_json::from_value(options.into());
    read(options.clone()).map_err(|error| {
        // The error of one option alone is about that one.
        let one = |(name, value): (&String, &Value)| {
            let error =
                read(Map::from_iter([(name.clone(), value.clone())])).map(|_: T| ()).err()?;
            let is_named = error.to_string().starts_with("unknown field");
            Some(if is_named { error.to_string() } else { format!("{name}: {error}") })
        };
        Error::new(
            ErrorKind::Options,
            options.iter().find_map(one).unwrap_or_else(|| error.to_string()),
        )
    })
}

/// `options` over `earlier` ones, which they replace whichever of their names they have; `field` is
/// the one of a field.
pub(crate) fn options_over(
    earlier: &Map<String, Value>,
    options: &Map<String, Value>,
    field: impl Fn(&str) -> &str,
) -> Map<String, Value> {
    let is_replaced = |name: &str| options.keys().any(|other| field(other) == field(name));
    let kept = earlier.iter().filter(|(name, _)| !is_replaced(name));
    kept.chain(options).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Other names of options of decoding.
const ALIASES: [(&str, &str); 3] =
    [("num_beams", "beams"), ("num_return_sequences", "n_best"), ("do_sample", "sample")];

fn field(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, field)| field)
}

impl DecodingOptions {
    /// Reads options by name: the fields' names, or transformers' (`num_beams`,
    /// `num_return_sequences`, `do_sample`).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let options = serde_json::from_str(r#"{"num_beams": 4, "early_stopping": true}"#)?;
    /// assert_eq!(cognate_pipeline::DecodingOptions::from_json(&options)?.beams.map(|beams| beams.get()), Some(4));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a name is unknown, or a value has another type; the error names it.
    pub fn from_json(options: &Map<String, Value>) -> Result<Self> {
        Self::from_json_over(&Map::new(), options)
    }

    /// As [`DecodingOptions::from_json`]; `options` replace `earlier` ones, whichever of their names
    /// they have, and `null` restores the default.
    ///
    /// # Errors
    /// As [`DecodingOptions::from_json`].
    pub fn from_json_over(
        earlier: &Map<String, Value>,
        options: &Map<String, Value>,
    ) -> Result<Self> {
        let mut all = options_over(earlier, options, field);
        all.retain(|_, value| !value.is_null());
        read_options(&all)
    }

    /// Overrides the model's settings.
    ///
    /// # Errors
    /// If they contradict each other or the model.
    pub(crate) fn apply(
        &self,
        mut settings: Settings,
        config: &Config,
        tokenizer: &Tokenizer,
    ) -> Result<Settings> {
        self.limit(&mut settings, config)?;
        // Invalid values are rejected even if sampling is off.
        let sampling = self.sampling(settings.sampling.unwrap_or_default());
        sampling.check()?;
        if config.parts == Parts::Decoder {
            let has_prefix = self.target_prefix.as_ref().is_some_and(|prefix| !prefix.is_empty());
            let of_translations = [
                ("alignments", self.alignments),
                ("replace_unknowns", self.replace_unknowns),
                ("target_prefix", has_prefix),
            ];
            if let Some((option, _)) = of_translations.into_iter().find(|(_, is_set)| *is_set) {
                return Err(Error::wrong_option(
                    option,
                    "a decoder alone has no source; leave it out",
                ));
            }
        }
        if self.sample {
            settings.num_beams = self.beams.map_or(1, NonZeroUsize::get);
            settings.sampling = Some(sampling);
        } else if self.beams.is_some_and(|beams| beams.get() > 1) {
            settings.sampling = None;
        }
        // By default a sentence has one translation, whatever the model's files set.
        settings.num_return_sequences = self.n_best.map_or(1, NonZeroUsize::get);
        let is_bounded = settings.sampling.is_none() || settings.num_beams > 1;
        if is_bounded && settings.num_return_sequences > settings.num_beams {
            let (n_best, beams) = (settings.num_return_sequences, settings.num_beams);
            let remedy = if self.sample { "do not set beams" } else { "set sample" };
            let message = format!(
                "expected at most {beams}, the number of beams, found {n_best}; set beams to {n_best}, or {remedy}"
            );
            return Err(Error::wrong_option("n_best", message));
        }
        settings.length_penalty = self.length_penalty.unwrap_or(settings.length_penalty);
        settings.early_stopping = self.early_stopping.unwrap_or(settings.early_stopping);
        settings.repetition_penalty =
            self.repetition_penalty.unwrap_or(settings.repetition_penalty);
        settings.no_repeat_ngram_size =
            self.no_repeat_ngram_size.unwrap_or(settings.no_repeat_ngram_size);
        if let Some(fewest) = self.min_new_tokens {
            if fewest > settings.max_new_tokens {
                let message = format!(
                    "expected at most {}, the maximum number of tokens, found {fewest}",
                    settings.max_new_tokens
                );
                return Err(Error::wrong_option("min_new_tokens", message));
            }
            (settings.min_new_tokens, settings.min_length) = (fewest, 0);
        }
        if let Some(fewest) = self.min_length {
            // The start token counts too.
            let limit = settings.max_length.min(settings.max_new_tokens.saturating_add(1));
            if fewest > limit {
                let message = format!(
                    "expected at most {limit}, the maximum number of tokens, found {fewest}"
                );
                return Err(Error::wrong_option("min_length", message));
            }
            settings.min_length = fewest;
        }
        settings.encoder_no_repeat_ngram_size =
            self.encoder_no_repeat_ngram_size.unwrap_or(settings.encoder_no_repeat_ngram_size);
        for words in &self.bad_words {
            let ids = tokenizer
                .encode_target(words)
                .map_err(|error| Error::wrong_option("bad_words", error))?;
            if ids.is_empty() {
                return Err(Error::wrong_option(
                    "bad_words",
                    format_args!("{words:?} has no tokens; expected words"),
                ));
            }
            settings.bad_words.push(ids);
        }
        if let Some(id) = self
            .suppress_tokens
            .iter()
            .find(|id| usize::try_from(**id).map_or(true, |id| id >= config.vocab))
        {
            let message = format!(
                "expected ids from 0 to {}, those of the model, found {id}",
                config.vocab - 1
            );
            return Err(Error::wrong_option("suppress_tokens", message));
        }
        let unknown = UNKNOWN
            .into_iter()
            .find_map(|piece| tokenizer.target_id(piece))
            .filter(|_| self.disable_unk);
        settings.suppressed_tokens.extend(self.suppress_tokens.iter().copied().chain(unknown));
        if settings.suppressed_tokens.iter().collect::<BTreeSet<_>>().len() >= config.vocab {
            let message = format!("expected a token that is allowed, found all {}", config.vocab);
            return Err(Error::wrong_option("suppress_tokens", message));
        }
        settings.scores = self.scores;
        settings.alignment_layer =
            (self.alignments || self.replace_unknowns).then(|| alignment_layer(config));
        settings.check()?;
        Ok(settings)
    }

    /// Overrides the settings of sampling.
    fn sampling(&self, model: Sampling) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(model.temperature),
            top_k: self.top_k.unwrap_or(model.top_k),
            top_p: self.top_p.unwrap_or(model.top_p),
            min_p: self.min_p.unwrap_or(model.min_p),
            typical_p: self.typical_p.unwrap_or(model.typical_p),
            epsilon_cutoff: self.epsilon_cutoff.unwrap_or(model.epsilon_cutoff),
            eta_cutoff: self.eta_cutoff.unwrap_or(model.eta_cutoff),
            seed: self.seed.unwrap_or(model.seed),
        }
    }

    /// The settings of a translation to explain, without sampling; only beams and lengths are
    /// overridden.
    pub(crate) fn apply_deterministic(
        &self,
        mut settings: Settings,
        config: &Config,
    ) -> Result<Settings> {
        (settings.sampling, settings.num_return_sequences, settings.alignment_layer) =
            (None, 1, None);
        self.limit(&mut settings, config)?;
        Ok(settings)
    }

    /// Overrides the numbers of beams and tokens.
    fn limit(&self, settings: &mut Settings, config: &Config) -> Result<()> {
        for (name, count) in [("beams", self.beams), ("n_best", self.n_best)] {
            if let Some(count) = count.filter(|count| count.get() > MOST_HYPOTHESES) {
                let message = format!("expected at most {MOST_HYPOTHESES}, found {count}");
                return Err(Error::wrong_option(name, message));
            }
        }
        if let Some(beams) = self.beams {
            settings.num_beams = beams.get();
        }
        if let Some(limit) = self.max_new_tokens {
            settings.max_new_tokens = limit.get();
            settings.max_length =
                config.max_positions.map_or(usize::MAX, |positions| positions + 1);
        }
        if let Some(limit) = config.max_positions.filter(|&limit| settings.max_new_tokens > limit) {
            let message = format!(
                "expected at most {limit}, the positions of the model, found {}",
                settings.max_new_tokens
            );
            return Err(Error::wrong_option("max_new_tokens", message));
        }
        Ok(())
    }

    /// The attention outputs that the graphs need.
    pub(crate) fn attentions(&self) -> Attentions {
        if self.alignments || self.replace_unknowns { Attentions::Cross } else { Attentions::Omit }
    }
}
