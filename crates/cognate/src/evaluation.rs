//! BLEU, chrF and error rates, with significance tests: equal to sacreBLEU's.

mod scores;

pub use cognate_text::{
    Bleu, BleuSettings, ChrfSettings, ErrorRateSettings, ErrorUnit, Metric, Resampling, Score,
    Smoothing, Words, corpus_bleu,
};
pub use scores::{MetricScores, Scores, SystemScore};
