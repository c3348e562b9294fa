//! The learning rate of each update.

use std::f64::consts::PI;

use crate::config::{Decay, TrainingConfig};

/// The rate of an update, counted from 1, of a model of width `d_model`.
pub(super) fn rate(config: &TrainingConfig, d_model: usize, update: u64) -> f64 {
    let optimiser = &config.optimiser;
    let warmup = optimiser.warmup_updates;
    let paper =
        || optimiser.factor.unwrap_or(1.0) * (d_model as f64 * warmup.max(1) as f64).powf(-0.5);
    let peak = optimiser.learning_rate.unwrap_or_else(paper);
    let rising = peak * (update as f64 / warmup.max(1) as f64).min(1.0);
    match (optimiser.decay, config.schedule.max_updates) {
        (Decay::InverseSqrt, _) if update > warmup => peak * (warmup as f64 / update as f64).sqrt(),
        (decay @ (Decay::Linear | Decay::Cosine), Some(last)) if update > warmup => {
            let left =
                last.saturating_sub(update) as f64 / last.saturating_sub(warmup).max(1) as f64;
            peak * if decay == Decay::Linear { left } else { (1.0 - (PI * left).cos()) / 2.0 }
        }
        (Decay::InverseSqrt | Decay::Linear | Decay::Cosine | Decay::Constant, _) => rising,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_the_file() {
        let rates = |optimiser: &str| {
            let text = format!(
                "data.train = [{{ tsv = \"a\" }}]\nschedule.max_updates = 1000\n[optimiser]\nwarmup_updates = 100\n{optimiser}\n"
            );
            let config = TrainingConfig::from_toml(&text, "file").expect("a training file");
            [1, 50, 100, 400, 1_000].map(|update| rate(&config, 64, update))
        };
        assert_eq!(rates("learning_rate = 0.1"), [0.001, 0.05, 0.1, 0.05, 0.1 * 0.1f64.sqrt()]);
        assert_eq!(
            rates("learning_rate = 0.1\ndecay = \"linear\"").map(|rate| (rate * 1e6).round()),
            [1e3, 5e4, 1e5, 66_667.0, 0.0]
        );
        // PyTorch 2.15: CosineAnnealingLR(optimizer, T_max=900) after 300 steps.
        assert_eq!(
            rates("learning_rate = 0.1\ndecay = \"cosine\"").map(|rate| (rate * 1e6).round()),
            [1e3, 5e4, 1e5, 75_000.0, 0.0]
        );
        assert_eq!(
            rates("learning_rate = 0.1\ndecay = \"constant\""),
            [0.001, 0.05, 0.1, 0.1, 0.1]
        );
        // 64^-½ 100^-½, twice.
        assert_eq!(rates("factor = 2.0")[2], 0.025);
    }
}
