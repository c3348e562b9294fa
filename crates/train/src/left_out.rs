//! Pairs of sentences that are left out of all batches.

use std::fmt;
use std::ops::AddAssign;

/// Numbers of pairs left out for their tokens, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// One side or both have too many tokens.
    pub long: u64,
    /// One side has too many pieces relative to the other.
    pub ratio: u64,
    /// The source contains the padding token, or the target contains the padding token or one that
    /// ends it: the model would learn to stop there.
    pub special: u64,
}

impl AddAssign for LeftOut {
    fn add_assign(&mut self, other: Self) {
        self.long += other.long;
        self.ratio += other.ratio;
        self.special += other.special;
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { long, ratio, special } = self;
        write!(
            formatter,
            "{long} with too many tokens, {ratio} with one side too long for the other, {special} that contain special tokens"
        )
    }
}
