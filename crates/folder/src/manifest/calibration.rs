//! How an export in f16 was tuned.

use super::StepsReport;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What stays f32 for the sake of precision, and how many greedy steps then choose as f32 does, on the reference evaluator in
/// f32. The sentences used for tuning flatter the choice: the held-out ones measure it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    /// What stays f32.
    pub caution: Caution,
    /// Steps of the sentences used for tuning.
    pub tuned: StepsReport,
    /// Steps of the held-out sentences.
    pub held_out: StepsReport,
}

impl Calibration {
    /// Whether no caution was enough, and the last was taken.
    pub fn gave_up(&self) -> bool {
        !self.tuned.passed()
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { caution, tuned, held_out } = self;
        let caution = match caution {
            Caution::Nothing => "nothing",
            Caution::Encoder => "the encoder",
            Caution::Stacks => "both stacks and the output",
        };
        write!(f, "{caution} in f32 for precision: {}", if self.gave_up() { "NOT REACHED: " } else { "" })?;
        write!(f, "{} of {} greedy steps equal on tuning sentences, ", tuned.equal, tuned.steps)?;
        write!(f, "{} of {} on held-out ones{}", held_out.equal, held_out.steps, if held_out.passed() { "" } else { "  LOW" })
    }
}

/// What is kept in f32 for the sake of precision, until greedy decoding of a sample chooses the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caution {
    /// Nothing.
    Nothing,
    /// Everything that the encoder computes: an error there is in every step.
    Encoder,
    /// Everything that both stacks and the output compute; tables, keys and values stay f16.
    Stacks,
}

impl Caution {
    /// Every caution, the least first.
    pub const ALL: [Caution; 3] = [Caution::Nothing, Caution::Encoder, Caution::Stacks];
}
