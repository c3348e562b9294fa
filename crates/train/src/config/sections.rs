//! The sections of a training file: fields, defaults and what they mean.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml::de::{Error, ValueDeserializer};

use super::choices::{
    AttentionScore, Decay, Initialisation, Metric, NormKind, NormPlacement, OptimiserAlgorithm, PieceAlgorithm, PositionKind, Precision,
    PresetName, Vocabularies,
};
use crate::corpus::Files;

/// Fields that are read one by one, so that one wrong field does not hide the next.
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
                    _ => unreachable!("{field} is no field of the section"),
                }
                Ok(())
            }
        }
    };
}

section! {
    /// All settings of a training run.
    TrainingConfig {
        /// Decides initial weights, order of batches and dropout. The same seed, file, text and thread count give the same run.
        seed: u64 = 1,
        /// Threads of the engine; absent for one a core.
        threads: Option<usize> = None,
    }
    /// Text and batches.
    [data]: Data,
    /// The tokenizer, trained or taken.
    [tokenizer]: Tokenizer,
    /// The model's shape.
    [model]: Model,
    /// Which weights are learned.
    [tuning]: Tuning,
    /// What is left out at random while training.
    [dropout]: Dropout,
    /// How weights change.
    [optimiser]: Optimiser,
    /// How long, and what is kept.
    [schedule]: Schedule,
}

section! {
    /// `[data]`: text and batches.
    Data {
        /// Corpora to train on, one after the other: `{ source = "a.en", target = "a.de" }`, or
        /// `{ tsv = "a.tsv", source_column = 1, target_column = 2 }`.
        train: Vec<Text> = Vec::new(),
        /// Corpora to validate on, in the same form.
        valid: Vec<Text> = Vec::new(),
        /// Pairs with more words on either side are dropped before anything is tokenized; at least 1.
        max_words: Option<usize> = None,
        /// Pairs whose source has more tokens are left out; 1 to `max_tokens` and `model.max_positions`. Absent: 256, or as
        /// many as these allow.
        max_source_tokens: Option<usize> = None,
        /// Pairs whose target has more tokens are left out; 1 to `max_tokens` and `model.max_positions`. Absent: 256, or as
        /// many as these allow.
        max_target_tokens: Option<usize> = None,
        /// Pairs are left out where one side has more than so many times the tokens of the other; at least 1.
        max_ratio: Option<f64> = None,
        /// Cuts words anew in each epoch, into pieces drawn with probabilities to the power of this (subword regularisation, Kudo
        /// 2018); above 0, usually 0.1 to 0.5. Wants a unigram tokenizer.
        subword_sampling: Option<f64> = None,
        /// Tokens of a batch on each side at most, padding included.
        max_tokens: usize = 2_048,
        /// Sentences of a batch at most; at least 1.
        max_sentences: Option<usize> = None,
        /// Batches that are made before they are needed; 1 to 10,000.
        prefetch: usize = 16,
    }
}

section! {
    /// `[tokenizer]`: trained on `data.train`, or taken.
    Tokenizer {
        /// A folder with a tokenizer to use as it is; the other fields then stay away.
        from: Option<PathBuf> = None,
        /// How pieces are found.
        algorithm: PieceAlgorithm = PieceAlgorithm::Unigram,
        /// One vocabulary for both languages, or one each.
        vocabularies: Vocabularies = Vocabularies::Joint,
        /// Pieces of a vocabulary at most, special tokens included; 4 to 1,000,000.
        vocab_size: usize = 8_000,
        /// The share of the text's characters that have pieces, above 0 and at most 1.
        coverage: f64 = 0.99999,
        /// Pairs to train on at most, chosen by `seed`; at least 1.
        sample: u64 = 2_000_000,
        /// Tokens beside `</s>`, `<unk>` and `<pad>` that are never cut.
        additional_special_tokens: Vec<String> = Vec::new(),
    }
}

section! {
    /// `[model]`: the research bench.
    Model {
        /// A checkpoint's folder to go on from; the other fields then stay away.
        init: Option<PathBuf> = None,
        /// Where sizes come from that are absent here, and the choice after which it is called.
        preset: PresetName = PresetName::Tiny,
        /// Width of the hidden states; a multiple of `heads`.
        d_model: Option<usize> = None,
        /// Attention heads of a layer.
        heads: Option<usize> = None,
        /// Width inside the feed-forward.
        d_ff: Option<usize> = None,
        /// The encoder's layers; 1 to 1,024.
        encoder_layers: Option<usize> = None,
        /// The decoder's layers; 1 to 1,024.
        decoder_layers: Option<usize> = None,
        /// The longest source and target in tokens.
        max_positions: usize = 512,
        /// The kind of normalisation.
        norm: NormKind = NormKind::Layer,
        /// Where layers normalise.
        norm_placement: NormPlacement = NormPlacement::Post,
        /// How positions are told apart.
        positions: PositionKind = PositionKind::Sinusoidal,
        /// Ranges of distances, for relative positions; at least 4.
        relative_buckets: usize = 32,
        /// From this distance on all are one range, for relative positions; more than half of `relative_buckets`.
        relative_max_distance: usize = 128,
        /// The feed-forward's non-linearity, by its name in transformers: `relu`, `gelu`, `silu`.
        activation: String = "relu".to_owned(),
        /// Whether the non-linearity is multiplied by a second projection (Shazeer 2020).
        gated: bool = false,
        /// How attention compares queries with keys.
        attention_score: AttentionScore = AttentionScore::ScaledDot,
        /// How the weights of linear layers begin. With `glorot` and normalisation after sublayers, high rates learn slowly; narrow
        /// models learn sooner.
        initialisation: Initialisation = Initialisation::Normal,
        /// Whether linear layers add a bias.
        biases: bool = true,
        /// Whether encoder and decoder have one embedding table; wants a joint vocabulary.
        tie_embeddings: bool = true,
        /// Whether the output projection is the decoder's embedding.
        tie_output: bool = true,
        /// Whether embeddings are multiplied by `√d_model`.
        scale_embedding: bool = true,
    }
}

impl Model {
    /// Takes a preset, with the choice after which it is called.
    pub fn take_preset(&mut self, preset: PresetName) {
        self.preset = preset;
        match preset {
            PresetName::Additive => self.attention_score = AttentionScore::Additive,
            PresetName::Rotary => self.positions = PositionKind::Rotary,
            PresetName::Tiny | PresetName::Base | PresetName::Big => {}
        }
    }
}

section! {
    /// `[tuning]`: which weights are learned; all, if the file does not say.
    Tuning {
        /// Weights that stay as they are, by their names or what these begin with: `["encoder", "shared"]`.
        freeze: Vec<String> = Vec::new(),
        /// Learns low-rank adapters of `lora_targets` and nothing else (Hu et al. 2022), of this rank; at least 1. Wants `model.init`.
        /// Checkpoints hold the weights with the adapters merged.
        lora_rank: Option<usize> = None,
        /// Adapters are multiplied by this over the rank; above 0.
        lora_alpha: f64 = 16.0,
        /// The linear layers that have adapters, by the last part of their names.
        lora_targets: Vec<String> = vec!["q_proj".to_owned(), "v_proj".to_owned()],
    }
}

section! {
    /// `[dropout]`: shares that are set to zero while training, from 0 up to 1.
    Dropout {
        /// Of the embeddings with their positions.
        embeddings: f64 = 0.1,
        /// Of what a sublayer gives, before it is added.
        sublayers: f64 = 0.1,
        /// Of the attention weights.
        attention: f64 = 0.0,
        /// Of the feed-forward's inner values.
        activation: f64 = 0.0,
        /// R-Drop's `α` (Liang et al. 2021): how much two passes over a sentence, with other elements set to zero, are to agree; at
        /// least 0. Above 0 an update costs twice as much.
        consistency: f64 = 0.0,
    }
}

section! {
    /// `[optimiser]`: how weights change.
    Optimiser {
        /// The rule.
        algorithm: OptimiserAlgorithm = OptimiserAlgorithm::Adam,
        /// Decay of the mean of gradients, from 0 up to 1.
        beta1: f64 = 0.9,
        /// Decay of the mean of squared gradients, from 0 up to 1.
        beta2: f64 = 0.98,
        /// Added to the root of the mean square; above 0.
        epsilon: f64 = 1e-9,
        /// Share of a weight that is taken away, times the rate; not for `adam`. At least 0.
        weight_decay: f64 = 0.0,
        /// The highest rate, at the end of the warm-up; above 0. Absent: `factor · d_model^-½ · warmup_updates^-½`.
        learning_rate: Option<f64> = None,
        /// The paper's rate, `d_model^-½ · min(n^-½, n · warmup_updates^-1½)`, times this; above 0. Not beside `learning_rate`.
        factor: Option<f64> = None,
        /// Updates over which the rate rises; at least 1.
        warmup_updates: u64 = 4_000,
        /// What the rate does afterwards.
        decay: Decay = Decay::InverseSqrt,
        /// The longest norm of all gradients together; longer ones are shortened to it. Above 0.
        clip_norm: Option<f64> = None,
        /// The share of probability that labels give to all tokens alike, from 0 up to 1 (Szegedy et al. 2016).
        label_smoothing: f64 = 0.1,
        /// Batches whose gradients are summed for one update; at least 1.
        accumulation: u64 = 1,
        /// Decay of a moving average of the weights, from 0 up to 1, by which validation and checkpoints go.
        ema_decay: Option<f64> = None,
        /// The type of the forward and backward passes; 16 bits want a GPU.
        precision: Precision = Precision::F32,
    }
}

section! {
    /// `[schedule]`: how long, and what is kept. The first limit ends the run.
    Schedule {
        /// Updates at most; at least 1.
        max_updates: Option<u64> = None,
        /// Times through the corpus at most; at least 1.
        max_epochs: Option<u64> = None,
        /// Minutes at most, those of a resumed run's earlier parts included; above 0.
        max_minutes: Option<f64> = None,
        /// Updates between lines of the log; at least 1.
        log_every: u64 = 50,
        /// Updates between validations, which also save; at least 1.
        validate_every: u64 = 500,
        /// Validations without a better one after which the run ends; at least 1.
        patience: Option<u64> = None,
        /// What says which checkpoint is best.
        metric: Metric = Metric::Loss,
        /// Beams of the translations that BLEU is measured on; 1 to 64.
        beams: usize = 1,
        /// The last checkpoints that are kept, beside the best; at least 1.
        keep_checkpoints: usize = 1,
        /// The last checkpoints whose mean is the result; 1 to `keep_checkpoints`.
        average_checkpoints: usize = 1,
    }
}

/// A corpus in a training file: `source` and `target`, or `tsv` with its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// Sentences, one a line.
    #[serde(default)]
    pub source: Option<PathBuf>,
    /// Their translations.
    #[serde(default)]
    pub target: Option<PathBuf>,
    /// A file with columns divided by tabs.
    #[serde(default)]
    pub tsv: Option<PathBuf>,
    /// The source's column, counted from 1; the first if absent.
    #[serde(default)]
    pub source_column: Option<usize>,
    /// The target's column, counted from 1; the second if absent.
    #[serde(default)]
    pub target_column: Option<usize>,
}

impl Text {
    /// The files; `None` if the fields do not go together.
    pub fn files(&self) -> Option<Files> {
        match self.clone() {
            Text { source: Some(source), target: Some(target), tsv: None, source_column: None, target_column: None } => {
                Some(Files::Parallel { source, target })
            }
            Text { source: None, target: None, tsv: Some(file), source_column, target_column } => {
                let (source_column, target_column) = (source_column.unwrap_or(1), target_column.unwrap_or(2));
                (source_column > 0 && target_column > 0).then_some(Files::Tsv { file, source_column, target_column })
            }
            _ => None,
        }
    }

    pub(super) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        self.source.iter_mut().chain(&mut self.target).chain(&mut self.tsv)
    }
}
