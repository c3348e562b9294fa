//! Products of matrices in bfloat16 by pairs (AVX-512 BF16): both operands are rounded, sums are in
//! f32.

use super::WEIGHTS;
use crate::bf16::multiplies_bf16;
use crate::matrix::Matrix;
use crate::panels::Lines;
use crate::parallel::{Parallel, Shared, by_parts};
use crate::split::{Rounded, TILE, WIDTH, split_columns, split_rows};
use crate::tiles::{BLOCK, ROWS};
use std::arch::x86_64::*;
use std::array;
use std::cell::Cell;
use std::mem::transmute;
use std::ops::Range;

/// Inputs that are multiplied at once, so that a panel of them stays in the cache while rows are
/// multiplied by it.
const INPUTS: usize = 1024;

/// Blocks of rows that are rounded at once.
const BLOCKS: usize = 3;

/// Rows whose sums are in registers: half of a tile.
const FEW: usize = 8;

thread_local! {
    /// Rounded columns of a product, for the next one.
    static PANELS: Cell<Lines<u16>> = Cell::default();
    /// Rounded rows of a thread.
    static ROOM: Cell<Lines<u16>> = Cell::default();
}

/// Whether the product `[n, outputs]` of sums of `inputs` products is faster in bfloat16.
pub(super) fn fit([n, inputs, outputs]: [usize; 3]) -> bool {
    n >= ROWS && inputs >= WIDTH && outputs >= ROWS && multiplies_bf16()
}

/// The product, which fits, and `bias`; they are added to `out` if `adds`.
pub(super) fn multiply(
    [left, right]: [Matrix<'_>; 2],
    bias: Option<&[f32]>,
    (out, adds): (&mut [f32], bool),
    threads: &dyn Parallel,
) {
    let ([n, inputs], [_, outputs]) = (left.sizes, right.sizes);
    let wide = WEIGHTS / inputs.min(INPUTS) / BLOCK * BLOCK;
    let out = &Shared::new(out);
    let mut panels = PANELS.take();
    for first in (0..outputs).step_by(wide) {
        let columns = first..outputs.min(first + wide);
        for start in (0..inputs).step_by(INPUTS) {
            let some = start..inputs.min(start + INPUTS);
            let work = n * some.len() * columns.len();
            let of_panel = some.len().div_ceil(WIDTH) * 2 * TILE;
            let n_panels = columns.len().div_ceil(BLOCK);
            let to = Shared::new(panels.first(n_panels * of_panel));
            by_parts(threads, n_panels, work, |panels| {
                for panel in panels {
                    // SAFETY: each thread has its own panels; the processor has the instructions.
                    unsafe {
                        let to = to.part(panel * of_panel, of_panel);
                        let column = first + panel * BLOCK;
                        let columns = column..columns.end.min(column + BLOCK);
                        split_columns::<Rounded>(&right, columns, some.clone(), to);
                    }
                }
            });
            let part = Part {
                left,
                inputs: some.clone(),
                panels: panels.first(n_panels * of_panel),
                columns: columns.clone(),
                bias: bias.filter(|_| some.end == inputs),
                out,
                outputs,
                adds: adds || start > 0,
            };
            by_parts(threads, n.div_ceil(BLOCK), work, |blocks| {
                let mut room = ROOM.take();
                for block in blocks.clone().step_by(BLOCKS) {
                    let end = blocks.end.min(block + BLOCKS);
                    // SAFETY: the processor has the instructions.
                    unsafe { part.rows(block * BLOCK..n.min(end * BLOCK), &mut room) };
                }
                ROOM.set(room);
            });
        }
    }
    PANELS.set(panels);
}

/// The product of some inputs and columns.
struct Part<'a> {
    left: Matrix<'a>,
    inputs: Range<usize>,
    /// `[columns / 32, inputs / 32, 2, TILE]`
    panels: &'a [u16],
    columns: Range<usize>,
    bias: Option<&'a [f32]>,
    /// `[n, outputs]`
    out: &'a Shared<'a, f32>,
    outputs: usize,
    adds: bool,
}

impl Part<'_> {
    /// Computes some rows.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    fn rows(&self, rows: Range<usize>, room: &mut Lines<u16>) {
        let n_tiles = self.inputs.len().div_ceil(WIDTH);
        let x = room.first(rows.len().next_multiple_of(BLOCK) / ROWS * n_tiles * TILE);
        split_rows::<Rounded, false>(&self.left, rows.clone(), self.inputs.clone(), x);
        let panels = self.panels.chunks_exact(n_tiles * 2 * TILE);
        for (column, panel) in self.columns.clone().step_by(BLOCK).zip(panels) {
            for (row, x) in rows.clone().step_by(ROWS).zip(x.chunks_exact(n_tiles * TILE)) {
                for (row, first) in (row..rows.end).step_by(FEW).zip([0, FEW]) {
                    let sums = sums_of(x, first, panel);
                    self.write([row, rows.end.min(row + FEW)], column, &sums);
                }
            }
        }
    }

    /// Writes the sums of some rows and up to 32 columns.
    #[target_feature(enable = "avx512f")]
    fn write(&self, [row, end]: [usize; 2], column: usize, sums: &[[__m512; 2]; FEW]) {
        for (row, sums) in (row..end).zip(sums) {
            for (start, &sums) in (column..self.columns.end).step_by(ROWS).zip(sums) {
                let n = (self.columns.end - start).min(ROWS);
                let mask = ((1_u32 << n) - 1) as u16;
                // SAFETY: each thread writes its own rows; there are as many numbers as the mask
                // has bits.
                unsafe {
                    let to = self.out.part(row * self.outputs + start, n).as_mut_ptr();
                    let mut numbers = sums;
                    if let Some(bias) = self.bias {
                        let bias = bias[start..][..n].as_ptr();
                        numbers = _mm512_add_ps(numbers, _mm512_maskz_loadu_ps(mask, bias));
                    }
                    if self.adds {
                        numbers = _mm512_add_ps(numbers, _mm512_maskz_loadu_ps(mask, to));
                    }
                    _mm512_mask_storeu_ps(to, mask, numbers);
                }
            }
        }
    }
}

/// The sums of the products of eight rows of `x: [inputs / 32, TILE]`, from the line `first` on, and
/// the columns of a panel `[inputs / 32, 2, TILE]`.
#[allow(clippy::needless_range_loop, reason = "constant places keep sums in registers")]
#[target_feature(enable = "avx512f,avx512bf16")]
#[inline]
fn sums_of(x: &[u16], first: usize, panel: &[u16]) -> [[__m512; 2]; FEW] {
    let mut sums = [[_mm512_setzero_ps(); 2]; FEW];
    for (x, panel) in x.as_chunks::<TILE>().0.iter().zip(panel.as_chunks::<{ 2 * TILE }>().0) {
        let pairs = x.as_chunks::<WIDTH>().0.iter().enumerate();
        for (pair, lines) in pairs {
            let lines = lines[2 * first..][..2 * FEW].as_ptr().cast::<i32>();
            // SAFETY: a tile has as many pairs; types with the same bits.
            unsafe {
                let weights: [__m512bh; 2] = array::from_fn(|half| {
                    let at = panel.as_ptr().add(half * TILE + pair * WIDTH);
                    transmute::<__m512i, __m512bh>(_mm512_loadu_si512(at.cast()))
                });
                for line in 0..FEW {
                    let both = _mm512_set1_epi32(lines.add(line).read_unaligned());
                    let both = transmute::<__m512i, __m512bh>(both);
                    for half in 0..2 {
                        sums[line][half] = _mm512_dpbf16_ps(sums[line][half], both, weights[half]);
                    }
                }
            }
        }
    }
    sums
}
