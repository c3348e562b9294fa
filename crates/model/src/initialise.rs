//! Seeded initial weights.
//!
//! Matrices follow [`Initialisation`], embeddings are normal with standard deviation `d_model^-½`,
//! normalisation scales one and biases zero. Elements can be computed in any order.

use cognate_graph::{Generator, Recipe};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The distribution of initial matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initialisation {
    /// Uniform in `±√(6 / (in + out))` (Glorot & Bengio 2010).
    #[default]
    Glorot,
    /// Normal with standard deviation 0.02, as transformers initialises these families. Sublayers
    /// add little at first, so post-norm models train at high learning rates.
    Normal,
}

/// The standard deviation of [`Initialisation::Normal`].
const DEVIATION: f32 = 0.02;

/// The initial values of the parameter at `path`. The stream distinguishes the
/// parameters of a model.
pub(crate) fn initial(
    path: &str,
    shape: &[usize],
    initialisation: Initialisation,
    [seed, stream]: [u64; 2],
) -> Recipe {
    let distribution = match shape {
        [_, width]
            if ["shared.", "embed_tokens.", "embed_positions."]
                .iter()
                .any(|table| path.contains(table)) =>
        {
            Distribution::Normal { deviation: (*width as f32).powf(-0.5) }
        }
        // A vector per head, from d_k values to one.
        [_, d_k] if path.ends_with("score.weight") => {
            Distribution::Uniform { bound: (6.0 / (d_k + 1) as f32).sqrt() }
        }
        [out, width] => match initialisation {
            Initialisation::Glorot => {
                Distribution::Uniform { bound: (6.0 / (out + width) as f32).sqrt() }
            }
            Initialisation::Normal => Distribution::Normal { deviation: DEVIATION },
        },
        _ if path.ends_with("layer_norm.weight") => Distribution::Constant(1.0),
        _ => Distribution::Constant(0.0),
    };
    Recipe::generated(Arc::new(Initial { distribution, seed, stream }), shape)
}

#[derive(Debug)]
struct Initial {
    distribution: Distribution,
    seed: u64,
    stream: u64,
}

#[derive(Clone, Copy, Debug)]
enum Distribution {
    Constant(f32),
    /// In `±bound`.
    Uniform {
        bound: f32,
    },
    /// With mean 0.
    Normal {
        deviation: f32,
    },
}

impl Generator for Initial {
    fn fill(&self, first: usize, values: &mut [f32]) {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(self.stream);
        // Two words per element.
        random.set_word_pos(2 * first as u128);
        // In [0, 1), with 24 bits.
        let mut unit = || (random.next_u32() >> 8) as f32 / (1 << 24) as f32;
        for value in values {
            let (a, b) = (unit(), unit());
            *value = match self.distribution {
                Distribution::Constant(constant) => constant,
                Distribution::Uniform { bound } => (2.0 * a - 1.0) * bound,
                // Box and Muller 1958; 1 - a is never zero.
                Distribution::Normal { deviation } => {
                    (-2.0 * (1.0 - a).ln()).sqrt() * (std::f32::consts::TAU * b).cos() * deviation
                }
            };
        }
    }
}
