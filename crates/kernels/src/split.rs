//! Numbers as sums of numbers of bfloat16, in pairs of inputs, as the instructions of AMX-BF16 and
//! AVX-512 BF16 multiply them.
//!
//! A number of f32 is a sum of three numbers of bfloat16, one of half precision a sum of two (Henry
//! et al. 2019, "Leveraging the bfloat16 Artificial Intelligence Datatype for Higher-Precision
//! Computations").

use crate::matrix::Matrix;
use crate::tiles::{BLOCK, ROWS};
use half::f16;
use std::arch::x86_64::*;
use std::array;
use std::ops::Range;

/// Numbers of a row of a tile.
pub(crate) const WIDTH: usize = 32;
/// Numbers of a tile.
pub(crate) const TILE: usize = ROWS * WIDTH;
/// Parts of a number of f32.
pub(crate) const PARTS: usize = 3;

/// Numbers that are sums of numbers of bfloat16.
pub(crate) trait Split {
    /// Their type in memory.
    type Number: Copy;

    /// The numbers of the rows that they are multiplied by.
    type Row: Split<Number = f32>;

    /// How many are summed.
    const PARTS: usize;

    /// Whether parts are the nearest numbers, else truncated ones.
    const ARE_NEAREST: bool = false;

    /// The numbers from a pointer on for which `mask` has a bit, and zeros.
    ///
    /// # Safety
    /// The processor has AVX-512 with BW and VL, and these numbers exist.
    unsafe fn load_some(from: *const Self::Number, mask: u16) -> __m512;
}

impl Split for f32 {
    type Number = Self;
    type Row = f32;
    const PARTS: usize = PARTS;

    #[inline(always)]
    unsafe fn load_some(from: *const f32, mask: u16) -> __m512 {
        // SAFETY: by contract.
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }
}

impl Split for f16 {
    type Number = Self;
    type Row = f32;
    const PARTS: usize = 2;

    #[inline(always)]
    unsafe fn load_some(from: *const f16, mask: u16) -> __m512 {
        // SAFETY: by contract.
        unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())) }
    }
}

/// Numbers of f32 that are rounded to the sum of two numbers of bfloat16, ties away from zero: by at
/// most 2^-16 of the number.
pub(crate) enum Coarse {}

impl Split for Coarse {
    type Number = f32;
    type Row = Coarse;
    const PARTS: usize = 2;
    const ARE_NEAREST: bool = true;

    #[inline(always)]
    unsafe fn load_some(from: *const f32, mask: u16) -> __m512 {
        // SAFETY: by contract.
        unsafe { f32::load_some(from, mask) }
    }
}

/// Numbers of f32 that are rounded to bfloat16, ties to even.
pub(crate) enum Rounded {}

impl Split for Rounded {
    type Number = f32;
    type Row = Rounded;
    const PARTS: usize = 1;

    #[inline(always)]
    unsafe fn load_some(from: *const f32, mask: u16) -> __m512 {
        // SAFETY: by contract.
        unsafe {
            let numbers = _mm512_maskz_loadu_ps(mask, from);
            let bits = _mm512_castps_si512(numbers);
            let last = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff));
            let raised = _mm512_add_epi32(bits, half);
            // NaN stays NaN.
            let are_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(numbers, numbers);
            let quiet = _mm512_set1_epi32(1 << 22);
            _mm512_castsi512_ps(_mm512_mask_or_epi32(raised, are_nan, bits, quiet))
        }
    }
}

/// Writes the parts of the inputs of 16 lines, which are rows of `A` or columns of `B`: in pairs,
/// line after line if `LINES_FIRST`, else pair after pair. Zeros are those that do not exist. The
/// inputs of a line are together in memory if `IN_LINES`, else those of all lines.
///
/// A number is the sum of its parts: its first eight bits, the next and the last, if they are
/// truncated. The order of the inputs is that of [`_mm512_packus_epi32`], for rows and for columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(crate) fn split<N: Split, const IN_LINES: bool, const LINES_FIRST: bool>(
    numbers: &[N::Number],
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
            array::from_fn(|next| {
                let input = input + next;
                load(input * stride, if input < n_inputs { masks[0] } else { 0 })
            })
        };
        for part in 0..N::PARTS {
            let [mut a, mut b] = [_mm512_castps_si512(rest[0]), _mm512_castps_si512(rest[1])];
            if N::ARE_NEAREST {
                let half = _mm512_set1_epi32(0x8000);
                [a, b] = [_mm512_add_epi32(a, half), _mm512_add_epi32(b, half)];
            }
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
        let [a, b, c, d] = array::from_fn(|four| fours[4 * four + index]);
        let even = [_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0x88>(c, d)];
        let odd = [_mm512_shuffle_i32x4::<0xdd>(a, b), _mm512_shuffle_i32x4::<0xdd>(c, d)];
        put(index, _mm512_shuffle_i32x4::<0x88>(even[0], even[1]));
        put(index + 4, _mm512_shuffle_i32x4::<0x88>(odd[0], odd[1]));
        put(index + 8, _mm512_shuffle_i32x4::<0xdd>(even[0], even[1]));
        put(index + 12, _mm512_shuffle_i32x4::<0xdd>(odd[0], odd[1]));
    }
}

/// The parts of some inputs of some rows of `matrix`, 16 rows by 32 inputs at a time:
/// `[rows / 16, inputs / 32, parts, TILE]`, line after line if `LINES_FIRST`, else pair after pair.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(crate) fn split_rows<N: Split<Number = f32>, const LINES_FIRST: bool>(
    matrix: &Matrix<'_>,
    rows: Range<usize>,
    inputs: Range<usize>,
    to: &mut [u16],
) {
    let n_blocks = inputs.len().div_ceil(WIDTH);
    for (group, row) in (rows.start..rows.end.next_multiple_of(BLOCK)).step_by(ROWS).enumerate() {
        for (block, input) in inputs.clone().step_by(WIDTH).enumerate() {
            let sizes = [rows.end.saturating_sub(row).min(ROWS), (inputs.end - input).min(WIDTH)];
            let to = (&mut to[(group * n_blocks + block) * N::PARTS * TILE..], TILE);
            let (stride, numbers) = matrix.from(row, input);
            match matrix.is_transposed {
                false => split::<N, true, LINES_FIRST>(numbers, stride, sizes, to),
                true => split::<N, false, LINES_FIRST>(numbers, stride, sizes, to),
            }
        }
    }
}

/// The parts of some inputs of up to 32 columns of `matrix`: `[inputs / 32, parts, 2, TILE]`, pair
/// after pair.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(crate) fn split_columns<N: Split<Number = f32>>(
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
            let to = (&mut to[(block * N::PARTS * 2 + half) * TILE..], 2 * TILE);
            let (stride, numbers) = matrix.from(input, column);
            match matrix.is_transposed {
                true => split::<N, true, false>(numbers, stride, sizes, to),
                false => split::<N, false, false>(numbers, stride, sizes, to),
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
