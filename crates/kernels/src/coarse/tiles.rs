//! The same with tiles.

use super::{BLOCK, parts_of_block};
use crate::matrix::Matrix;
use crate::panels::Lines;
use crate::parallel::Shared;
use crate::prefetch::ask;
use crate::product::tiles::blocks::{SUMS, write};
use crate::product::tiles::{load_rows, load_sums, load_weights, multiply_tiles, store_sums};
use crate::product::{Packed, Panels, Weights};
use crate::split::{Coarse, Split, TILE, WIDTH, split_rows};
use crate::tiles::{Configured, ROWS};
use half::f16;
use std::arch::x86_64::*;
use std::ops::Range;

/// Numbers of the parts of 32 inputs of 32 lines.
const PARTS: usize = 4 * TILE;
/// Inputs whose parts stay in the first-level cache, those of 32 columns and of 32 rows.
const DEEP: usize = 4 * WIDTH;

/// Divides rows, `[n, inputs]`.
///
/// # Safety
/// Tiles are usable.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn divide(x: &[f32], [n, inputs]: [usize; 2], to: &mut [u16]) {
    split_rows::<Coarse, true>(&Matrix::new(x, [n, inputs]), 0..n, 0..inputs, to);
}

/// Computes some panels of the columns for the rows with the parts `x`.
///
/// # Safety
/// Tiles are usable.
pub(super) unsafe fn multiply(
    weights: &Weights,
    columns: &Range<usize>,
    x: (&[u16], usize),
    out: &Shared<'_, f32>,
    panels: Range<usize>,
) {
    // SAFETY: by contract.
    unsafe {
        match &weights.panels {
            Panels::Floats(all) => {
                multiply_by::<Coarse>(weights.view(all.all(), columns), x, out, panels);
            }
            // They are sums of two numbers.
            Panels::Halves(all) => {
                multiply_by::<f16>(weights.view(all.all(), columns), x, out, panels);
            }
        }
    }
}

/// # Safety
/// Tiles are usable.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn multiply_by<N: Split>(
    weights: Packed<'_, N::Number>,
    (x, n): (&[u16], usize),
    out: &Shared<'_, f32>,
    panels: Range<usize>,
) {
    #[repr(align(64))]
    struct Parts([u16; DEEP / WIDTH * PARTS]);
    let Packed { panels: all, bias, inputs, outputs } = weights;
    let (size, mut parts) = (parts_of_block(inputs), Parts([0; DEEP / WIDTH * PARTS]));
    // Of blocks that are not whole, `[n / 32, SUMS]`.
    let mut sums = Lines::zeros(n.div_ceil(BLOCK) * SUMS);
    // SAFETY: by contract.
    let configured = unsafe { Configured::new() };
    for panel in panels {
        let columns = panel * BLOCK..outputs.min((panel + 1) * BLOCK);
        for start in (0..inputs).step_by(DEEP) {
            let depth = start..inputs.min(start + DEEP);
            let parts = &mut parts.0[..depth.len().div_ceil(WIDTH) * PARTS];
            let place = (panel * inputs + start) * BLOCK;
            divide_weights::<N>(&all[place..][..depth.len() * BLOCK], parts);
            for (block, x) in x.chunks_exact(size).enumerate() {
                let rows = block * BLOCK..n.min((block + 1) * BLOCK);
                let is_whole = rows.len() == BLOCK && columns.len() == BLOCK;
                let to = match is_whole {
                    true => (out.at(rows.start * outputs + columns.start), outputs),
                    false => (sums.all_mut()[block * SUMS..].as_mut_ptr(), BLOCK),
                };
                let bias = (start == 0).then(|| &bias[panel * BLOCK..][..BLOCK]);
                let x = [&x[start * 2 * ROWS..], &x[size / 2 + start * 2 * ROWS..]];
                // SAFETY: nobody else writes these rows and columns, and a block that is whole has
                // as many of both; tiles are configured.
                unsafe { sum(x, parts, bias, to) };
                if !is_whole && depth.end == inputs {
                    let sums = &sums.all()[block * SUMS..][..SUMS];
                    write(sums, None, (rows, columns.clone()), (out, outputs));
                }
            }
        }
    }
    drop(configured);
}

/// Adds the products of 32 rows `x` and 32 columns to their sums or to the bias. The distance of the
/// rows of `sums` is `width`.
///
/// # Safety
/// Tiles are configured; there are the sums of 32 rows and columns.
#[inline(always)]
unsafe fn sum(
    x: [&[u16]; 2],
    weights: &[u16],
    bias: Option<&[f32]>,
    (sums, width): (*mut f32, usize),
) {
    let (line, needed) = (width * size_of::<f32>(), weights.len() / 2);
    assert!(x.iter().all(|x| x.len() >= needed) && bias.is_none_or(|bias| bias.len() >= BLOCK));
    // SAFETY: by contract, and as just asserted.
    unsafe {
        match bias {
            // Each row begins with it.
            Some(bias) => load_sums(bias.as_ptr(), 0),
            None => load_sums(sums, line),
        }
        for block in 0..weights.len() / PARTS {
            let x = x.map(|x| x.as_ptr().add(block * 2 * TILE));
            let weights = weights.as_ptr().add(block * PARTS);
            load_rows(x, 0);
            load_weights(weights.add(2 * TILE));
            multiply_tiles();
            load_rows(x, 1);
            load_weights(weights);
            multiply_tiles();
            load_rows(x, 0);
            multiply_tiles();
        }
        store_sums(sums, line);
    }
}

/// Divides the weights `[inputs, 32]`, in the order in which they are in memory, as
/// [`split`](crate::split::split) does.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn divide_weights<N: Split>(weights: &[N::Number], to: &mut [u16]) {
    /// Bytes that are prefetched.
    const AHEAD: usize = 1 << 14;
    let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
    let rounding = _mm512_set1_epi32(if N::ARE_NEAREST { 0x8000 } else { 0 });
    for (weights, to) in weights.chunks(WIDTH * BLOCK).zip(to.chunks_exact_mut(PARTS)) {
        let n_inputs = weights.len() / BLOCK;
        for input in (0..WIDTH).step_by(2) {
            let place = input % ROWS / 4 * 4 + input % 4 / 2 + input / ROWS * 2;
            for half in 0..2 {
                let load = |input: usize| {
                    let from = weights.as_ptr().wrapping_add(input * BLOCK + half * ROWS);
                    ask(from.wrapping_byte_add(AHEAD));
                    // SAFETY: these are numbers of the given inputs, or none.
                    unsafe { N::load_some(from, if input < n_inputs { u16::MAX } else { 0 }) }
                };
                let [a, b] = [load(input), load(input + 1)];
                let raised = [a, b].map(|n| _mm512_add_epi32(_mm512_castps_si512(n), rounding));
                let first = raised.map(|n| _mm512_and_si512(n, upper));
                let rest = [
                    _mm512_sub_ps(a, _mm512_castsi512_ps(first[0])),
                    _mm512_sub_ps(b, _mm512_castsi512_ps(first[1])),
                ];
                let second = rest.map(|n| _mm512_add_epi32(_mm512_castps_si512(n), rounding));
                for (part, [a, b]) in [first, second].into_iter().enumerate() {
                    let pairs = _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(a), b);
                    let to = &mut to[(2 * part + half) * TILE + place * WIDTH..][..WIDTH];
                    // SAFETY: the place has as many bytes.
                    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), pairs) };
                }
            }
        }
    }
}
