//! Products of many rows by tiles of bfloat16 (AMX-BF16): 32 rows at a time by as many columns as
//! stay in the second-level cache.

use super::sum;
use crate::matrix::Matrix;
use crate::panels::Lines;
use crate::parallel::{Parallel, Shared, by_parts};
use crate::product::{Packed, Stored};
use crate::split::{PARTS, Rounded, Split, TILE, WIDTH, split, split_columns, split_rows};
use crate::tiles::{BLOCK, Configured, ROWS, are_usable};
use std::arch::x86_64::*;
use std::cell::Cell;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Inputs that are multiplied before the next: blocks of rows of so many stay in the first-level
/// cache.
const DEEP: usize = 256;
/// Numbers of columns whose parts stay in the second-level cache.
const CACHED: usize = 1 << 17;
/// Numbers of the sums of a block.
pub(crate) const SUMS: usize = BLOCK * BLOCK;
/// Numbers of the parts of 32 inputs of 32 rows, or of 32 columns of f32.
pub(crate) const PAIR: usize = PARTS * 2 * TILE;

/// The right operand of a product.
pub(crate) trait Columns: Copy {
    type Numbers: Split;

    /// Number of columns.
    fn n(&self) -> usize;

    /// Writes the parts of some inputs of up to 32 columns: `[inputs / 32, parts, 2, TILE]`
    ///
    /// # Safety
    /// Tiles are usable.
    unsafe fn split(&self, columns: Range<usize>, inputs: Range<usize>, to: &mut [u16]);
}

impl Columns for Matrix<'_> {
    type Numbers = f32;

    fn n(&self) -> usize {
        self.sizes[1]
    }

    unsafe fn split(&self, columns: Range<usize>, inputs: Range<usize>, to: &mut [u16]) {
        // SAFETY: by contract.
        unsafe { split_columns::<f32>(self, columns, inputs, to) };
    }
}

/// A matrix whose products are in bfloat16.
#[derive(Clone, Copy)]
struct InBf16<'a>(Matrix<'a>);

impl Columns for InBf16<'_> {
    type Numbers = Rounded;

    fn n(&self) -> usize {
        self.0.sizes[1]
    }

    unsafe fn split(&self, columns: Range<usize>, inputs: Range<usize>, to: &mut [u16]) {
        // SAFETY: by contract.
        unsafe { split_columns::<Rounded>(&self.0, columns, inputs, to) };
    }
}

impl<N: Split<Number = N> + Stored> Columns for Packed<'_, N> {
    type Numbers = N;

    fn n(&self) -> usize {
        self.outputs
    }

    unsafe fn split(&self, columns: Range<usize>, inputs: Range<usize>, to: &mut [u16]) {
        let panel = &self.panels[columns.start / BLOCK * self.inputs * BLOCK..];
        for (block, input) in inputs.clone().step_by(WIDTH).enumerate() {
            for half in 0..2 {
                let sizes = [ROWS, (inputs.end - input).min(WIDTH)];
                let to = (&mut to[(block * N::PARTS * 2 + half) * TILE..], 2 * TILE);
                let numbers = &panel[input * BLOCK + half * ROWS..];
                // SAFETY: by contract; the panel has 32 columns of each input.
                unsafe { split::<N, false, false>(numbers, BLOCK, sizes, to) };
            }
        }
    }
}

/// Whether the product `[n, outputs]` of sums of `inputs` products is faster by tiles.
pub(crate) fn fit([n, inputs, outputs]: [usize; 3]) -> bool {
    let [least, most] = [n.min(outputs), n.max(outputs)];
    inputs >= WIDTH && least >= ROWS && most >= 2 * BLOCK && are_usable()
}

/// The product; it fits.
pub(crate) fn multiply(
    [left, right]: [Matrix<'_>; 2],
    bias: Option<&[f32]>,
    out: &mut [f32],
    threads: &dyn Parallel,
) {
    match left.in_bf16 {
        true => multiply_by(left, InBf16(right), bias, out, threads),
        false => multiply_by(left, right, bias, out, threads),
    }
}

fn multiply_by(
    left: Matrix<'_>,
    right: impl Columns + Sync,
    bias: Option<&[f32]>,
    out: &mut [f32],
    threads: &dyn Parallel,
) {
    let ([n, inputs], outputs) = (left.sizes, right.n());
    let work = n * inputs * outputs;
    // Of threads that share rows each splits all columns, and the other way round; those that share
    // inputs add their sums.
    let costs = [inputs * outputs, inputs * n, 2 * n * outputs];
    let sum = |inputs: Range<usize>, bias: Option<&[f32]>, out: &mut [f32]| {
        let product = Product { left, right, inputs, bias, out: &Shared::new(out) };
        // SAFETY: tiles are usable.
        unsafe { product.part(0..n, 0..outputs) };
    };
    let some = |blocks: Range<usize>, n: usize| blocks.start * BLOCK..n.min(blocks.end * BLOCK);
    if threads.threads() > 1 && costs.iter().min() == Some(&costs[2]) {
        let (first, others) = (Mutex::new(Some(out)), Mutex::new(Vec::new()));
        by_parts(threads, inputs.div_ceil(BLOCK), work, |blocks| {
            let inputs = some(blocks, inputs);
            if inputs.start == 0 {
                let out = lock(&first).take().expect("only one part begins at 0");
                sum(inputs, bias, out);
                *lock(&first) = Some(out);
            } else {
                let (start, mut part) = (inputs.start, vec![0.0; n * outputs]);
                sum(inputs, None, &mut part);
                lock(&others).push((start, part));
            }
        });
        let (out, mut others) = (lock(&first).take(), std::mem::take(&mut *lock(&others)));
        let out = out.expect("the first part returns it");
        // In one order, whichever ended first.
        others.sort_unstable_by_key(|(start, _)| *start);
        for (_, part) in others {
            out.iter_mut().zip(part).for_each(|(out, part)| *out += part);
        }
        return;
    }
    let product = Product { left, right, inputs: 0..inputs, bias, out: &Shared::new(out) };
    let part = |rows, columns| {
        // SAFETY: tiles are usable.
        unsafe { product.part(rows, columns) }
    };
    if costs[0] <= costs[1] {
        by_parts(threads, n.div_ceil(BLOCK), work, |rows| part(some(rows, n), 0..outputs));
    } else {
        by_parts(threads, outputs.div_ceil(BLOCK), work, |columns| {
            part(0..n, some(columns, outputs));
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `A B + bias`
pub(crate) struct Product<'a, C> {
    pub(crate) left: Matrix<'a>,
    pub(crate) right: C,
    /// Those of which products are summed.
    pub(crate) inputs: Range<usize>,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) out: &'a Shared<'a, f32>,
}

/// Memory of a product, reused by the next one.
#[derive(Default)]
struct Room {
    /// Parts of 32 rows: `[2, inputs / 32, PARTS, TILE]`
    rows: Lines<u16>,
    /// `[columns / 32, inputs / 32, PARTS, 2, TILE]`
    columns: Lines<u16>,
    /// `[rows / 32, columns / 32, SUMS]`
    sums: Lines<f32>,
}

thread_local! {
    static ROOM: Cell<Room> = Cell::default();
}

/// The numbers of rows.
type Row<C> = <<C as Columns>::Numbers as Split>::Row;

impl<C: Columns> Product<'_, C> {
    /// Some rows and columns of the product.
    ///
    /// # Safety
    /// Tiles are usable.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(crate) unsafe fn part(&self, rows: Range<usize>, columns: Range<usize>) {
        let deep = self.inputs.len().min(DEEP);
        let step = CACHED / deep.next_multiple_of(WIDTH) / BLOCK * BLOCK;
        let n_panels = columns.len().min(step).div_ceil(BLOCK);
        let n_rows = if self.inputs.len() > deep { rows.len().div_ceil(BLOCK) } else { 1 };
        let mut room = ROOM.take();
        let to_rows = room.rows.first(deep.div_ceil(WIDTH) * PAIR);
        let pair = C::Numbers::PARTS * 2 * TILE;
        let to_columns = room.columns.first(n_panels * deep.div_ceil(WIDTH) * pair);
        let sums = room.sums.first(n_rows * n_panels * SUMS);
        // SAFETY: by contract.
        let configured = unsafe { Configured::new() };
        for first in columns.clone().step_by(step) {
            let some_columns = first..columns.end.min(first + step);
            let n_panels = some_columns.len().div_ceil(BLOCK);
            for start in self.inputs.clone().step_by(deep) {
                let depth = start..self.inputs.end.min(start + deep);
                let n_blocks = depth.len().div_ceil(WIDTH);
                let to_columns = &mut to_columns[..n_panels * n_blocks * pair];
                let parts = to_columns.chunks_exact_mut(n_blocks * pair);
                for (column, to) in some_columns.clone().step_by(BLOCK).zip(parts) {
                    let panel = column..some_columns.end.min(column + BLOCK);
                    // SAFETY: by contract.
                    unsafe { self.right.split(panel, depth.clone(), to) };
                }
                for (index, row) in rows.clone().step_by(BLOCK).enumerate() {
                    let some = row..rows.end.min(row + BLOCK);
                    split_rows::<Row<C>, true>(&self.left, some.clone(), depth.clone(), to_rows);
                    let sums = &mut sums[index % n_rows * n_panels * SUMS..][..n_panels * SUMS];
                    let x = [0, 1]
                        .map(|half| to_rows[half * n_blocks * Row::<C>::PARTS * TILE..].as_ptr());
                    // SAFETY: these are the parts of all inputs; tiles are configured.
                    unsafe {
                        multiply_block::<C::Numbers>(
                            x,
                            to_columns,
                            n_blocks,
                            sums,
                            start == self.inputs.start,
                        )
                    };
                    if depth.end == self.inputs.end {
                        let place = (some, some_columns.clone());
                        write(sums, self.bias, place, (self.out, self.right.n()));
                    }
                }
            }
        }
        drop(configured);
        room.trim();
        ROOM.set(room);
    }
}

/// Adds the bias of some columns, if there is one, to the sums of up to 32 rows, and writes them:
/// numbers `[rows, width]`.
#[target_feature(enable = "avx512f")]
pub(crate) fn write(
    sums: &[f32],
    bias: Option<&[f32]>,
    (rows, columns): (Range<usize>, Range<usize>),
    (out, width): (&Shared<'_, f32>, usize),
) {
    for (index, row) in rows.enumerate() {
        for (place, start) in columns.clone().step_by(ROWS).enumerate() {
            let n = (columns.end - start).min(ROWS);
            let mask = ((1_u32 << n) - 1) as u16;
            let sums = &sums[place / 2 * SUMS + index * BLOCK + place % 2 * ROWS..][..ROWS];
            // SAFETY: each thread writes its own rows and columns; there are as many numbers
            // as the mask has bits, and as many sums as a vector has.
            unsafe {
                let bias = match bias {
                    Some(bias) => _mm512_maskz_loadu_ps(mask, bias[start..][..n].as_ptr()),
                    None => _mm512_setzero_ps(),
                };
                let numbers = _mm512_add_ps(_mm512_loadu_ps(sums.as_ptr()), bias);
                let out = out.part(row * width + start, n);
                _mm512_mask_storeu_ps(out.as_mut_ptr(), mask, numbers);
            }
        }
    }
}

/// Multiplies 32 rows `x` by all `columns`, `count` blocks of inputs each: few blocks at a time, so
/// that those of the rows stay in the first-level cache. The sums `[columns / 32, SUMS]` are added
/// to those that are there, unless they are the `first`.
///
/// # Safety
/// Tiles are configured, and there are as many blocks of rows.
#[inline(always)]
pub(crate) unsafe fn multiply_block<N: Split>(
    x: [*const u16; 2],
    columns: &[u16],
    count: usize,
    sums: &mut [f32],
    first: bool,
) {
    const FEW: usize = 4;
    let pair = N::PARTS * 2 * TILE;
    for start in (0..count).step_by(FEW) {
        let (place, n) = (start * N::Row::PARTS * TILE, FEW.min(count - start));
        let x = [x[0].wrapping_add(place), x[1].wrapping_add(place)];
        let columns = columns.chunks_exact(count * pair);
        for (sums, columns) in sums.chunks_exact_mut(SUMS).zip(columns) {
            let columns = columns[start * pair..][..n * pair].as_ptr();
            // SAFETY: by contract.
            unsafe { sum::<N>(x, columns, n, sums, first && start == 0) };
        }
    }
}

impl Room {
    /// Frees memory that only large products need.
    fn trim(&mut self) {
        self.rows.trim();
        self.columns.trim();
        self.sums.trim();
    }
}
