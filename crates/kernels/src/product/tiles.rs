//! Products of f32 by tiles of bfloat16 (AMX-BF16), for many rows.
//!
//! Numbers are sums of numbers of bfloat16, as in [`crate::split`]. The products of those are exact
//! and are summed in f32; those of less than 2^-24 of the whole are left out.

pub(crate) mod blocks;

use super::{Packed, Stored};
use crate::matrix::Matrix;
use crate::parallel::Shared;
use crate::split::{PARTS, Split, TILE, WIDTH};
use crate::tiles::{BLOCK, BYTES, ROWS};
use blocks::Product;
use pulp::x86::V4;
use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::transmute_copy as cast;
use std::ops::Range;

/// Numbers of a vector.
const LANES: usize = 16;

/// Whether the product of `n` rows is faster by tiles. Weights are split for each product, which few
/// rows are not worth.
pub(crate) fn fit(n: usize, inputs: usize) -> bool {
    n >= 2 * BLOCK && inputs >= WIDTH && crate::tiles::are_usable()
}

/// Some panels of the columns of a product of `n` rows.
///
/// # Safety
/// Tiles are usable.
pub(super) unsafe fn multiply<N: Split<Number = N> + Stored>(
    right: Packed<'_, N>,
    (x, n): (&[f32], usize),
    out: &Shared<'_, f32>,
    panels: Range<usize>,
) {
    let (left, bias) = (Matrix::new(x, [n, right.inputs]), Some(right.bias));
    let columns = panels.start * BLOCK..right.outputs.min(panels.end * BLOCK);
    let product = Product { left, right, inputs: 0..right.inputs, bias, out };
    // SAFETY: by contract.
    unsafe { product.part(0..n, columns) }
}

/// The parts of the weights of some inputs, in pairs; zeros for those that do not exist.
#[target_feature(enable = "avx512f")]
pub(crate) fn split_weights<N: Split + Stored>(
    weights: &Packed<'_, N>,
    panel: usize,
    some: Range<usize>,
    to: &mut [u16],
) {
    let Packed { panels, inputs, .. } = *weights;
    let all = &panels[panel * inputs * BLOCK..][..inputs * BLOCK];
    let simd = V4::try_new().expect("AVX-512");
    let load = |input: usize, half: usize| {
        if input >= inputs {
            return _mm512_setzero_ps();
        }
        let numbers = &all[input * BLOCK + half * LANES..][..LANES];
        // SAFETY: as many numbers as a vector has; `V4` has vectors of 512 bits.
        unsafe { cast(&N::load(simd, numbers.as_ptr())) }
    };
    for (pair, input) in some.step_by(2).enumerate() {
        for half in 0..2 {
            let mut numbers = [load(input, half), load(input + 1, half)];
            for part in 0..N::PARTS {
                let parts = [rounded(numbers[0]), rounded(numbers[1])];
                let tile = (pair / ROWS * N::PARTS + part) * 2 + half;
                let place = &mut to[tile * TILE + pair % ROWS * WIDTH..][..WIDTH];
                let [even, odd] = [_mm512_castps_si512(parts[0]), _mm512_castps_si512(parts[1])];
                let both = _mm512_or_si512(_mm512_srli_epi32::<16>(even), odd);
                // SAFETY: the place has as many bytes.
                unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), both) };
                numbers =
                    [_mm512_sub_ps(numbers[0], parts[0]), _mm512_sub_ps(numbers[1], parts[1])];
            }
        }
    }
}

/// The parts of `n` rows with a distance in `x`, padded with zeros.
#[target_feature(enable = "avx512f")]
pub(crate) fn split_rows((x, stride): (&[f32], usize), [n, inputs]: [usize; 2], to: &mut [u16]) {
    let blocks = inputs.div_ceil(WIDTH);
    for row in 0..n {
        for (block, x) in x[row * stride..][..inputs].chunks(WIDTH).enumerate() {
            let tile = (row / ROWS * blocks + block) * PARTS;
            let load = |start: usize| {
                let n = x.len().saturating_sub(start).min(LANES);
                let mask = ((1_u32 << n) - 1) as u16;
                // SAFETY: no number is read that does not exist.
                unsafe { _mm512_maskz_loadu_ps(mask, x.as_ptr().wrapping_add(start)) }
            };
            let mut numbers = [load(0), load(LANES)];
            for part in 0..PARTS {
                let place = &mut to[(tile + part) * TILE + row % ROWS * WIDTH..][..WIDTH];
                let parts = [rounded(numbers[0]), rounded(numbers[1])];
                for (place, part) in place.as_chunks_mut::<LANES>().0.iter_mut().zip(parts) {
                    let bits = _mm512_srli_epi32::<16>(_mm512_castps_si512(part));
                    // SAFETY: the place has as many bytes.
                    unsafe {
                        _mm256_storeu_si256(place.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(bits))
                    };
                }
                numbers =
                    [_mm512_sub_ps(numbers[0], parts[0]), _mm512_sub_ps(numbers[1], parts[1])];
            }
        }
    }
}

/// The nearest numbers of bfloat16; ties away from zero.
#[target_feature(enable = "avx512f")]
#[inline]
fn rounded(numbers: __m512) -> __m512 {
    let raised = _mm512_add_epi32(_mm512_castps_si512(numbers), _mm512_set1_epi32(0x8000));
    _mm512_castsi512_ps(_mm512_and_si512(raised, _mm512_set1_epi32(0xffff_0000_u32 as i32)))
}

/// Sums the products of `count` blocks of tiles: two of rows at `x` and of `weights`. The sums are
/// added to those that are there, unless they are the `first`.
///
/// # Safety
/// Tiles are configured, and there are as many tiles.
#[inline(always)]
pub(crate) unsafe fn sum<N: Split>(
    x: [*const u16; 2],
    weights: *const u16,
    count: usize,
    sums: &mut [f32],
    first: bool,
) {
    assert_eq!(sums.len(), BLOCK * BLOCK, "the sums of a block");
    /// Bytes from one row of sums to the next.
    const LINE: usize = BLOCK * size_of::<f32>();
    let sums = sums.as_mut_ptr();
    // SAFETY: the caller's; the block has as many sums as are read and written.
    unsafe {
        if first {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                options(nostack, nomem),
            );
        } else {
            load_sums(sums, LINE);
        }
        for block in 0..count {
            let place = block * N::Row::PARTS * TILE;
            let x = [x[0].add(place), x[1].add(place)];
            let weights = weights.add(block * N::PARTS * 2 * TILE);
            let weights = |part: usize| weights.add(part * 2 * TILE);
            load_rows(x, 0);
            if N::PARTS == 1 {
                load_weights(weights(0));
                multiply_tiles();
                continue;
            }
            if N::PARTS == PARTS {
                load_weights(weights(2));
                multiply_tiles();
            }
            load_weights(weights(1));
            multiply_tiles();
            load_rows(x, 1);
            multiply_tiles();
            load_weights(weights(0));
            multiply_tiles();
            load_rows(x, 2);
            multiply_tiles();
            load_rows(x, 0);
            multiply_tiles();
        }
        store_sums(sums, LINE);
    }
}

/// Reads the sums of a block, whose rows are `line` bytes apart.
///
/// # Safety
/// Tiles are configured, and there are 32 numbers in each of the 32 rows.
#[inline(always)]
pub(crate) unsafe fn load_sums(sums: *const f32, line: usize) {
    // SAFETY: by contract.
    unsafe {
        asm!(
            "tileloadd tmm0, [{upper} + {line}]",
            "tileloadd tmm1, [{upper} + {line} + 64]",
            "tileloadd tmm2, [{lower} + {line}]",
            "tileloadd tmm3, [{lower} + {line} + 64]",
            upper = in(reg) sums,
            lower = in(reg) sums.wrapping_byte_add(ROWS * line),
            line = in(reg) line,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            options(nostack, readonly),
        );
    }
}

/// Writes the sums of a block, as [`load_sums`] reads them.
///
/// # Safety
/// As for [`load_sums`].
#[inline(always)]
pub(crate) unsafe fn store_sums(sums: *mut f32, line: usize) {
    // SAFETY: by contract.
    unsafe {
        asm!(
            "tilestored [{upper} + {line}], tmm0",
            "tilestored [{upper} + {line} + 64], tmm1",
            "tilestored [{lower} + {line}], tmm2",
            "tilestored [{lower} + {line} + 64], tmm3",
            upper = in(reg) sums,
            lower = in(reg) sums.wrapping_byte_add(ROWS * line),
            line = in(reg) line,
            options(nostack),
        );
    }
}

/// # Safety
/// Tiles are configured, and there are as many parts.
#[inline(always)]
pub(crate) unsafe fn load_rows(x: [*const u16; 2], part: usize) {
    // SAFETY: by contract.
    unsafe {
        let [upper, lower] = [x[0].add(part * TILE), x[1].add(part * TILE)];
        asm!(
            "tileloadd tmm4, [{upper} + {line}]",
            "tileloadd tmm5, [{lower} + {line}]",
            upper = in(reg) upper,
            lower = in(reg) lower,
            line = in(reg) BYTES,
            out("tmm4") _, out("tmm5") _,
            options(nostack, readonly),
        );
    }
}

/// # Safety
/// Tiles are configured, and there are two at the pointer.
#[inline(always)]
pub(crate) unsafe fn load_weights(weights: *const u16) {
    // SAFETY: by contract.
    unsafe {
        asm!(
            "tileloadd tmm6, [{weights} + {line}]",
            "tileloadd tmm7, [{weights} + {line} + 1024]",
            weights = in(reg) weights,
            line = in(reg) BYTES,
            out("tmm6") _, out("tmm7") _,
            options(nostack, readonly),
        );
    }
}

/// # Safety
/// Tiles are configured.
#[inline(always)]
pub(crate) unsafe fn multiply_tiles() {
    // SAFETY: by contract.
    unsafe {
        asm!(
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            options(nostack, nomem),
        );
    }
}
