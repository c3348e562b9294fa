//! Fields whose value is one of a few words.

use cognate_model::Preset;
use serde::{Deserialize, Serialize};

macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$doc])* $variant),* }
    };
}

choice! {
    /// `tokenizer.algorithm`
    PieceAlgorithm {
        /// A unigram language model (Kudo 2018).
        Unigram,
        /// Byte pair encoding (Sennrich et al. 2016).
        Bpe,
    }
}

impl From<PieceAlgorithm> for cognate_text::Algorithm {
    fn from(algorithm: PieceAlgorithm) -> Self {
        match algorithm {
            PieceAlgorithm::Unigram => Self::Unigram,
            PieceAlgorithm::Bpe => Self::Bpe,
        }
    }
}

choice! {
    /// `tokenizer.vocabularies`
    Vocabularies {
        /// One for both languages.
        Joint,
        /// One for each language.
        Separate,
    }
}

choice! {
    /// `model.preset`: default sizes, and the choice that the preset is named after.
    PresetName {
        /// 4 + 4 layers, d_model 128, 4 heads, d_ff 256.
        Tiny,
        /// 6 + 6 layers, d_model 512, 8 heads, d_ff 2,048 (Vaswani et al. 2017, table 3).
        Base,
        /// 6 + 6 layers, d_model 1,024, 16 heads, d_ff 4,096 (the same table).
        Big,
        /// As tiny, with `attention_score = "additive"`.
        Additive,
        /// As tiny, with `positions = "rotary"`.
        Rotary,
    }
}

impl From<PresetName> for Preset {
    fn from(name: PresetName) -> Self {
        match name {
            PresetName::Tiny | PresetName::Additive | PresetName::Rotary => Self::Tiny,
            PresetName::Base => Self::Base,
            PresetName::Big => Self::Big,
        }
    }
}

choice! {
    /// `optimiser.algorithm`
    OptimiserAlgorithm {
        /// Adam (Kingma & Ba 2015).
        Adam,
        /// Adam with decoupled weight decay (Loshchilov & Hutter 2019).
        Adamw,
        /// The sign of a momentum, with decoupled weight decay (Chen et al. 2023).
        Lion,
        /// Orthogonalised momentum for the matrices of layers (Jordan et al. 2024), with momentum
        /// 0.95; AdamW for other weights.
        Muon,
    }
}

choice! {
    /// `optimiser.decay`: the rate after the warm-up.
    Decay {
        /// Falls with the inverse square root of the updates (Vaswani et al. 2017, eq. 3).
        InverseSqrt,
        /// Falls to zero at `schedule.max_updates`.
        Linear,
        /// Falls to zero at `schedule.max_updates`, as half a cosine wave (Loshchilov & Hutter
        /// 2017).
        Cosine,
        /// Constant.
        Constant,
    }
}

choice! {
    /// `optimiser.precision`: the type that the forward and backward passes compute in.
    Precision {
        /// 32 bits.
        F32,
        /// 16 bits, with a scaled loss.
        F16,
        /// 16 bits with the range of 32, in products.
        Bf16,
    }
}

choice! {
    /// `schedule.metric`: the metric of the best checkpoint.
    Metric {
        /// BLEU of the validation set, decoded with `schedule.beams`; more is better.
        Bleu,
        /// Loss per token of the validation set; less is better.
        Loss,
    }
}
