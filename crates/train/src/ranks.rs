//! Data-parallel training: each process (rank) computes the gradients of its share of every batch.
//!
//! Every rank holds the whole model and reads the whole text. Gradients and losses are summed over
//! all ranks before the update, which is the same in all ranks: weights stay bit for bit equal and
//! are never sent. Only the first rank writes files.

use crate::error::{Cause, Result};

/// The processes that train one model.
///
/// All ranks make the same calls in the same order; a call returns when all ranks have made it.
pub trait Ranks {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// The number of processes, at least 1.
    fn size(&self) -> usize;

    /// Replaces the values by their sums over all ranks, with the same bits in all ranks.
    fn sum(&self, values: &mut [f32]);

    /// As [`Ranks::sum`], in double precision.
    fn sum_f64(&self, values: &mut [f64]);

    /// Replaces the bytes by those of the rank `root`.
    fn broadcast(&self, root: usize, bytes: &mut Vec<u8>);
}

/// A single process.
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

/// Whether this rank writes files and messages.
pub(crate) fn leads(ranks: &dyn Ranks) -> bool {
    ranks.rank() == 0
}

/// The bytes of all ranks in order.
pub(crate) fn gather(ranks: &dyn Ranks, mine: &[u8]) -> Vec<Vec<u8>> {
    let of = |root| {
        let mut bytes = if root == ranks.rank() { mine.to_vec() } else { Vec::new() };
        ranks.broadcast(root, &mut bytes);
        bytes
    };
    (0..ranks.size()).map(of).collect()
}

/// Checks that all ranks have the same hash.
///
/// # Errors
/// In all ranks, if one differs from the first; in one, if its hash cannot be computed.
pub(crate) fn agree(
    ranks: &dyn Ranks,
    what: &str,
    hash: impl FnOnce() -> Result<blake3::Hash>,
) -> Result<()> {
    if ranks.size() == 1 {
        return Ok(());
    }
    let all = gather(ranks, hash()?.as_bytes());
    match all.iter().position(|other| *other != all[0]) {
        None => Ok(()),
        Some(rank) => Err(Cause::Ranks(format!(
            "rank {rank} has other {what} than rank 0; all need the same"
        ))
        .into()),
    }
}
