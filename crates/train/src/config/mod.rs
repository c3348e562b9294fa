//! The settings file: TOML with sections. Every field has a default.
//!
//! ```toml
//! seed = 1
//!
//! [data]
//! train = [{ source = "train.en", target = "train.de" }]
//! valid = [{ source = "val.en", target = "val.de" }]
//!
//! [model]
//! preset = "tiny"
//! positions = "rotary"
//!
//! [schedule]
//! max_updates = 8000
//! ```
//!
//! Reading reports all problems of a file with their lines: unknown fields, wrong types and
//! inconsistent values.

mod check;
mod choices;
mod read;
mod sections;

use std::path::{Path, PathBuf};

use cognate_model::Preset;
use serde::{Deserialize, Serialize};

use crate::batches::{BatchSettings, Framing};
use crate::corpus::{Cleaning, Files};
use crate::error::{Cause, Result};
use crate::tokenizers::TokenizerChoice;

pub use choices::{
    Decay, Metric, OptimiserAlgorithm, PieceAlgorithm, Precision, PresetName, Vocabularies,
};
pub use cognate_model::{AttentionScore, Initialisation, Norm, NormPlacement, PositionKind};
pub use sections::{
    Data, Dropout, Model, Optimiser, Schedule, Text, Tokenizer, TrainingConfig, Tuning,
};

/// Default maximum number of tokens of a sentence.
const LONGEST: usize = 256;

impl TrainingConfig {
    /// Reads a file. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// If it cannot be read, and as [`TrainingConfig::from_toml`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        Self::read_with(path, |_| Vec::new())
    }

    /// Reads a file and changes its settings before they are checked. `change` returns the fields
    /// that it set with their names in errors: `("schedule.max_updates", "--max-updates")`.
    ///
    /// # Errors
    /// As [`TrainingConfig::read`].
    pub fn read_with(
        path: impl AsRef<Path>,
        change: impl FnOnce(&mut Self) -> Vec<(&'static str, &'static str)>,
    ) -> Result<Self> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let unreadable = |error: std::io::Error| Cause::Unreadable {
            file: file.clone(),
            reason: error.to_string(),
        };
        let text = cognate_model::read_text(path).map_err(unreadable)?;
        read::read(&text, &file, |config| {
            if let Some(folder) = path.parent() {
                config.paths().for_each(|path| *path = folder.join(&path));
            }
            change(config)
        })
    }

    /// Parses the text of a file, whose name in errors is `file`.
    ///
    /// # Errors
    /// One line for each problem: where, what was found, what is expected.
    pub fn from_toml(text: &str, file: &str) -> Result<Self> {
        read::read(text, file, |_| Vec::new())
    }

    /// Sets a field, such as `model.positions`, to a value as in a file; words need no quotation
    /// marks.
    ///
    /// # Errors
    /// If the field does not exist or cannot have this value. [`TrainingConfig::check`] checks
    /// consistency.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        read::set(self, name, value)
    }

    /// Checks settings that were changed after reading.
    ///
    /// # Errors
    /// One line for each problem.
    pub fn check(&self) -> Result<()> {
        let problems = check::problems(self);
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        match lines.is_empty() {
            true => Ok(()),
            false => Err(Cause::Config(lines.join("\n")).into()),
        }
    }

    /// The settings as a file, including defaults.
    ///
    /// # Errors
    /// If a path is not UTF-8.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| {
            Cause::Config(format!("these settings cannot be written: {error}")).into()
        })
    }

    /// The training corpora.
    pub fn train_files(&self) -> Vec<Files> {
        self.data.train.iter().filter_map(Text::files).collect()
    }

    /// The validation corpora.
    pub fn valid_files(&self) -> Vec<Files> {
        self.data.valid.iter().filter_map(Text::files).collect()
    }

    /// Limits for cleaning corpora.
    pub fn cleaning(&self) -> Cleaning {
        Cleaning { max_words: self.data.max_words }
    }

    /// Settings of batches for a model with this framing of targets.
    pub fn batch_settings(&self, framing: Framing) -> BatchSettings {
        let longest = |named: Option<usize>| {
            named.unwrap_or(LONGEST.min(self.data.max_tokens).min(self.model.max_positions))
        };
        BatchSettings {
            max_tokens: self.data.max_tokens,
            max_sentences: self.data.max_sentences,
            max_source_tokens: longest(self.data.max_source_tokens),
            max_target_tokens: longest(self.data.max_target_tokens),
            max_ratio: self.data.max_ratio,
            subword_sampling: self.data.subword_sampling,
            seed: self.seed,
            framing,
        }
    }

    /// Settings of the tokenizer's training.
    pub fn tokenizer_choice(&self) -> TokenizerChoice {
        let Tokenizer { algorithm, vocab_size, coverage, additional_special_tokens, .. } =
            self.tokenizer.clone();
        let training = cognate_text::TrainingSettings {
            algorithm: algorithm.into(),
            vocab_size,
            coverage,
            additional_special_tokens,
        };
        let separate = self.tokenizer.vocabularies == Vocabularies::Separate;
        TokenizerChoice { training, separate, sample: self.tokenizer.sample, seed: self.seed }
    }

    /// The sizes of the preset, changed by the file.
    pub fn sizes(&self) -> Sizes {
        let preset = Preset::from(self.model.preset).config();
        let model = &self.model;
        let d_model = model.d_model.unwrap_or(preset.d_model);
        Sizes {
            d_model,
            heads: model.heads.unwrap_or(preset.encoder.heads),
            d_ff: model.d_ff.unwrap_or(preset.encoder.d_ff),
            encoder_layers: model.encoder_layers.unwrap_or(preset.encoder.n_layers),
            decoder_layers: model.decoder_layers.unwrap_or(preset.decoder.n_layers),
            max_positions: model.max_positions,
        }
    }

    /// Makes all paths absolute, so that the settings can be read again from another folder.
    pub(crate) fn make_paths_absolute(&mut self) {
        // A path that cannot be made absolute, such as an empty one, fails when it is read.
        self.paths()
            .for_each(|path| *path = std::path::absolute(&path).unwrap_or_else(|_| path.clone()));
    }

    fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let data = self.data.train.iter_mut().chain(&mut self.data.valid).flat_map(Text::paths);
        data.chain(&mut self.tokenizer.from).chain(&mut self.model.init)
    }
}

/// The sizes of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Width of the hidden states.
    pub d_model: usize,
    /// Number of attention heads of a layer.
    pub heads: usize,
    /// Width of the feed-forward network.
    pub d_ff: usize,
    /// Number of encoder layers.
    pub encoder_layers: usize,
    /// Number of decoder layers.
    pub decoder_layers: usize,
    /// Maximum number of tokens of a source or target.
    pub max_positions: usize,
}
