//! Products of four bytes in each lane of a vector (the dot products of ARMv8.2).

use crate::groups::{Dots, Multiply};
use std::arch::aarch64::*;
use std::arch::asm;

/// The instruction multiplies signed bytes: rows are shifted by [`ZERO`](super::ZERO).
#[derive(Clone, Copy)]
struct DotProduct;

impl Dots for DotProduct {
    type Sums = int32x4_t;
    type Scaled = float32x4_t;
    const LANES: usize = 4;
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn load(self, sums: *const i32) -> int32x4_t {
        // SAFETY: by contract, here and below.
        unsafe { vld1q_s32(sums) }
    }

    #[inline(always)]
    unsafe fn dot(self, mut sums: int32x4_t, bytes: u32, weights: *const i8) -> int32x4_t {
        // SAFETY: by contract; the instruction reads and writes registers. Stable Rust has no
        // intrinsic for it.
        unsafe {
            let shifted = vdupq_n_u32(bytes ^ 0x8080_8080);
            asm!(
                "sdot {sums:v}.4s, {weights:v}.16b, {shifted:v}.16b",
                sums = inout(vreg) sums,
                weights = in(vreg) vld1q_s8(weights),
                shifted = in(vreg) shifted,
                options(pure, nomem, nostack, preserves_flags),
            );
            sums
        }
    }

    #[inline(always)]
    unsafe fn scaled(self, sums: int32x4_t, factors: *const f32) -> float32x4_t {
        // SAFETY: by contract.
        unsafe { vmulq_f32(vcvtq_f32_s32(sums), vld1q_f32(factors)) }
    }

    #[inline(always)]
    unsafe fn store(self, numbers: float32x4_t, out: *mut f32) {
        // SAFETY: by contract.
        unsafe { vst1q_f32(out, numbers) }
    }
}

#[target_feature(enable = "neon,dotprod")]
pub(super) fn with_dot_products(work: &Multiply<'_>) {
    work.run(DotProduct);
}
