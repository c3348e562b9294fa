//! Products of many rows by tiles of bfloat16 (AMX-BF16): 32 rows at a time by as many columns as
//! stay in the second-level cache.

use super::{PARTS, Split, TILE, WIDTH, sum};
use crate::matrix::Matrix;
use crate::panels::Lines;
use crate::parallel::{Parallel, Shared, by_parts};
use crate::product::Packed;
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
pub(crate) trait Columns {
    type Number: Split;

    /// Number of columns.
    fn n(&self) -> usize;

    /// Writes the parts of some inputs of up to 32 columns: `[inputs / 32, parts, 2, TILE]`
    ///
    /// # Safety
    /// Tiles are usable.
    unsafe fn split(&self, columns: Range<usize>, inputs: Range<usize>, to: &mut [u16]);
}

impl Columns for Matrix<'_> {
    type Number = f32;

    fn n(&self) -> usize {
        self.sizes[1]
    }

    unsafe fn split(&self, columns: Range<usize>, inputs: Range<usize>, to: &mut [u16]) {
        // SAFETY: by contract.
        unsafe { split_columns(self, columns, inputs, to) };
    }
}

impl<N: Split> Columns for Packed<'_, N> {
    type Number = N;

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
    let ([n, inputs], outputs) = (left.sizes, right.sizes[1]);
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
        let pair = C::Number::PARTS * 2 * TILE;
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
                    split_rows(&self.left, some.clone(), depth.clone(), to_rows);
                    let sums = &mut sums[index % n_rows * n_panels * SUMS..][..n_panels * SUMS];
                    let x = [0, 1].map(|half| to_rows[half * n_blocks * PARTS * TILE..].as_ptr());
                    // SAFETY: these are the parts of all inputs; tiles are configured.
                    unsafe {
                        multiply_block::<C::Number>(
                            x,
                            to_columns,
                            n_blocks,
                            sums,
                            start == self.inputs.start,
                        )
                    };
                    if depth.end == self.inputs.end {
                        self.write(some, some_columns.clone(), sums);
                    }
                }
            }
        }
        drop(configured);
        room.trim();
        ROOM.set(room);
    }

    /// Adds the bias to the sums of up to 32 rows and writes them.
    #[target_feature(enable = "avx512f")]
    fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &[f32]) {
        let outputs = self.right.n();
        for (index, row) in rows.enumerate() {
            for (place, start) in columns.clone().step_by(ROWS).enumerate() {
                let n = (columns.end - start).min(ROWS);
                let mask = ((1_u32 << n) - 1) as u16;
                let sums = &sums[place / 2 * SUMS + index * BLOCK + place % 2 * ROWS..][..ROWS];
                // SAFETY: each thread writes its own rows and columns; there are as many numbers
                // as the mask has bits, and as many sums as a vector has.
                unsafe {
                    let bias = match self.bias {
                        Some(bias) => _mm512_maskz_loadu_ps(mask, bias[start..][..n].as_ptr()),
                        None => _mm512_setzero_ps(),
                    };
                    let numbers = _mm512_add_ps(_mm512_loadu_ps(sums.as_ptr()), bias);
                    let out = self.out.part(row * outputs + start, n);
                    _mm512_mask_storeu_ps(out.as_mut_ptr(), mask, numbers);
                }
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
        let (x, n) = (x.map(|x| x.wrapping_add(start * PARTS * TILE)), FEW.min(count - start));
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

/// Writes the parts of the inputs of 16 lines, which are rows of `A` or columns of `B`: in pairs,
/// line after line if `LINES_FIRST`, else pair after pair. Zeros are those that do not exist. The
/// inputs of a line are together in memory if `IN_LINES`, else those of all lines.
///
/// A number is the sum of its parts: its first eight bits, the next and the last. The order of the
/// inputs is that of [`_mm512_packus_epi32`], for rows and for columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn split<N: Split, const IN_LINES: bool, const LINES_FIRST: bool>(
    numbers: &[N],
    stride: usize,
    [n_lines, n_inputs]: [usize; 2],
    // Where the tile of a part begins.
    (to, distance): (&mut [u16], usize),
) {
    let [far, near] = if IN_LINES { [n_lines, n_inputs] } else { [n_inputs, n_lines] };
    let needed =
        if near == 0 { 0 } else { far.checked_sub(1).map_or(0, |far| far * stride + near) };
    assert!(numbers.len() >= needed, "the numbers of all lines");
    let (start, n_bits) = (numbers.as_ptr(), near);
    let mask = |n: usize| ((1_u32 << n.min(ROWS)) - 1) as u16;
    let masks = [mask(n_bits), mask(n_bits.saturating_sub(ROWS))];
    // SAFETY: only numbers of the lines and inputs are read, which exist.
    let load = |at: usize, mask| unsafe { N::load_some(start.wrapping_add(at), mask) };
    let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
    let first = |numbers: __m512i| _mm512_castsi512_ps(_mm512_and_si512(numbers, upper));
    for index in 0..ROWS {
        let mut rest = if IN_LINES {
            let masks = if index < n_lines { masks } else { [0; 2] };
            [load(index * stride, masks[0]), load(index * stride + ROWS, masks[1])]
        } else {
            let input = index / 4 * 4 + index % 2 * 2 + index / 2 % 2 * ROWS;
            [input, input + 1]
                .map(|input| load(input * stride, if input < n_inputs { masks[0] } else { 0 }))
        };
        for part in 0..N::PARTS {
            let [a, b] = rest.map(|rest| _mm512_castps_si512(rest));
            let low = _mm512_srli_epi32::<16>(a);
            let pairs = if IN_LINES {
                _mm512_packus_epi32(low, _mm512_srli_epi32::<16>(b))
            } else {
                _mm512_or_si512(low, _mm512_and_si512(b, upper))
            };
            let place = &mut to[part * distance + index * WIDTH..][..WIDTH];
            // SAFETY: the place has as many bytes.
            unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), pairs) };
            if part + 1 < N::PARTS {
                rest = [_mm512_sub_ps(rest[0], first(a)), _mm512_sub_ps(rest[1], first(b))];
            }
        }
    }
    if IN_LINES != LINES_FIRST {
        for tile in to.chunks_mut(distance).take(N::PARTS) {
            transpose(tile[..TILE].as_chunks_mut().0);
        }
    }
}

/// Transposes a tile of 16 rows of 16 pairs.
#[target_feature(enable = "avx512f")]
fn transpose(tile: &mut [[u16; WIDTH]]) {
    assert_eq!(tile.len(), ROWS, "the rows of a tile");
    let mut old = [_mm512_setzero_si512(); ROWS];
    for (row, old) in tile.iter().zip(&mut old) {
        // SAFETY: a row has as many bytes as a vector.
        *old = unsafe { _mm512_loadu_si512(row.as_ptr().cast()) };
    }
    let mut pairs = old;
    for index in (0..ROWS).step_by(2) {
        pairs[index] = _mm512_unpacklo_epi32(old[index], old[index + 1]);
        pairs[index + 1] = _mm512_unpackhi_epi32(old[index], old[index + 1]);
    }
    let mut fours = pairs;
    for index in (0..ROWS).step_by(4) {
        for half in 0..2 {
            let [upper, lower] = [pairs[index + half], pairs[index + half + 2]];
            fours[index + 2 * half] = _mm512_unpacklo_epi64(upper, lower);
            fours[index + 2 * half + 1] = _mm512_unpackhi_epi64(upper, lower);
        }
    }
    let mut put = |index: usize, pairs| {
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(tile[index].as_mut_ptr().cast(), pairs) };
    };
    // Vectors of four pairs are where they belong but for their place among the rows.
    for index in 0..4 {
        let [a, b, c, d] = [0, 4, 8, 12].map(|start| fours[start + index]);
        let even = [_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0x88>(c, d)];
        let odd = [_mm512_shuffle_i32x4::<0xdd>(a, b), _mm512_shuffle_i32x4::<0xdd>(c, d)];
        put(index, _mm512_shuffle_i32x4::<0x88>(even[0], even[1]));
        put(index + 4, _mm512_shuffle_i32x4::<0x88>(odd[0], odd[1]));
        put(index + 8, _mm512_shuffle_i32x4::<0xdd>(even[0], even[1]));
        put(index + 12, _mm512_shuffle_i32x4::<0xdd>(odd[0], odd[1]));
    }
}

/// The parts of some inputs of some rows of `matrix`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(crate) fn split_rows(
    matrix: &Matrix<'_>,
    rows: Range<usize>,
    inputs: Range<usize>,
    to: &mut [u16],
) {
    let n_blocks = inputs.len().div_ceil(WIDTH);
    for (group, row) in (rows.start..rows.end.next_multiple_of(BLOCK)).step_by(ROWS).enumerate() {
        for (block, input) in inputs.clone().step_by(WIDTH).enumerate() {
            let sizes = [rows.end.saturating_sub(row).min(ROWS), (inputs.end - input).min(WIDTH)];
            let to = (&mut to[(group * n_blocks + block) * PARTS * TILE..], TILE);
            let (stride, numbers) = matrix.from(row, input);
            match matrix.is_transposed {
                false => split::<f32, true, true>(numbers, stride, sizes, to),
                true => split::<f32, false, true>(numbers, stride, sizes, to),
            }
        }
    }
}

/// The parts of some inputs of up to 32 columns of `matrix`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(crate) fn split_columns(
    matrix: &Matrix<'_>,
    columns: Range<usize>,
    inputs: Range<usize>,
    to: &mut [u16],
) {
    for (block, input) in inputs.clone().step_by(WIDTH).enumerate() {
        for half in 0..2 {
            let column = columns.start + half * ROWS;
            let sizes =
                [columns.end.saturating_sub(column).min(ROWS), (inputs.end - input).min(WIDTH)];
            let to = (&mut to[(block * PARTS * 2 + half) * TILE..], 2 * TILE);
            let (stride, numbers) = matrix.from(input, column);
            match matrix.is_transposed {
                true => split::<f32, true, false>(numbers, stride, sizes, to),
                false => split::<f32, false, false>(numbers, stride, sizes, to),
            }
        }
    }
}

impl<'a> Matrix<'a> {
    /// The distance of rows or columns in memory, and the numbers from a place on.
    fn from(&self, row: usize, column: usize) -> (usize, &'a [f32]) {
        let [height, width] = self.sizes;
        let (stride, at) = match self.is_transposed {
            true => (height, column * height + row),
            false => (width, row * width + column),
        };
        (stride, self.numbers.get(at..).unwrap_or_default())
    }
}
