//! The calibration of an export in f16.

use super::StepsReport;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The parts that stay f32 for precision, and the number of greedy steps that then equal those of
/// f32 on the reference evaluator. Steps on tuning sentences are biased; those on held-out
/// sentences measure the precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    /// The parts that stay f32.
    pub caution: Caution,
    /// Steps of the sentences used for tuning.
    pub tuned: StepsReport,
    /// Steps of the held-out sentences.
    pub held_out: StepsReport,
}

impl Calibration {
    /// Whether the precision was not reached with any caution.
    pub fn gave_up(&self) -> bool {
        !self.tuned.passed()
    }

    /// The warning if f16 is not precise enough.
    pub fn warning(&self) -> Option<String> {
        let steps = |what: &str, StepsReport { steps, equal, wanted }: StepsReport| {
            format!(
                "{equal} of {steps} greedy steps on {what} choose the same token as f32, expected at least {wanted}"
            )
        };
        if self.gave_up() {
            let found = steps("tuning sentences", self.tuned);
            return Some(format!(
                "f16 is not precise enough for this model: with both stacks in f32, {found}; export in f32"
            ));
        }
        let found = Some(self.held_out).filter(|held_out| !held_out.passed());
        found.map(|held_out| {
            format!("f16: {}; measure BLEU with --data", steps("held-out sentences", held_out))
        })
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
        write!(
            f,
            "{caution} in f32 for precision: {}",
            if self.gave_up() { "NOT REACHED: " } else { "" }
        )?;
        write!(f, "{} of {} greedy steps equal on tuning sentences, ", tuned.equal, tuned.steps)?;
        write!(
            f,
            "{} of {} on held-out ones{}",
            held_out.equal,
            held_out.steps,
            if held_out.passed() { "" } else { "  LOW" }
        )
    }
}

/// The parts that stay f32 for precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caution {
    /// Nothing.
    Nothing,
    /// The encoder: its errors affect every step.
    Encoder,
    /// Both stacks and the output; tables, keys and values are f16.
    Stacks,
}

impl Caution {
    /// Every caution, the least first.
    pub const ALL: [Caution; 3] = [Caution::Nothing, Caution::Encoder, Caution::Stacks];
}
