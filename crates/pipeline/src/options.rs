//! How a model is loaded and how it decodes. The fields have the names of the command's options.

use crate::error::{Error, Result};
use crate::language::Languages;
use cognate_generate::{EarlyStopping, Sampling, Settings, alignment_layer};
use cognate_model::{Attentions, Config};
use cognate_runtime::{Device, Engine};
use cognate_text::Tokenizer;
use std::num::NonZeroUsize;
use std::thread;

/// How a model is loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// The inference engine.
    pub engine: Engine,
    /// Where the engine computes.
    pub device: Device,
    /// The languages of a multilingual model.
    pub languages: Languages,
    /// The number of batches that are translated at the same time; by default one for each core, on a GPU one. They share
    /// the weights.
    pub workers: Option<NonZeroUsize>,
    /// The number of threads that ONNX Runtime uses for each worker; by default 1 if `workers` is not set, else ONNX Runtime's
    /// own choice.
    pub threads: Option<NonZeroUsize>,
    /// Ignore tensors of a checkpoint that its model has no use for, instead of rejecting the checkpoint.
    pub ignore_unused: bool,
    /// Load a multilingual model that is not told which language to translate into; it then decodes any.
    pub allow_missing_language: bool,
    /// Move the weights into huge pages (Linux): faster, and it changes how the memory of the whole process is mapped.
    pub huge_pages: bool,
}

impl LoadOptions {
    /// The number of workers.
    pub(crate) fn n_workers(&self) -> NonZeroUsize {
        let one = NonZeroUsize::MIN;
        self.workers.unwrap_or_else(|| match self.device {
            Device::Cpu => thread::available_parallelism().unwrap_or(one),
            Device::Cuda => one,
        })
    }

    /// The number of threads of each worker; the engine's own choice if `None`.
    pub(crate) fn n_threads(&self) -> Option<NonZeroUsize> {
        self.threads.or((self.workers.is_none() && self.device == Device::Cpu).then_some(NonZeroUsize::MIN))
    }

    /// Checks that the options do not contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        if self.device == Device::Cuda && self.workers.is_some_and(|workers| workers > NonZeroUsize::MIN) {
            let message = "a GPU runs one batch at a time; leave it out, and translate more tokens together to fill the GPU";
            return Err(Error::wrong_option("workers", message));
        }
        Ok(())
    }
}

/// The names of tokens for unknown words.
pub(crate) const UNKNOWN: [&str; 3] = ["<unk>", "[UNK]", "__unk__"];

/// How a model decodes. What is not set is as in the model's `generation_config.json`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecodingOptions {
    /// The number of hypotheses in beam search; 1 is greedy.
    pub beams: Option<NonZeroUsize>,
    /// The maximum number of tokens of a translation.
    pub max_new_tokens: Option<NonZeroUsize>,
    /// The minimum number of tokens of a translation.
    pub min_new_tokens: Option<usize>,
    /// The minimum number of tokens of a translation, the start token included.
    pub min_length: Option<usize>,
    /// The number of translations of each sentence, at most `beams`; by default 1.
    pub n_best: Option<NonZeroUsize>,
    /// Give the scores of greedy and sampled translations, too.
    pub scores: bool,
    /// Give the source position that each token comes from.
    pub alignments: bool,
    /// The power of the length by which beam search divides log-probabilities: above 0 favours long translations.
    pub length_penalty: Option<f32>,
    /// When beam search stops.
    pub early_stopping: Option<EarlyStopping>,
    /// Above 1, tokens of the translation so far become less likely.
    pub repetition_penalty: Option<f32>,
    /// No n-gram of this size occurs twice in a translation; 0 allows all.
    pub no_repeat_ngram_size: Option<usize>,
    /// No n-gram of this size of the sentence occurs in its translation; 0 allows all.
    pub encoder_no_repeat_ngram_size: Option<usize>,
    /// Texts that no translation contains.
    pub bad_words: Vec<String>,
    /// Tokens that no translation contains.
    pub suppress_tokens: Vec<i64>,
    /// No translation contains the unknown token.
    pub disable_unk: bool,
    /// Replace each unknown token of a translation by the source word that it attends to most.
    pub replace_unknowns: bool,
    /// The beginning of every translation.
    pub target_prefix: Option<String>,
    /// Sample each token from its distribution; with beams, sample their continuations.
    pub sample: bool,
    /// The divisor of scores before sampling, above 0: below 1 likely tokens become likelier.
    pub temperature: Option<f32>,
    /// Sample from this many of the likeliest tokens; 0 takes all.
    pub top_k: Option<usize>,
    /// Sample from the likeliest tokens that together have this probability, above 0 and at most 1.
    pub top_p: Option<f32>,
    /// Sample from tokens of at least this share of the likeliest one's probability, from 0 to 1.
    pub min_p: Option<f32>,
    /// Sample from the tokens closest to the expected information that together have this probability, above 0 and at most 1.
    pub typical_p: Option<f32>,
    /// Sample from tokens of at least this probability; 0 takes all.
    pub epsilon_cutoff: Option<f32>,
    /// Sample from tokens of a probability that depends on the entropy (eta sampling); 0 takes all.
    pub eta_cutoff: Option<f32>,
    /// The random seed of sampling.
    pub seed: Option<u64>,
}

impl DecodingOptions {
    /// Puts these options in place of the model's settings.
    ///
    /// # Errors
    /// If they contradict each other or the model.
    pub(crate) fn apply(&self, mut settings: Settings, config: &Config, tokenizer: &Tokenizer) -> Result<Settings> {
        self.limit(&mut settings, config)?;
        if self.sample {
            settings.num_beams = self.beams.map_or(1, NonZeroUsize::get);
            let model = settings.sampling.unwrap_or_default();
            settings.sampling = Some(Sampling {
                temperature: self.temperature.unwrap_or(model.temperature),
                top_k: self.top_k.unwrap_or(model.top_k),
                top_p: self.top_p.unwrap_or(model.top_p),
                min_p: self.min_p.unwrap_or(model.min_p),
                typical_p: self.typical_p.unwrap_or(model.typical_p),
                epsilon_cutoff: self.epsilon_cutoff.unwrap_or(model.epsilon_cutoff),
                eta_cutoff: self.eta_cutoff.unwrap_or(model.eta_cutoff),
                seed: self.seed.unwrap_or(model.seed),
            });
        } else if self.beams.is_some_and(|beams| beams.get() > 1) {
            settings.sampling = None;
        }
        // Without the option a sentence has one translation, whatever the model's files ask for.
        settings.num_return_sequences = self.n_best.map_or(1, NonZeroUsize::get);
        let is_bounded = settings.sampling.is_none() || settings.num_beams > 1;
        if is_bounded && settings.num_return_sequences > settings.num_beams {
            let (n_best, beams) = (settings.num_return_sequences, settings.num_beams);
            let remedy = if self.sample { "do not set beams" } else { "set sample" };
            let message = format!("expected at most {beams}, the number of beams, found {n_best}; set beams to {n_best}, or {remedy}");
            return Err(Error::wrong_option("n_best", message));
        }
        settings.length_penalty = self.length_penalty.unwrap_or(settings.length_penalty);
        settings.early_stopping = self.early_stopping.unwrap_or(settings.early_stopping);
        settings.repetition_penalty = self.repetition_penalty.unwrap_or(settings.repetition_penalty);
        settings.no_repeat_ngram_size = self.no_repeat_ngram_size.unwrap_or(settings.no_repeat_ngram_size);
        if let Some(fewest) = self.min_new_tokens {
            if fewest > settings.max_new_tokens {
                let message = format!("expected at most {}, the maximum number of tokens, found {fewest}", settings.max_new_tokens);
                return Err(Error::wrong_option("min_new_tokens", message));
            }
            (settings.min_new_tokens, settings.min_length) = (fewest, 0);
        }
        if let Some(fewest) = self.min_length {
            // The start token counts, too.
            let limit = settings.max_length.min(settings.max_new_tokens.saturating_add(1));
            if fewest > limit {
                let message = format!("expected at most {limit}, the maximum number of tokens, found {fewest}");
                return Err(Error::wrong_option("min_length", message));
            }
            settings.min_length = fewest;
        }
        settings.encoder_no_repeat_ngram_size = self.encoder_no_repeat_ngram_size.unwrap_or(settings.encoder_no_repeat_ngram_size);
        for words in &self.bad_words {
            let ids = tokenizer.encode_target(words).map_err(|error| Error::wrong_option("bad_words", error))?;
            if ids.is_empty() {
                return Err(Error::wrong_option("bad_words", format_args!("{words:?} has no tokens; expected words")));
            }
            settings.bad_words.push(ids);
        }
        if let Some(id) = self.suppress_tokens.iter().find(|id| usize::try_from(**id).map_or(true, |id| id >= config.vocab)) {
            let message = format!("expected ids from 0 to {}, those of the model, found {id}", config.vocab - 1);
            return Err(Error::wrong_option("suppress_tokens", message));
        }
        let unknown = UNKNOWN.into_iter().find_map(|piece| tokenizer.target_id(piece)).filter(|_| self.disable_unk);
        settings.suppressed_tokens.extend(self.suppress_tokens.iter().copied().chain(unknown));
        settings.scores = self.scores;
        settings.alignment_layer = (self.alignments || self.replace_unknowns).then(|| alignment_layer(config));
        settings.check()?;
        Ok(settings)
    }

    /// The settings of one translation that is to be explained: nothing is sampled, and only beams and lengths can be chosen.
    pub(crate) fn apply_deterministic(&self, mut settings: Settings, config: &Config) -> Result<Settings> {
        (settings.sampling, settings.num_return_sequences, settings.alignment_layer) = (None, 1, None);
        self.limit(&mut settings, config)?;
        Ok(settings)
    }

    /// Puts the number of beams and of tokens in place of the model's.
    fn limit(&self, settings: &mut Settings, config: &Config) -> Result<()> {
        if let Some(beams) = self.beams {
            settings.num_beams = beams.get();
        }
        if let Some(limit) = self.max_new_tokens {
            settings.max_new_tokens = limit.get();
            settings.max_length = config.max_positions.map_or(usize::MAX, |positions| positions + 1);
        }
        if let Some(limit) = config.max_positions.filter(|&limit| settings.max_new_tokens > limit) {
            let message = format!("expected at most {limit}, the positions of the model, found {}", settings.max_new_tokens);
            return Err(Error::wrong_option("max_new_tokens", message));
        }
        Ok(())
    }

    /// What the graphs must give.
    pub(crate) fn attentions(&self) -> Attentions {
        if self.alignments || self.replace_unknowns { Attentions::Cross } else { Attentions::Omit }
    }
}
