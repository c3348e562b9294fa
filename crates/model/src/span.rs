//! The positions of queries and keys, and the score of what a query does not read.

use cognate_graph::{Dim, Tensor};

/// Added to masked scores. Finite, so that a fully masked row contains no NaN. Next to any real
/// score its exponential is zero.
pub(crate) const HIDDEN: f32 = -1e9;

/// Queries and keys of self-attention: queries `past..past + tgt`, keys `0..past + tgt`.
#[derive(Clone, Copy)]
pub(crate) struct Span<'s, 'g> {
    pub(crate) past: &'s Dim,
    pub(crate) tgt: &'s Dim,
    /// The positions of the queries, `i64 [batch, (beams,) tgt]`, if they differ from these
    /// numbers.
    pub(crate) positions: Option<Tensor<'g>>,
    /// Whether keys are in caches, whose operator applies windows.
    pub(crate) cached: bool,
}
