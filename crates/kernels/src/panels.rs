//! Panels of packed weights, and the tiles of a product that are summed in registers.

use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

/// The panels of some columns of `outputs`; each panel has `width` columns.
///
/// # Panics
/// If a column does not exist, or the columns begin or end within a panel.
pub(crate) fn panels_of(columns: &Range<usize>, outputs: usize, width: usize) -> Range<usize> {
    let is_whole = columns.start.is_multiple_of(width)
        && (columns.end == outputs || columns.end.is_multiple_of(width));
    assert!(
        is_whole && columns.start <= columns.end && columns.end <= outputs,
        "columns {columns:?} of {outputs}: whole panels of {width}"
    );
    columns.start / width..columns.end.div_ceil(width)
}

/// A cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Line([u8; 64]);

/// Numbers that start at a cache line.
#[derive(Debug)]
pub(crate) struct Lines<T> {
    lines: Vec<Line>,
    len: usize,
    _numbers: PhantomData<T>,
}

/// Number types for which every bit pattern is valid.
pub trait Number: Copy {}
impl Number for f32 {}
impl Number for i8 {}
impl Number for u16 {}
impl Number for half::f16 {}

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Self { lines: Vec::new(), len: 0, _numbers: PhantomData }
    }
}

impl<T: Number> Lines<T> {
    pub(crate) fn zeros(len: usize) -> Self {
        Self {
            lines: vec![Line([0; 64]); (len * size_of::<T>()).div_ceil(64)],
            len,
            _numbers: PhantomData,
        }
    }

    /// The first `len` numbers, which are arbitrary; makes room for them.
    pub(crate) fn first(&mut self, len: usize) -> &mut [T] {
        if self.len < len {
            *self = Self::zeros(len);
        }
        &mut self.all_mut()[..len]
    }

    /// Frees memory of more than 2 MiB.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub(crate) fn trim(&mut self) {
        if self.lines.len() * size_of::<Line>() > 1 << 21 {
            *self = Self::default();
        }
    }

    pub(crate) fn all(&self) -> &[T] {
        // SAFETY: lines are aligned for every number type and contain at least `len` numbers, and
        // any bytes are valid.
        unsafe { slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }

    pub(crate) fn all_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

/// Computes tiles of a product.
pub(crate) trait Tiles {
    /// Number of rows whose sums fit into registers, at most 12. Larger tiles are not compiled.
    const MOST: usize;

    /// The tile of `ROWS` rows from `row` and `PANELS` panels from `panel`. A tile of one panel
    /// prefetches the weights that are `ahead` bytes after those that it reads.
    fn tile<const ROWS: usize, const PANELS: usize>(&self, row: usize, panel: usize, ahead: usize);

    /// The size of a panel in bytes.
    fn bytes(&self) -> usize;
}

/// Covers `n` rows and some panels with tiles. Rows of `bytes` bytes are processed in blocks that
/// stay in the cache while all weights are read.
#[inline(always)]
pub(crate) fn tiles<T: Tiles>(n: usize, bytes: usize, panels: Range<usize>, work: T) {
    const BLOCK: usize = 1 << 18;
    /// Further than the processor's own prefetching during products, and less than fits into the
    /// second-level cache.
    const AHEAD: usize = 1 << 14;
    let block = (BLOCK / bytes.max(1)).max(T::MOST);
    let mut first = 0;
    while first < n {
        let rows = (n - first).min(block);
        let mut panel = panels.start;
        while panel < panels.end {
            // One or two rows have too few sums to keep the processor busy.
            let together = match rows {
                1 => 4,
                2 | 3 => 2,
                _ => 1,
            };
            let together = if panel + together <= panels.end { together } else { 1 };
            let (mut row, mut left) = (first, rows);
            while left > 0 {
                // Equal shares: a last tile of one row would use its weights for little work.
                let share = left.div_ceil(left.div_ceil(T::MOST));
                // The first tile reads a panel from memory; the others meanwhile prefetch the next
                // one.
                let ahead = if row == first { AHEAD } else { work.bytes() };
                one(&work, [share, together], row, panel, ahead);
                (row, left) = (row + share, left - share);
            }
            panel += together;
        }
        first += rows;
    }
}

#[inline(always)]
fn one<T: Tiles>(work: &T, shape: [usize; 2], row: usize, panel: usize, ahead: usize) {
    match shape {
        [1, 4] => work.tile::<1, 4>(row, panel, ahead),
        [1, _] => work.tile::<1, 1>(row, panel, ahead),
        [2, 2] => work.tile::<2, 2>(row, panel, ahead),
        [2, _] => work.tile::<2, 1>(row, panel, ahead),
        [3, 2] => work.tile::<3, 2>(row, panel, ahead),
        [3, _] => work.tile::<3, 1>(row, panel, ahead),
        [4, _] if const { T::MOST >= 4 } => work.tile::<4, 1>(row, panel, ahead),
        [5, _] if const { T::MOST >= 5 } => work.tile::<5, 1>(row, panel, ahead),
        [6, _] if const { T::MOST >= 6 } => work.tile::<6, 1>(row, panel, ahead),
        [7, _] if const { T::MOST >= 7 } => work.tile::<7, 1>(row, panel, ahead),
        [8, _] if const { T::MOST >= 8 } => work.tile::<8, 1>(row, panel, ahead),
        [9, _] if const { T::MOST >= 9 } => work.tile::<9, 1>(row, panel, ahead),
        [10, _] if const { T::MOST >= 10 } => work.tile::<10, 1>(row, panel, ahead),
        [11, _] if const { T::MOST >= 11 } => work.tile::<11, 1>(row, panel, ahead),
        [12, _] if const { T::MOST >= 12 } => work.tile::<12, 1>(row, panel, ahead),
        _ => unreachable!("a tile of {} rows, of at most {}", shape[0], T::MOST),
    }
}
