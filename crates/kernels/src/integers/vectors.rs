//! Products of four bytes in each lane of a vector (AVX-512 VNNI and AVX-VNNI).

use crate::groups::{Dots, Multiply};
use std::arch::x86_64::*;

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

#[derive(Clone, Copy)]
struct AvxVnni;

impl Dots for AvxVnni {
    type Sums = __m256i;
    type Scaled = __m256;
    const LANES: usize = 8;
    const ROWS: usize = 6;

    #[inline(always)]
    unsafe fn load(self, sums: *const i32) -> __m256i {
        // SAFETY: by contract, here and below.
        unsafe { _mm256_loadu_si256(sums.cast()) }
    }

    #[inline(always)]
    unsafe fn dot(self, sums: __m256i, bytes: u32, weights: *const i8) -> __m256i {
        // SAFETY: by contract.
        unsafe {
            _mm256_dpbusd_avx_epi32(
                sums,
                _mm256_set1_epi32(bytes as i32),
                _mm256_loadu_si256(weights.cast()),
            )
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

#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) fn with_avx512(work: &Multiply<'_>) {
    work.run(Avx512Vnni);
}

#[target_feature(enable = "avx2,avxvnni")]
pub(super) fn with_avx(work: &Multiply<'_>) {
    work.run(AvxVnni);
}
