//! The options of `cognate train` that override a settings file.

use super::earlier_settings;
use crate::messages;
use anyhow::{Result, bail};
use cognate_train::config::{Text, TrainingConfig};
use std::path::{Path, PathBuf};

/// The most common fields; a file has all.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Settings, which override those of CONFIG.toml")]
pub(super) struct Settings {
    /// Training text: two files with parallel lines; can be given several times
    #[arg(long, num_args = 2, value_names = ["SOURCE", "TARGET"])]
    data: Vec<PathBuf>,
    /// Validation text: two files with parallel lines
    #[arg(long, num_args = 2, value_names = ["SOURCE", "TARGET"])]
    valid: Vec<PathBuf>,
    /// Model size: tiny (4+4 layers, d_model 128), base or big (those of the paper), additive (tiny
    /// with additive attention scores) or rotary (tiny with rotary positions) [default: tiny]
    #[arg(long, value_name = "NAME", value_parser = ["tiny", "base", "big", "additive", "rotary"])]
    preset: Option<String>,
    /// Checkpoint to fine-tune, instead of a new model and tokenizer
    #[arg(long, value_name = "DIR", conflicts_with_all = ["preset", "vocab_size"])]
    init: Option<PathBuf>,
    /// Maximum size of the vocabulary [default: 8000]
    #[arg(long, value_name = "N")]
    vocab_size: Option<usize>,
    /// Maximum number of tokens of a batch, on each side [default: 2048]
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Number of batches whose gradients are summed for one update [default: 1]
    #[arg(long, value_name = "N")]
    accumulation: Option<u64>,
    /// Peak learning rate, reached at the end of the warm-up [default: as in the paper]
    #[arg(long, value_name = "RATE")]
    learning_rate: Option<f64>,
    /// Number of warm-up updates [default: 4000]
    #[arg(long, value_name = "N")]
    warmup: Option<u64>,
    /// Dropout of embeddings and sublayers [default: 0.1]
    #[arg(long, value_name = "SHARE")]
    dropout: Option<f64>,
    /// Maximum number of updates
    #[arg(long, value_name = "N")]
    max_updates: Option<u64>,
    /// Maximum number of epochs
    #[arg(long, value_name = "N")]
    max_epochs: Option<u64>,
    /// Maximum number of minutes, including those before --resume
    #[arg(long, value_name = "N")]
    max_minutes: Option<f64>,
    /// Number of updates between validations, which also save [default: 500]
    #[arg(long, value_name = "N")]
    validate_every: Option<u64>,
    /// Number of updates between lines of the log [default: 50]
    #[arg(long, value_name = "N")]
    log_every: Option<u64>,
    /// Number of validations without improvement after which the run ends
    #[arg(long, value_name = "N")]
    patience: Option<u64>,
    /// Metric of the best model: loss or bleu [default: loss]
    #[arg(long, value_name = "NAME", value_parser = ["loss", "bleu"])]
    metric: Option<String>,
    /// Random seed of initial weights, the order of batches and dropout [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of threads of the engine [default: the number of cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

impl Settings {
    /// The settings of the file, or of the resumed run in `out`, overridden by the options.
    pub(super) fn config(
        &self,
        file: Option<&Path>,
        out: &Path,
        resume: bool,
    ) -> Result<TrainingConfig> {
        let config = match (file, resume) {
            (Some(file), _) => TrainingConfig::read_with(file, |config| self.apply(config))?,
            (None, true) => {
                TrainingConfig::read_with(earlier_settings(out)?, |config| self.apply(config))?
            }
            (None, false) if self.data.is_empty() => {
                bail!("no training text: pass CONFIG.toml, or --data SOURCE TARGET")
            }
            (None, false) => {
                let mut config = TrainingConfig::default();
                self.apply(&mut config);
                config
            }
        };
        if let Some(rate) = config.optimiser.learning_rate.filter(|rate| *rate > HIGH_RATE) {
            messages::warning(format_args!(
                "learning_rate {rate} is unusually high; usual ones are at most {HIGH_RATE}"
            ));
        }
        Ok(config)
    }

    /// Overrides settings by options. Returns the fields and the options that set them.
    fn apply(&self, config: &mut TrainingConfig) -> Vec<(&'static str, &'static str)> {
        let texts = |paths: &[PathBuf]| -> Vec<Text> {
            let pairs = paths.chunks_exact(2);
            pairs
                .map(|pair| Text {
                    source: Some(pair[0].clone()),
                    target: Some(pair[1].clone()),
                    ..Text::default()
                })
                .collect()
        };
        let some = |paths: &[PathBuf]| (!paths.is_empty()).then(|| texts(paths));
        for (field, value) in [("model.preset", &self.preset), ("schedule.metric", &self.metric)] {
            if let Some(value) = value {
                config.set(field, value).expect("the option takes the values of the field");
            }
        }
        if self.learning_rate.is_some() {
            config.optimiser.factor = None;
        }
        let (data, optimiser, schedule) =
            (&mut config.data, &mut config.optimiser, &mut config.schedule);
        let set = [
            ("data.train", "--data", put(&mut data.train, some(&self.data))),
            ("data.valid", "--valid", put(&mut data.valid, some(&self.valid))),
            ("data.max_tokens", "--max-tokens", put(&mut data.max_tokens, self.max_tokens)),
            ("model.preset", "--preset", self.preset.is_some()),
            ("model.init", "--init", put(&mut config.model.init, self.init.clone().map(Some))),
            (
                "tokenizer.vocab_size",
                "--vocab-size",
                put(&mut config.tokenizer.vocab_size, self.vocab_size),
            ),
            (
                "optimiser.accumulation",
                "--accumulation",
                put(&mut optimiser.accumulation, self.accumulation),
            ),
            (
                "optimiser.learning_rate",
                "--learning-rate",
                put(&mut optimiser.learning_rate, self.learning_rate.map(Some)),
            ),
            (
                "optimiser.warmup_updates",
                "--warmup",
                put(&mut optimiser.warmup_updates, self.warmup),
            ),
            ("dropout.embeddings", "--dropout", put(&mut config.dropout.embeddings, self.dropout)),
            ("dropout.sublayers", "--dropout", put(&mut config.dropout.sublayers, self.dropout)),
            (
                "schedule.max_updates",
                "--max-updates",
                put(&mut schedule.max_updates, self.max_updates.map(Some)),
            ),
            (
                "schedule.max_epochs",
                "--max-epochs",
                put(&mut schedule.max_epochs, self.max_epochs.map(Some)),
            ),
            (
                "schedule.max_minutes",
                "--max-minutes",
                put(&mut schedule.max_minutes, self.max_minutes.map(Some)),
            ),
            (
                "schedule.validate_every",
                "--validate-every",
                put(&mut schedule.validate_every, self.validate_every),
            ),
            ("schedule.log_every", "--log-every", put(&mut schedule.log_every, self.log_every)),
            (
                "schedule.patience",
                "--patience",
                put(&mut schedule.patience, self.patience.map(Some)),
            ),
            ("schedule.metric", "--metric", self.metric.is_some()),
            ("seed", "--seed", put(&mut config.seed, self.seed)),
            ("threads", "--threads", put(&mut config.threads, self.threads.map(Some))),
        ];
        set.into_iter()
            .filter(|(.., is_set)| *is_set)
            .map(|(field, option, _)| (field, option))
            .collect()
    }
}

/// Higher learning rates print a warning.
const HIGH_RATE: f64 = 0.1;

/// Sets a field if there is a value. Returns whether there is one.
fn put<T>(field: &mut T, value: Option<T>) -> bool {
    let is_set = value.is_some();
    if let Some(value) = value {
        *field = value;
    }
    is_set
}
