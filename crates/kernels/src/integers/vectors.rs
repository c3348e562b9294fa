//! Products of four bytes in each lane of a vector (AVX-512 VNNI and AVX-VNNI), and of two pairs of
//! 16 bits (AVX2).

use crate::groups::{Dots, GROUP, Multiply};
use std::arch::x86_64::*;
use std::cell::Cell;
use std::slice;

#[derive(Clone, Copy)]
struct Avx512Vnni;

impl Dots for Avx512Vnni {
    type Sums = __m512i;
    type Scaled = __m512;
    const LANES: usize = 16;
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn load(self, sums: *const i32) -> __m512i {
        // SAFETY: by contract, here and below.
        unsafe { _mm512_loadu_si512(sums.cast()) }
    }

    #[inline(always)]
    unsafe fn dot(self, sums: __m512i, bytes: u32, weights: *const i8) -> __m512i {
        // SAFETY: by contract.
        unsafe {
            _mm512_dpbusd_epi32(
                sums,
                _mm512_set1_epi32(bytes as i32),
                _mm512_loadu_si512(weights.cast()),
            )
        }
    }

    #[inline(always)]
    unsafe fn scaled(self, sums: __m512i, factors: *const f32) -> __m512 {
        // SAFETY: by contract.
        unsafe { _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_loadu_ps(factors)) }
    }

    #[inline(always)]
    unsafe fn store(self, numbers: __m512, out: *mut f32) {
        // SAFETY: by contract.
        unsafe { _mm512_storeu_ps(out, numbers) }
    }
}

/// With VNNI, or with rows of bytes that are widened to 16 bits: `vpmaddubsw` multiplies bytes, but
/// its sums of two products saturate.
#[derive(Clone, Copy)]
struct Avx2<const VNNI: bool>;

impl<const VNNI: bool> Dots for Avx2<VNNI> {
    type Sums = __m256i;
    type Scaled = __m256;
    const LANES: usize = 8;
    const OF_GROUP: usize = if VNNI { GROUP } else { WIDENED };
    const ROWS: usize = if VNNI { 6 } else { 5 };

    #[inline(always)]
    unsafe fn load(self, sums: *const i32) -> __m256i {
        // SAFETY: by contract, here and below.
        unsafe { _mm256_loadu_si256(sums.cast()) }
    }

    #[inline(always)]
    unsafe fn dot(self, sums: __m256i, bytes: u32, weights: *const i8) -> __m256i {
        // SAFETY: by contract.
        unsafe {
            let bytes = _mm256_set1_epi32(bytes as i32);
            if VNNI {
                _mm256_dpbusd_avx_epi32(sums, bytes, _mm256_loadu_si256(weights.cast()))
            } else {
                let weights = _mm256_cvtepi8_epi16(_mm_loadu_si128(weights.cast()));
                _mm256_add_epi32(sums, _mm256_madd_epi16(bytes, weights))
            }
        }
    }

    #[inline(always)]
    unsafe fn scaled(self, sums: __m256i, factors: *const f32) -> __m256 {
        // SAFETY: by contract.
        unsafe { _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_loadu_ps(factors)) }
    }

    #[inline(always)]
    unsafe fn store(self, numbers: __m256, out: *mut f32) {
        // SAFETY: by contract.
        unsafe { _mm256_storeu_ps(out, numbers) }
    }
}

/// Bytes of a number of 16 bits, and the weights of a pair of them.
pub(super) const WIDENED: usize = 2;

/// Most widened numbers that keep their memory.
const MOST: usize = 1 << 20;

thread_local! {
    /// Memory of widened rows, reused by the next product.
    static ROWS: Cell<Vec<u16>> = const { Cell::new(Vec::new()) };
}

/// Calls `work` with the bytes of all numbers, widened to 16 bits.
pub(super) fn widened(x: &[u8], work: impl FnOnce(&[u8])) {
    let mut rows = ROWS.take();
    rows.clear();
    rows.extend(x.iter().map(|&byte| u16::from(byte)));
    // SAFETY: any two bytes of a number are valid bytes.
    work(unsafe { slice::from_raw_parts(rows.as_ptr().cast(), size_of_val(&*rows)) });
    rows.shrink_to(MOST);
    ROWS.set(rows);
}

#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) fn with_avx512(work: &Multiply<'_>) {
    work.run(Avx512Vnni);
}

#[target_feature(enable = "avx2,avxvnni")]
pub(super) fn with_avx_vnni(work: &Multiply<'_>) {
    work.run(Avx2::<true>);
}

#[target_feature(enable = "avx2")]
pub(super) fn with_avx2(work: &Multiply<'_>) {
    work.run(Avx2::<false>);
}
