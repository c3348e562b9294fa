//! Training by several processes: each takes its share of every batch, and the sums of gradients are those of all.
//!
//! Every process, a rank, holds the whole model and reads the whole text. Between the gradient graph and the update graph, gradients
//! and losses are summed over all ranks; what follows is the same arithmetic on the same numbers everywhere, so weights stay equal
//! to the bit and are never sent. The first rank alone writes files.

use crate::error::{Cause, Result};

/// The processes that train one model: who we are among them, and what all do together.
///
/// All ranks make the same calls in the same order; a call ends when all have made it. If one rank is lost, the others are to end.
pub trait Ranks {
    /// Which one this process is, from 0.
    fn rank(&self) -> usize;

    /// How many there are, at least 1.
    fn size(&self) -> usize;

    /// Puts the sums over all ranks in the place of each rank's values, with the same bits in all ranks.
    fn sum(&self, values: &mut [f32]);

    /// As [`Ranks::sum`], in double precision.
    fn sum_f64(&self, values: &mut [f64]);

    /// Puts what the rank `root` has in the place of what the others have.
    fn broadcast(&self, root: usize, bytes: &mut Vec<u8>);
}

/// One process by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Ranks for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn sum(&self, _: &mut [f32]) {}

    fn sum_f64(&self, _: &mut [f64]) {}

    fn broadcast(&self, _: usize, _: &mut Vec<u8>) {}
}

/// Whether this rank writes the files, and speaks.
pub(crate) fn leads(ranks: &dyn Ranks) -> bool {
    ranks.rank() == 0
}

/// What each rank has, in their order.
pub(crate) fn gather(ranks: &dyn Ranks, mine: &[u8]) -> Vec<Vec<u8>> {
    let of = |root| {
        let mut bytes = if root == ranks.rank() { mine.to_vec() } else { Vec::new() };
        ranks.broadcast(root, &mut bytes);
        bytes
    };
    (0..ranks.size()).map(of).collect()
}

/// Whether all ranks have the same, which a hash stands for.
///
/// # Errors
/// In all ranks, if one differs from the first, naming `what`; in one, if its hash cannot be told.
pub(crate) fn agree(ranks: &dyn Ranks, what: &str, hash: impl FnOnce() -> Result<blake3::Hash>) -> Result<()> {
    if ranks.size() == 1 {
        return Ok(());
    }
    let all = gather(ranks, hash()?.as_bytes());
    match all.iter().position(|other| *other != all[0]) {
        None => Ok(()),
        Some(rank) => Err(Cause::Ranks(format!("rank {rank} has other {what} than rank 0; all need the same")).into()),
    }
}
