//! The options of `cognate train` that stand for fields of a training file.

use super::former;
use anyhow::{Result, bail};
use clap::ValueEnum;
use cognate_train::config::{Metric, PresetName, Text, Tokenizer, TrainingConfig};
use std::path::{Path, PathBuf};

/// The fields that many runs change; a file has all.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Settings, before those of CONFIG.toml")]
pub(super) struct Settings {
    /// Two files to train on, line by line; given several times, one after the other
    #[arg(long, num_args = 2, value_names = ["SOURCE", "TARGET"])]
    data: Vec<PathBuf>,
    /// Two files to validate on
    #[arg(long, num_args = 2, value_names = ["SOURCE", "TARGET"])]
    valid: Vec<PathBuf>,
    /// The size: tiny (4+4 layers, d_model 128), base or big (those of the paper); or tiny with a choice: additive (attention scores),
    /// rotary (positions)
    #[arg(long, value_name = "NAME")]
    preset: Option<PresetOption>,
    /// A checkpoint to go on from, in place of a new model and tokenizer
    #[arg(long, value_name = "DIR", conflicts_with_all = ["preset", "vocab_size"])]
    init: Option<PathBuf>,
    /// Pieces of the vocabulary at most
    #[arg(long, value_name = "N")]
    vocab_size: Option<usize>,
    /// Tokens of a batch at most, on each side
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Batches whose gradients are summed for one update
    #[arg(long, value_name = "N")]
    accumulation: Option<u64>,
    /// The highest learning rate, at the end of the warm-up
    #[arg(long, value_name = "RATE")]
    learning_rate: Option<f64>,
    /// Updates over which the rate rises
    #[arg(long, value_name = "N")]
    warmup: Option<u64>,
    /// Dropout of embeddings and sublayers
    #[arg(long, value_name = "SHARE")]
    dropout: Option<f64>,
    /// Updates at most
    #[arg(long, value_name = "N")]
    max_updates: Option<u64>,
    /// Times through the text at most
    #[arg(long, value_name = "N")]
    max_epochs: Option<u64>,
    /// Minutes at most, those before --resume included
    #[arg(long, value_name = "N")]
    max_minutes: Option<f64>,
    /// Updates between validations, which also save
    #[arg(long, value_name = "N")]
    validate_every: Option<u64>,
    /// Updates between lines of the log
    #[arg(long, value_name = "N")]
    log_every: Option<u64>,
    /// Validations without a better one after which the run ends
    #[arg(long, value_name = "N")]
    patience: Option<u64>,
    /// What says which model is the best: loss or bleu
    #[arg(long, value_name = "NAME")]
    metric: Option<MetricOption>,
    /// What initial weights, the order of batches and dropout follow from
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Threads of the engine [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PresetOption {
    Tiny,
    Base,
    Big,
    Additive,
    Rotary,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MetricOption {
    Loss,
    Bleu,
}

impl Settings {
    /// The file's settings, or those of the run in `out` if it goes on without a file, with these in their places.
    ///
    /// # Errors
    /// If the file cannot be read or is wrong, or neither says what to train on.
    pub(super) fn config(&self, file: Option<&Path>, out: &Path, resume: bool) -> Result<TrainingConfig> {
        let mut config = match (file, resume) {
            (Some(file), _) => TrainingConfig::read(file)?,
            (None, true) => TrainingConfig::read(former(out)?)?,
            (None, false) if self.data.is_empty() => {
                bail!("what to train on is missing: pass CONFIG.toml, or --data SOURCE TARGET")
            }
            (None, false) => TrainingConfig::default(),
        };
        let texts = |paths: &[PathBuf]| -> Vec<Text> {
            let pairs = paths.chunks_exact(2);
            pairs.map(|pair| Text { source: Some(pair[0].clone()), target: Some(pair[1].clone()), ..Text::default() }).collect()
        };
        if !self.data.is_empty() {
            config.data.train = texts(&self.data);
        }
        if !self.valid.is_empty() {
            config.data.valid = texts(&self.valid);
        }
        if let Some(init) = &self.init {
            // A checkpoint brings its own model and tokenizer.
            config.model = cognate_train::config::Model { init: Some(init.clone()), ..Default::default() };
            config.tokenizer = Tokenizer::default();
        }
        if let Some(preset) = self.preset {
            config.model.take_preset(preset.into());
        }
        put(&mut config.tokenizer.vocab_size, self.vocab_size);
        put(&mut config.data.max_tokens, self.max_tokens);
        put(&mut config.optimiser.accumulation, self.accumulation);
        if self.learning_rate.is_some() {
            (config.optimiser.learning_rate, config.optimiser.factor) = (self.learning_rate, None);
        }
        put(&mut config.optimiser.warmup_updates, self.warmup);
        put(&mut config.dropout.embeddings, self.dropout);
        put(&mut config.dropout.sublayers, self.dropout);
        put(&mut config.schedule.validate_every, self.validate_every);
        put(&mut config.schedule.log_every, self.log_every);
        put(&mut config.schedule.metric, self.metric.map(Metric::from));
        put(&mut config.seed, self.seed);
        let schedule = &mut config.schedule;
        schedule.max_updates = self.max_updates.or(schedule.max_updates);
        schedule.max_epochs = self.max_epochs.or(schedule.max_epochs);
        schedule.max_minutes = self.max_minutes.or(schedule.max_minutes);
        schedule.patience = self.patience.or(schedule.patience);
        config.threads = self.threads.or(config.threads);
        Ok(config)
    }
}

fn put<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

impl From<PresetOption> for PresetName {
    fn from(option: PresetOption) -> Self {
        match option {
            PresetOption::Tiny => Self::Tiny,
            PresetOption::Base => Self::Base,
            PresetOption::Big => Self::Big,
            PresetOption::Additive => Self::Additive,
            PresetOption::Rotary => Self::Rotary,
        }
    }
}

impl From<MetricOption> for Metric {
    fn from(option: MetricOption) -> Self {
        match option {
            MetricOption::Loss => Self::Loss,
            MetricOption::Bleu => Self::Bleu,
        }
    }
}
