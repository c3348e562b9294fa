//! Loss, optimiser and dropout seeds according to the settings.

use cognate_model::{DropoutRates, Loss};

use crate::config::{OptimiserAlgorithm, TrainingConfig};
use crate::optimiser::{Optimiser, Rule};

/// The dropout seed of a batch, 31 bits by SplitMix64 (Steele et al. 2014).
pub(super) fn dropout_seed(seed: u64, update: u64, micro: u64) -> i64 {
    let mix = |mut x: u64| {
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    let step = 0x9e37_79b9_7f4a_7c15_u64;
    let mixed = [update, micro].into_iter().fold(mix(seed.wrapping_add(step)), |state, number| {
        mix(state.wrapping_add(step).wrapping_add(mix(number.wrapping_add(step))))
    });
    (mixed >> 33) as i64
}

pub(super) fn loss(config: &TrainingConfig) -> Loss {
    let dropout = &config.dropout;
    Loss {
        label_smoothing: config.optimiser.label_smoothing as f32,
        dropout: DropoutRates {
            embedding: dropout.embeddings as f32,
            sublayer: dropout.sublayers as f32,
            attention: dropout.attention as f32,
            activation: dropout.activation as f32,
        },
        consistency: dropout.consistency as f32,
    }
}

pub(super) fn optimiser(config: &TrainingConfig) -> Optimiser {
    let optimiser = &config.optimiser;
    Optimiser {
        rule: match optimiser.algorithm {
            OptimiserAlgorithm::Adam | OptimiserAlgorithm::Adamw => Rule::Adam,
            OptimiserAlgorithm::Lion => Rule::Lion,
            OptimiserAlgorithm::Muon => Rule::Muon,
        },
        betas: [optimiser.beta1, optimiser.beta2],
        epsilon: optimiser.epsilon,
        weight_decay: optimiser.weight_decay,
        clip_norm: optimiser.clip_norm,
        average: optimiser.ema_decay,
    }
}
