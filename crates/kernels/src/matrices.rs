//! Products of two matrices that both change from call to call, as those of gradients are:
//! `out = A B + bias`.
//!
//! `A: [n, inputs]`, `B: [inputs, outputs]`, `out: [n, outputs]`; `A` and `B` are in memory row
//! after row or column after column. Every number is the sum of its products in their order, or by
//! tiles, as in [`Weights::multiply`](crate::Weights::multiply).

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod pairs;

use crate::matrix::Matrix;
use crate::panels::Lines;
use crate::parallel::{Parallel, Shared, by_columns, by_parts};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::product::tiles::blocks;
use crate::product::{Multiply, Packed, columns_of_panels};
use crate::screen::dots;
use crate::stored::Stored;
use crate::transpose::transpose;
use std::cell::Cell;
use std::ops::Range;

/// Inputs that are multiplied at once, so that a panel of them stays in the cache while rows are
/// multiplied by it; twice as many if rows are in memory as they are read.
const INPUTS: usize = 512;

/// Weights that are packed at once: 2 MiB, which stay in the cache while all rows are multiplied.
const WEIGHTS: usize = 1 << 19;

/// The columns of the widest panel.
const WIDEST: usize = 32;

/// Rows that are transposed at once, so that they stay in the cache while all panels are read.
const ROWS: usize = 96;

/// Added to the distance of rows that were columns: at a distance of a power of two they would
/// share the same few lines of a cache.
const APART: usize = 16;

/// Rows that are packed at once, so that their pages stay known.
const TOGETHER: usize = 16;

impl Matrix<'_> {
    /// `A B + bias`; without a bias, which has a number for each column, 0 is added.
    ///
    /// # Panics
    /// If a size does not match.
    pub fn multiply(
        self,
        right: Matrix<'_>,
        bias: Option<&[f32]>,
        out: &mut [f32],
        threads: &dyn Parallel,
    ) {
        let [n, inputs, outputs] = self.sizes_of_product(right, out);
        assert!(bias.is_none_or(|bias| bias.len() == outputs), "a number for each column");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if blocks::fit([n, inputs, outputs]) {
            return blocks::multiply([self, right], bias, out, threads);
        }
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.in_bf16 && pairs::fit([n, inputs, outputs]) {
            return pairs::multiply([self, right], bias, (out, false), threads);
        }
        if outputs == 1 && bias.is_none() {
            // A column is in memory like a row.
            return dots(
                right.numbers,
                self.rows([0..n, 0..inputs], inputs, &mut Lines::default()).0,
                out,
            );
        }
        self.sum_parts(right, bias, out, false, threads);
    }

    /// Adds `A B` to `out`.
    ///
    /// # Panics
    /// If a size does not match.
    pub fn add(self, right: Matrix<'_>, out: &mut [f32], threads: &dyn Parallel) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let sizes = self.sizes_of_product(right, out);
            if blocks::fit(sizes) {
                let mut part = vec![0.0; out.len()];
                blocks::multiply([self, right], None, &mut part, threads);
                return out.iter_mut().zip(&part).for_each(|(to, part)| *to += part);
            }
            if self.in_bf16 && pairs::fit(sizes) {
                return pairs::multiply([self, right], None, (out, true), threads);
            }
        }
        self.sum_parts(right, None, out, true, threads);
    }

    /// `n`, `inputs` and `outputs`.
    fn sizes_of_product(self, right: Matrix<'_>, out: &[f32]) -> [usize; 3] {
        let ([n, inputs], [height, outputs]) = (self.sizes, right.sizes);
        assert_eq!(inputs, height, "columns of A and rows of B");
        assert_eq!(out.len(), n * outputs, "[n, outputs]");
        [n, inputs, outputs]
    }

    /// `A B + bias`, which is added to `out` if `adds`, by parts of the inputs and the columns.
    fn sum_parts(
        self,
        right: Matrix<'_>,
        bias: Option<&[f32]>,
        out: &mut [f32],
        adds: bool,
        threads: &dyn Parallel,
    ) {
        let [n, inputs, outputs] = self.sizes_of_product(right, out);
        let out = &Shared::new(out);
        let most = if self.is_transposed { INPUTS } else { 2 * INPUTS };
        let wide = WEIGHTS / inputs.clamp(1, most) / WIDEST * WIDEST;
        // As many for each thread.
        let n_blocks = n.div_ceil(ROWS).next_multiple_of(threads.threads().max(1));
        let mut packed = PACKED.take();
        for first in (0..outputs).step_by(wide) {
            let columns = first..outputs.min(first + wide);
            for start in (0..inputs.max(1)).step_by(most) {
                let some = start..inputs.min(start + most);
                let bias = bias.filter(|_| some.end == inputs).map(|bias| &bias[columns.clone()]);
                let weights = right.packed([&some, &columns], bias, &mut packed, threads);
                let n_panels = weights.bias.len() / columns_of_panels();
                let work = |rows: Range<usize>, panels: Range<usize>, room: &mut Lines<f32>| {
                    let (n, begin) = (rows.len(), rows.start * outputs + first);
                    let (x, stride) = self.rows([rows, some.clone()], INPUTS + APART, room);
                    let (strides, adds) = ([stride, outputs], adds || start > 0);
                    f32::dispatch(Multiply {
                        weights,
                        x,
                        strides,
                        out,
                        start: begin,
                        n,
                        panels,
                        adds,
                    });
                };
                if self.is_transposed {
                    by_parts(threads, n_blocks, n * some.len() * columns.len(), |blocks| {
                        let mut room = ROOM.take();
                        for block in blocks {
                            let begin = |block: usize| n * block / n_blocks;
                            work(begin(block)..begin(block + 1), 0..n_panels, &mut room);
                        }
                        ROOM.set(room);
                    });
                } else {
                    by_columns(threads, [n, some.len(), n_panels], |panels| {
                        work(0..n, panels, &mut Lines::default());
                    });
                }
            }
        }
        PACKED.set(packed);
    }

    /// Some columns of some rows, and the distance between rows, which is `apart` if they are
    /// columns in memory.
    fn rows<'r>(
        &'r self,
        [rows, some]: [Range<usize>; 2],
        apart: usize,
        room: &'r mut Lines<f32>,
    ) -> (&'r [f32], usize) {
        let [n, width] = self.sizes;
        if !self.is_transposed {
            let start = rows.start * width + some.start;
            return (self.numbers.get(start..).unwrap_or_default(), width);
        }
        let to = room.first(rows.len() * apart);
        let from = self.numbers.get(some.start * n + rows.start..).unwrap_or_default();
        transpose([some.len(), rows.len()], (from, n), (to, apart));
        (to, apart)
    }

    /// Some columns of some rows in panels.
    fn packed<'r>(
        &self,
        [some, chosen]: [&Range<usize>; 2],
        given: Option<&[f32]>,
        (panels, bias): &'r mut (Lines<f32>, Vec<f32>),
        threads: &dyn Parallel,
    ) -> Packed<'r> {
        let ([height, width], columns) = (self.sizes, columns_of_panels());
        let (inputs, outputs, n_panels) =
            (some.len(), chosen.len(), chosen.len().div_ceil(columns));
        bias.clear();
        bias.extend_from_slice(given.unwrap_or_default());
        bias.resize(n_panels * columns, 0.0);
        let to = panels.first(n_panels * inputs * columns);
        let shared = Shared::new(&mut *to);
        by_parts(threads, n_panels, inputs * outputs, |panels| {
            let of_panel = |panel: usize| {
                let first = panel * columns;
                // SAFETY: each thread has its own panels.
                let to = unsafe { shared.part(first * inputs, inputs * columns) };
                (to, chosen.start + first, columns.min(outputs - first))
            };
            if self.is_transposed {
                for (to, first, n) in panels.map(of_panel) {
                    if n < columns {
                        to.fill(0.0);
                    }
                    let from = &self.numbers[first * height + some.start..];
                    transpose([n, inputs], (from, height), (to, columns));
                }
                return;
            }
            for start in (0..inputs).step_by(TOGETHER) {
                for (to, first, n) in panels.clone().map(of_panel) {
                    let rows = self.numbers.chunks_exact(width).skip(some.start + start);
                    let to = to[start * columns..].chunks_exact_mut(columns).take(TOGETHER);
                    for (to, row) in to.zip(rows) {
                        put(&row[first..][..n], to);
                    }
                }
            }
        });
        Packed { panels: to, bias, inputs, outputs }
    }
}

/// Writes a part of a row, and zeros after it.
fn put(row: &[f32], to: &mut [f32]) {
    if put_all::<16>(row, to) || put_all::<32>(row, to) {
        return;
    }
    let (to, rest) = to.split_at_mut(row.len());
    to.copy_from_slice(row);
    rest.fill(0.0);
}

/// Writes exactly `N` numbers, without the call that other lengths take, if there are as many.
#[inline(always)]
fn put_all<const N: usize>(row: &[f32], to: &mut [f32]) -> bool {
    let (Ok(row), Ok(to)) = (<&[f32; N]>::try_from(row), <&mut [f32; N]>::try_from(to)) else {
        return false;
    };
    *to = *row;
    true
}

thread_local! {
    /// The panels and the bias of a product, for the next one.
    static PACKED: Cell<(Lines<f32>, Vec<f32>)> = Cell::default();
    /// A block of rows that are columns in memory.
    static ROOM: Cell<Lines<f32>> = Cell::default();
}
