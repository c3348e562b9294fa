//! Transposes matrices in squares, so that no line of the cache is read or written twice.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::instructions::Instructions;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::x86_64::*;

/// Rows and columns of a square: those of a vector.
const SQUARE: usize = 8;

/// Writes the matrix `[rows, columns]` in `from` to `to` with rows as columns; the numbers are the
/// distances between rows.
///
/// # Panics
/// If a slice is too short.
pub(crate) fn transpose(
    [rows, columns]: [usize; 2],
    (from, from_stride): (&[f32], usize),
    (to, to_stride): (&mut [f32], usize),
) {
    if rows == 0 || columns == 0 {
        return;
    }
    let from = &from[..(rows - 1) * from_stride + columns];
    let to = &mut to[..(columns - 1) * to_stride + rows];
    let are_whole = squares();
    for row in (0..rows).step_by(SQUARE) {
        for column in (0..columns).step_by(SQUARE) {
            let (from, to) =
                (&from[row * from_stride + column..], &mut to[column * to_stride + row..]);
            let sizes = [SQUARE.min(rows - row), SQUARE.min(columns - column)];
            match are_whole {
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                // SAFETY: the processor has AVX, and there are eight rows and columns.
                true if sizes == [SQUARE; 2] => unsafe {
                    square((from.as_ptr(), from_stride), (to.as_mut_ptr(), to_stride));
                },
                _ => part(sizes, (from, from_stride), (to, to_stride)),
            }
        }
    }
}

/// Whether the processor has vectors for [`square`].
fn squares() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return Instructions::Avx2.are_allowed() && is_x86_feature_detected!("avx");
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

/// At most a square.
fn part(
    [rows, columns]: [usize; 2],
    (from, from_stride): (&[f32], usize),
    (to, to_stride): (&mut [f32], usize),
) {
    let mut square = [[0.0; SQUARE]; SQUARE];
    for row in 0..rows {
        let from = &from[row * from_stride..][..columns];
        from.iter().zip(&mut square).for_each(|(number, to)| to[row] = *number);
    }
    for (column, numbers) in square.iter().enumerate().take(columns) {
        to[column * to_stride..][..rows].copy_from_slice(&numbers[..rows]);
    }
}

/// # Safety
/// `from` has eight rows of eight numbers, and `to` as many.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
#[inline]
unsafe fn square((from, from_stride): (*const f32, usize), (to, to_stride): (*mut f32, usize)) {
    // SAFETY: by contract.
    let row = |index: usize| unsafe { _mm256_loadu_ps(from.add(index * from_stride)) };
    // Numbers of two rows in turn, then of four, in both halves.
    let fours = |first: usize| {
        let [a, b, c, d] = [row(first), row(first + 1), row(first + 2), row(first + 3)];
        let [ab, cd] = [_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d)];
        let [more_ab, more_cd] = [_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d)];
        [
            _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd),
            _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd),
            _mm256_shuffle_ps::<0b01_00_01_00>(more_ab, more_cd),
            _mm256_shuffle_ps::<0b11_10_11_10>(more_ab, more_cd),
        ]
    };
    let (upper, lower) = (fours(0), fours(4));
    for (column, (upper, lower)) in upper.into_iter().zip(lower).enumerate() {
        let both = [
            _mm256_permute2f128_ps::<0x20>(upper, lower),
            _mm256_permute2f128_ps::<0x31>(upper, lower),
        ];
        for (half, numbers) in both.into_iter().enumerate() {
            // SAFETY: by contract.
            unsafe { _mm256_storeu_ps(to.add((half * 4 + column) * to_stride), numbers) };
        }
    }
}
