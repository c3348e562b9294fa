//! Products with 16 bits of each number, for sums over many columns as those of a softmax, whose
//! errors cancel out.
//!
//! Each number is rounded to a sum of two numbers of bfloat16, and the products of the second ones
//! are left out: half as many products of tiles (AMX-BF16) as f32 needs.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod tiles;

use crate::panels::{Lines, panels_of};
use crate::parallel::{Parallel, Shared, by_columns};
use crate::product::{Weights, length};
use std::ops::Range;

/// Columns of a panel, and rows of a block.
const BLOCK: usize = 32;
/// Number of rows from which on such products are faster: weights are divided for each product.
const FEWEST: usize = 32;

/// Rows that are multiplied by [`Weights::multiply_coarsely`].
#[derive(Debug)]
pub struct CoarseRows {
    /// `[n / 16, inputs / 32, 2, 16, 32]`
    parts: Lines<u16>,
    n: usize,
}

impl Weights {
    /// The given rows `x: [n, inputs]` for coarse products, if these are faster.
    ///
    /// # Panics
    /// If `x` does not have whole rows.
    pub fn coarse_rows(&self, x: &[f32]) -> Option<CoarseRows> {
        let n = x.len() / self.inputs().max(1);
        assert_eq!(x.len(), n * self.inputs(), "[n, inputs]");
        if n < FEWEST || !self.longest.is_finite() {
            return None;
        }
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if crate::tiles::are_usable() && self.columns == BLOCK {
            let mut parts = Lines::zeros(n.div_ceil(BLOCK) * parts_of_block(self.inputs()));
            // SAFETY: tiles are usable.
            unsafe { tiles::divide(x, [n, self.inputs()], parts.all_mut()) };
            return Some(CoarseRows { parts, n });
        }
        None
    }

    /// Some rows and columns of the product: `out: [rows, columns]`.
    ///
    /// # Panics
    /// If a length does not match its dimensions, the rows do not begin with one of 32, or the
    /// columns begin or end within one of 32.
    pub fn multiply_coarsely(
        &self,
        x: &CoarseRows,
        (rows, columns): (Range<usize>, Range<usize>),
        out: &mut [f32],
        threads: &dyn Parallel,
    ) {
        let panels = panels_of(&columns, self.outputs(), BLOCK);
        assert!(rows.start.is_multiple_of(BLOCK) && rows.end <= x.n, "rows {rows:?} of {}", x.n);
        assert_eq!(out.len(), rows.len() * columns.len(), "[rows, columns]");
        let (size, blocks) =
            (parts_of_block(self.inputs()), rows.start / BLOCK..rows.end.div_ceil(BLOCK));
        let (x, n) = (&x.parts.all()[blocks.start * size..blocks.end * size], rows.len());
        let out = Shared::new(out);
        by_columns(threads, [n, self.inputs(), panels.len()], |panels| {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: rows exist only where tiles are usable.
            unsafe {
                tiles::multiply(self, &columns, (x, n), &out, panels)
            };
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            let _ = (x, n, &out, panels);
        });
    }

    /// The largest error of a number of a row's coarse product; infinite or NaN if a number is. No
    /// product of vectors is larger than the product of their lengths.
    pub fn coarse_error(&self, row: &[f32]) -> f32 {
        /// The roundings of both factors, and the product that is left out; slightly more.
        const OF_PRODUCT: f32 = 3.01 / 65_536.0;
        let of_sum = (self.inputs() + 8) as f32 * f32::EPSILON;
        (OF_PRODUCT + of_sum) * length(row) * self.longest
    }
}

/// Numbers of the parts of 32 rows.
fn parts_of_block(inputs: usize) -> usize {
    inputs.div_ceil(BLOCK) * 2 * BLOCK * BLOCK
}
