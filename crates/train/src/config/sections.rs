//! The sections of a settings file: fields, defaults and meanings.

use std::path::PathBuf;

use cognate_model::{AttentionScore, Initialisation, Norm, NormPlacement, PositionKind};
use serde::{Deserialize, Serialize};
use toml::de::{Error, ValueDeserializer};

use super::choices::{
    Decay, Metric, OptimiserAlgorithm, PieceAlgorithm, Precision, PresetName, Vocabularies,
};
use crate::corpus::Files;

/// Fields that are read one by one, so that all wrong fields are reported.
pub(super) trait Section {
    /// Their names in order.
    const FIELDS: &'static [&'static str];

    /// Reads a field that is in [`Section::FIELDS`].
    fn set(&mut self, field: &str, value: ValueDeserializer<'_>) -> Result<(), Error>;
}

macro_rules! section {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr,)* }
     $($(#[$table_doc:meta])* [$table:ident]: $table_type:ty,)*) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
            $($(#[$table_doc])* pub $table: $table_type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* $($table: <$table_type>::default(),)* }
            }
        }

        impl Section for $name {
            const FIELDS: &'static [&'static str] = &[$(stringify!($field)),*];

            fn set(&mut self, field: &str, value: ValueDeserializer<'_>) -> Result<(), Error> {
                match field {
                    $(stringify!($field) => self.$field = Deserialize::deserialize(value)?,)*
                    _ => unreachable!("{field} is not a field of the section"),
                }
                Ok(())
            }
        }
    };
}

section! {
    /// All settings of a training run.
    TrainingConfig {
        /// Random seed of the initial weights, the order of batches and dropout. The same seed,
        /// settings, text and number of threads give the same run.
        seed: u64 = 1,
        /// Number of threads of the engine; 1 to 1024. Default: the number of cores.
        threads: Option<usize> = None,
    }
    /// Text and batches.
    [data]: Data,
    /// The tokenizer.
    [tokenizer]: Tokenizer,
    /// The architecture.
    [model]: Model,
    /// Which weights are learned.
    [tuning]: Tuning,
    /// Dropout rates.
    [dropout]: Dropout,
    /// The optimiser.
    [optimiser]: Optimiser,
    /// Length, validation and checkpoints.
    [schedule]: Schedule,
}

section! {
    /// `[data]`: text and batches.
    Data {
        /// Training corpora: `{ source = "a.en", target = "a.de" }`, or
        /// `{ tsv = "a.tsv", source_column = 1, target_column = 2 }`.
        train: Vec<Text> = Vec::new(),
        /// Validation corpora, in the same form. Only pairs that do not fit into the model or a
        /// batch are left out of the loss: the limits on training pairs do not apply.
        valid: Vec<Text> = Vec::new(),
        /// Pairs with more words on either side are dropped before tokenization; at least 1.
        max_words: Option<usize> = None,
        /// Maximum number of tokens of a source; longer pairs are left out. At most `max_tokens`
        /// and `model.max_positions`. Default: 256, or the largest value allowed.
        max_source_tokens: Option<usize> = None,
        /// Maximum number of tokens of a target; longer pairs are left out. At most `max_tokens`
        /// and `model.max_positions`. Default: 256, or the largest value allowed.
        max_target_tokens: Option<usize> = None,
        /// Maximum ratio of the numbers of tokens of both sides; other pairs are left out. At least
        /// 1.
        max_ratio: Option<f64> = None,
        /// `α` of subword regularisation (Kudo 2018): each epoch samples the segmentation of each
        /// word with probabilities to the power `α`; above 0, usually 0.1 to 0.5. Requires a
        /// unigram tokenizer.
        subword_sampling: Option<f64> = None,
        /// Maximum number of tokens of a batch on each side, including padding.
        max_tokens: usize = 2_048,
        /// Maximum number of sentences of a batch; at least 1.
        max_sentences: Option<usize> = None,
        /// Number of batches prepared in advance; 1 to 10,000.
        prefetch: usize = 16,
    }
}

section! {
    /// `[tokenizer]`: trained on `data.train`, or an existing one.
    Tokenizer {
        /// Folder of an existing tokenizer; excludes the other fields.
        from: Option<PathBuf> = None,
        /// Training algorithm.
        algorithm: PieceAlgorithm = PieceAlgorithm::Unigram,
        /// One vocabulary for both languages, or one for each.
        vocabularies: Vocabularies = Vocabularies::Joint,
        /// Maximum size of a vocabulary, including special tokens; 4 to 1,000,000.
        vocab_size: usize = 8_000,
        /// Share of the characters of the text that the vocabulary covers; above 0 and at most 1.
        coverage: f64 = 0.99999,
        /// Maximum number of pairs to train on, sampled by `seed`; at least 1.
        sample: u64 = 2_000_000,
        /// Special tokens in addition to `</s>`, `<unk>` and `<pad>`.
        additional_special_tokens: Vec<String> = Vec::new(),
    }
}

section! {
    /// `[model]`: the architecture.
    Model {
        /// Folder of a checkpoint to fine-tune; excludes the other fields.
        init: Option<PathBuf> = None,
        /// Default sizes, and the choice that the preset is named after.
        preset: PresetName = PresetName::Tiny,
        /// Width of the hidden states; a multiple of `heads`.
        d_model: Option<usize> = None,
        /// Number of attention heads of a layer.
        heads: Option<usize> = None,
        /// Width of the feed-forward network.
        d_ff: Option<usize> = None,
        /// Number of encoder layers; 1 to 1,024.
        encoder_layers: Option<usize> = None,
        /// Number of decoder layers; 1 to 1,024.
        decoder_layers: Option<usize> = None,
        /// Maximum number of tokens of a source or target.
        max_positions: usize = 512,
        /// Type of normalisation.
        norm: Norm = Norm::Layer,
        /// Placement of normalisation.
        norm_placement: NormPlacement = NormPlacement::Post,
        /// Encoding of positions. Default: that of the preset, or `sinusoidal`.
        positions: Option<PositionKind> = None,
        /// Number of buckets of relative positions; at least 4.
        relative_buckets: usize = 32,
        /// Distance from which on relative positions share a bucket; more than half of
        /// `relative_buckets`.
        relative_max_distance: usize = 128,
        /// Activation function of the feed-forward network by its name in transformers: `relu`,
        /// `gelu`, `silu`.
        activation: String = "relu".to_owned(),
        /// Gated linear units: the activation is multiplied by a second projection (Shazeer 2020).
        gated: bool = false,
        /// Attention score. Default: that of the preset, or `scaled_dot`.
        attention_score: Option<AttentionScore> = None,
        /// Initialisation of linear layers. `glorot` with post-norm learns slowly at high rates,
        /// but faster in narrow models.
        initialisation: Initialisation = Initialisation::Normal,
        /// Biases of linear layers.
        biases: bool = true,
        /// One embedding table for encoder and decoder; requires a joint vocabulary.
        tie_embeddings: bool = true,
        /// Output projection tied to the decoder's embeddings.
        tie_output: bool = true,
        /// Embeddings multiplied by `√d_model`.
        scale_embedding: bool = true,
    }
}

impl Model {
    /// The encoding of positions: the model's own, or that of the preset.
    pub fn positions(&self) -> PositionKind {
        self.positions.unwrap_or(match self.preset {
            PresetName::Rotary => PositionKind::Rotary,
            _ => PositionKind::Sinusoidal,
        })
    }

    /// The attention score: the model's own, or that of the preset.
    pub fn attention_score(&self) -> AttentionScore {
        self.attention_score.unwrap_or(match self.preset {
            PresetName::Additive => AttentionScore::Additive,
            _ => AttentionScore::ScaledDot,
        })
    }

    /// Fills in what the preset brings, so that a file of the settings says it.
    pub(crate) fn name_choices(&mut self) {
        self.positions = Some(self.positions());
        self.attention_score = Some(self.attention_score());
    }
}

section! {
    /// `[tuning]`: the learned weights; all by default.
    Tuning {
        /// Frozen weights, by their names or the beginnings of these: `["encoder", "shared"]`.
        freeze: Vec<String> = Vec::new(),
        /// Rank of low-rank adapters of `lora_targets`, which alone are learned (Hu et al. 2022);
        /// at least 1. Requires `model.init`. Checkpoints contain the merged weights.
        lora_rank: Option<usize> = None,
        /// `α` of the adapters' factor `α / lora_rank`; above 0.
        lora_alpha: f64 = 16.0,
        /// Linear layers with adapters, by the last part of their names.
        lora_targets: Vec<String> = vec!["q_proj".to_owned(), "v_proj".to_owned()],
    }
}

section! {
    /// `[dropout]`: rates from 0 to 0.95.
    Dropout {
        /// Of the sum of embeddings and positions.
        embeddings: f64 = 0.1,
        /// Of the output of each sublayer.
        sublayers: f64 = 0.1,
        /// Of the attention weights.
        attention: f64 = 0.0,
        /// Inside the feed-forward network.
        activation: f64 = 0.0,
        /// `α` of R-Drop (Liang et al. 2021), the weight of the divergence between two passes with
        /// different dropout; at least 0. Above 0 an update takes twice the time.
        consistency: f64 = 0.0,
    }
}

section! {
    /// `[optimiser]`
    Optimiser {
        /// Update rule.
        algorithm: OptimiserAlgorithm = OptimiserAlgorithm::Adam,
        /// Decay rate of the first moment, from 0 to less than 1.
        beta1: f64 = 0.9,
        /// Decay rate of the second moment, from 0 to less than 1.
        beta2: f64 = 0.98,
        /// Added to the denominator; above 0.
        epsilon: f64 = 1e-9,
        /// Decoupled weight decay, at least 0; not for `adam`.
        weight_decay: f64 = 0.0,
        /// Peak learning rate, at the end of the warm-up; above 0. Default:
        /// `factor · d_model^-½ · warmup_updates^-½`.
        learning_rate: Option<f64> = None,
        /// Factor of the paper's rate, `d_model^-½ · min(n^-½, n · warmup_updates^-1½)`; above 0.
        /// Excludes `learning_rate`.
        factor: Option<f64> = None,
        /// Number of warm-up updates, in which the rate rises linearly; at least 1.
        warmup_updates: u64 = 4_000,
        /// Decay of the rate after the warm-up.
        decay: Decay = Decay::InverseSqrt,
        /// Maximum norm of the gradient of all weights; above 0. Default: no clipping.
        clip_norm: Option<f64> = None,
        /// Label smoothing, from 0 to less than 1 (Szegedy et al. 2016).
        label_smoothing: f64 = 0.1,
        /// Number of batches per update; at least 1.
        accumulation: u64 = 1,
        /// Decay rate of a moving average of the weights, from 0 to less than 1. Validation and
        /// published models use the average.
        ema_decay: Option<f64> = None,
        /// Number type of the forward and backward passes. `f16` requires a GPU. `bf16` is for
        /// processors with AVX-512 BF16 or AMX: products round their operands, everything else is
        /// in f32.
        precision: Precision = Precision::F32,
    }
}

section! {
    /// `[schedule]`: length, validation and checkpoints. The first limit reached ends the run.
    Schedule {
        /// Maximum number of updates; at least 1.
        max_updates: Option<u64> = None,
        /// Maximum number of epochs; at least 1.
        max_epochs: Option<u64> = None,
        /// Maximum number of minutes, including those before a resume; above 0.
        max_minutes: Option<f64> = None,
        /// Number of updates between lines of the log; at least 1.
        log_every: u64 = 50,
        /// Number of updates between validations, which also save; at least 1.
        validate_every: u64 = 500,
        /// Number of validations without improvement after which the run ends; at least 1.
        patience: Option<u64> = None,
        /// Metric of the best checkpoint. BLEU is that of translations of at most 16 tokens more than
        /// twice the longest source of their batch.
        metric: Metric = Metric::Loss,
        /// Number of beams of validation translations; 1 to 64.
        beams: usize = 1,
        /// Number of last checkpoints to keep in addition to the best model; at least 1.
        keep_checkpoints: usize = 1,
        /// Number of last checkpoints whose average is the result; 1 to `keep_checkpoints`.
        average_checkpoints: usize = 1,
    }
}

/// A corpus: `source` and `target`, or `tsv` with its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// File with one sentence per line.
    #[serde(default)]
    pub source: Option<PathBuf>,
    /// File with the translations.
    #[serde(default)]
    pub target: Option<PathBuf>,
    /// File with columns separated by tabs.
    #[serde(default)]
    pub tsv: Option<PathBuf>,
    /// Column of the source, counted from 1. Default: 1.
    #[serde(default)]
    pub source_column: Option<usize>,
    /// Column of the target, counted from 1. Default: 2.
    #[serde(default)]
    pub target_column: Option<usize>,
}

impl Text {
    /// The files; `None` if the fields are inconsistent.
    pub fn files(&self) -> Option<Files> {
        match self.clone() {
            Text {
                source: Some(source),
                target: Some(target),
                tsv: None,
                source_column: None,
                target_column: None,
            } => Some(Files::Parallel { source, target }),
            Text { source: None, target: None, tsv: Some(file), source_column, target_column } => {
                let (source_column, target_column) =
                    (source_column.unwrap_or(1), target_column.unwrap_or(2));
                (source_column > 0 && target_column > 0).then_some(Files::Tsv {
                    file,
                    source_column,
                    target_column,
                })
            }
            _ => None,
        }
    }

    pub(super) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        self.source.iter_mut().chain(&mut self.target).chain(&mut self.tsv)
    }
}
