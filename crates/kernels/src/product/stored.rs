//! Weights in memory: in f32, or in half precision where it represents them exactly.

use super::Multiply;
use crate::panels::Number;
use half::f16;
use half::slice::HalfFloatSliceExt;
use pulp::Simd;

/// A number type of packed weights.
pub(crate) trait Stored: Number {
    /// Vector of the numbers from a pointer on.
    ///
    /// # Safety
    /// There are as many numbers; for half precision, the processor [`converts_halves`].
    unsafe fn load<S: Simd>(simd: S, from: *const Self) -> S::f32s;
}

impl Stored for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(_: S, from: *const Self) -> S::f32s {
        // SAFETY: by contract.
        unsafe { from.cast::<S::f32s>().read_unaligned() }
    }
}

impl Stored for f16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(_: S, from: *const Self) -> S::f32s {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::*;
            use std::mem::transmute_copy as cast;
            // SAFETY: by contract; vectors of this many numbers are those of the set.
            unsafe {
                match S::F32_LANES {
                    16 => return cast(&_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))),
                    8 => return cast(&_mm256_cvtph_ps(_mm_loadu_si128(from.cast()))),
                    _ => {}
                }
            }
        }
        unreachable!("converts_halves: no vectors of {} numbers at {from:?}", S::F32_LANES)
    }
}

/// Whether the processor converts vectors of `lanes` numbers from half precision.
pub(super) fn converts_halves(lanes: usize) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        lanes == 16 || lanes == 8 && is_x86_feature_detected!("f16c")
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let _ = lanes;
        false
    }
}

/// Converts numbers to half precision; `false` if one changes. `back` is memory for as many.
pub(super) fn exact_halves(numbers: &[f32], to: &mut [f16], back: &mut [f32]) -> bool {
    to.convert_from_f32_slice(numbers);
    to.convert_to_f32_slice(back);
    numbers.iter().zip(back).all(|(number, back)| number.to_bits() == back.to_bits())
}

/// Multiplies by weights that were packed because the processor [`converts_halves`].
pub(super) fn dispatch_halves(work: Multiply<'_, f16>) {
    #[cfg(target_arch = "x86_64")]
    {
        use pulp::x86::{V3, V4};
        if let Some(simd) = V4::try_new() {
            return Simd::vectorize(simd, work);
        }
        if let Some(simd) = V3::try_new() {
            // SAFETY: the processor has the instructions of `V3`, and converts.
            return unsafe { with_f16c(simd, work) };
        }
    }
    unreachable!("converts_halves: weights of {} inputs", work.weights.inputs)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
fn with_f16c(simd: pulp::x86::V3, work: Multiply<'_, f16>) {
    pulp::WithSimd::with_simd(work, simd);
}
