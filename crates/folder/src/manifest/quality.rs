//! The comparison of a lower precision with f32: BLEU on a text, and steps of greedy search.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The comparison of an export with the same model in f32 on the same engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// The engine with version and provider.
    pub engine: String,
    /// The search: `greedy`, or `beam N`.
    pub method: String,
    /// The number of lines of the text.
    pub sentences: usize,
    /// Steps of greedy search; none of an encoder alone.
    pub steps: StepsComparison,
    /// Vectors of an encoder alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vectors: Option<VectorComparison>,
    /// BLEU; `None` for bundled sentences, which have no references.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bleu: Option<BleuComparison>,
}

/// Steps of greedy search along the translations of the f32 model: a difference does not affect
/// later steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepsComparison {
    /// The number of steps, ends of sentences included.
    pub steps: usize,
    /// The number of steps with the same token.
    pub equal: usize,
}

/// Cosines of the vectors that both make of a sentence, the means of its states.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VectorComparison {
    /// Their mean.
    pub mean_cosine: f64,
    /// The least of them.
    pub least_cosine: f64,
}

impl VectorComparison {
    /// Of pairs of vectors.
    pub fn of<'v>(pairs: impl Iterator<Item = (&'v Vec<f32>, &'v Vec<f32>)>) -> Self {
        let product = |one: &[f32], other: &[f32]| {
            one.iter().zip(other).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
        };
        let cosine = |(one, other): (&Vec<f32>, &Vec<f32>)| {
            product(one, other) / (product(one, one) * product(other, other)).sqrt()
        };
        let cosines: Vec<f64> = pairs.map(cosine).collect();
        let mean_cosine = cosines.iter().sum::<f64>() / cosines.len().max(1) as f64;
        Self { mean_cosine, least_cosine: cosines.into_iter().fold(1.0, f64::min) }
    }
}

/// BLEU of both, `0..=100`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BleuComparison {
    /// The name of the file of source lines.
    pub source: String,
    /// The name of the file of reference lines.
    pub reference: String,
    /// BLEU in f32.
    pub f32: f64,
    /// BLEU of the export.
    pub exported: f64,
    /// sacreBLEU's signature.
    pub signature: String,
}

impl BleuComparison {
    /// The BLEU lost relative to f32.
    pub fn loss(&self) -> f64 {
        self.f32 - self.exported
    }

    /// A larger loss is a warning: trainings with different seeds differ by as much.
    pub const LOSS_LIMIT: f64 = 0.3;

    /// Whether the loss exceeds the limit.
    pub fn is_low(&self) -> bool {
        self.loss() > Self::LOSS_LIMIT
    }
}

impl fmt::Display for Quality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            engine,
            method,
            sentences,
            steps: StepsComparison { steps, equal },
            vectors,
            bleu,
        } = self;
        let text = bleu.as_ref().map_or("the bundled text", |bleu| bleu.source.as_str());
        writeln!(f, "compared with f32 on {engine}: {sentences} sentences of {text}, {method}")?;
        if let Some(bleu) = bleu {
            let (loss, mark) = (bleu.loss(), if bleu.is_low() { "  LOW" } else { "" });
            let change = format!("{:.2} {}", loss.abs(), if loss < 0.0 { "more" } else { "less" });
            writeln!(
                f,
                "  {:<34} {:.2}, in f32 {:.2}: {change}{mark}",
                "BLEU", bleu.exported, bleu.f32
            )?;
        }
        if let Some(VectorComparison { mean_cosine, least_cosine }) = vectors {
            return writeln!(
                f,
                "  {:<34} {mean_cosine:.6} in the mean, {least_cosine:.6} at least",
                "cosines"
            );
        }
        let share = 100.0 * *equal as f64 / (*steps).max(1) as f64;
        writeln!(f, "  {:<34} {} of {} equal, {share:.2}%", "greedy steps", equal, steps)
    }
}
