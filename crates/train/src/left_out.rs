//! Pairs of sentences that are in no batch.

use std::fmt;
use std::ops::AddAssign;

/// How many pairs are in no batch for their tokens, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// One side or both have too many tokens.
    pub long: u64,
    /// One side has too many pieces for the other.
    pub ratio: u64,
    /// The source spells the padding token, or the target that or one that ends it: the model would
    /// learn to stop there.
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
            "{long} with too many tokens, {ratio} with one side too long for the other, {special} that spell special tokens"
        )
    }
}
