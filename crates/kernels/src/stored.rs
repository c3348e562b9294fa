//! Numbers in memory: in f32, or in half precision.

use crate::instructions::arch;
use crate::panels::Number;
use half::f16;
use half::slice::HalfFloatSliceExt;
use pulp::{NullaryFnOnce, Simd, WithSimd};

/// A type of numbers in memory that are multiplied in f32. Other crates cannot implement it.
pub trait Stored: Number + Send + Sync {
    /// The vector of the numbers from a pointer on.
    ///
    /// # Safety
    /// There are as many numbers.
    #[doc(hidden)]
    unsafe fn load<S: Simd>(simd: S, from: *const Self) -> S::f32s;

    /// The numbers in f32, where they are or in `room`, which is at least as long.
    #[doc(hidden)]
    fn floats<'n>(numbers: &'n [Self], room: &'n mut [f32]) -> &'n [f32];

    /// Runs work with the best instructions that load such numbers.
    #[doc(hidden)]
    fn dispatch<W: WithSimd>(work: W) -> W::Output;

    /// Runs work that loads such numbers in a function of its own, which is compiled for the
    /// instructions of `simd`.
    #[doc(hidden)]
    fn vectorize<S: Simd, W: NullaryFnOnce>(simd: S, work: W) -> W::Output;
}

impl Stored for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(_: S, from: *const Self) -> S::f32s {
        // SAFETY: by contract.
        unsafe { from.cast::<S::f32s>().read_unaligned() }
    }

    #[inline(always)]
    fn floats<'n>(numbers: &'n [Self], _: &'n mut [f32]) -> &'n [f32] {
        numbers
    }

    #[inline(always)]
    fn dispatch<W: WithSimd>(work: W) -> W::Output {
        arch().dispatch(work)
    }

    #[inline(always)]
    fn vectorize<S: Simd, W: NullaryFnOnce>(simd: S, work: W) -> W::Output {
        simd.vectorize(work)
    }
}

impl Stored for f16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(_: S, from: *const Self) -> S::f32s {
        use std::mem::transmute_copy as cast;
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::*;
            // SAFETY: by contract; vectors of this many numbers are those of the set, with which
            // only `dispatch` runs work.
            unsafe {
                match S::F32_LANES {
                    16 => return cast(&_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))),
                    8 => return cast(&_mm256_cvtph_ps(_mm_loadu_si128(from.cast()))),
                    _ => {}
                }
            }
        }
        let mut numbers = [0.0_f32; 16];
        for (index, number) in numbers.iter_mut().enumerate().take(S::F32_LANES) {
            // SAFETY: by contract.
            *number = unsafe { from.add(index).read() }.to_f32();
        }
        // SAFETY: a vector of f32 has as many numbers, and no other bytes.
        unsafe { cast(&numbers) }
    }

    #[inline(always)]
    fn floats<'n>(numbers: &'n [Self], room: &'n mut [f32]) -> &'n [f32] {
        let room = &mut room[..numbers.len()];
        numbers.convert_to_f32_slice(room);
        room
    }

    fn dispatch<W: WithSimd>(work: W) -> W::Output {
        #[cfg(target_arch = "x86_64")]
        {
            match arch() {
                pulp::x86::Arch::V4(simd) => Simd::vectorize(simd, work),
                pulp::x86::Arch::V3(simd) if converts_halves(8) => {
                    // SAFETY: the processor has the instructions of `V3`, and converts.
                    unsafe { with_f16c(simd, work) }
                }
                _ => work.with_simd(pulp::Scalar),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        arch().dispatch(work)
    }

    #[inline(always)]
    fn vectorize<S: Simd, W: NullaryFnOnce>(simd: S, work: W) -> W::Output {
        #[cfg(target_arch = "x86_64")]
        if const { S::F32_LANES == 8 } {
            // SAFETY: vectors of this many numbers are those of `V3`, which runs work that loads
            // halves only if the processor converts.
            return unsafe { call_with_f16c(work) };
        }
        simd.vectorize(work)
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
fn with_f16c<W: WithSimd>(simd: pulp::x86::V3, work: W) -> W::Output {
    work.with_simd(simd)
}

/// As [`Simd::vectorize`] of `V3`, whose functions do not convert from half precision.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
fn call_with_f16c<W: NullaryFnOnce>(work: W) -> W::Output {
    work.call()
}

/// Whether the processor converts vectors from half precision.
pub fn reads_halves() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use pulp::x86::Arch;
        match arch() {
            Arch::V4(_) => true,
            Arch::V3(_) => converts_halves(8),
            _ => false,
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        false
    }
}

/// Whether the processor converts vectors of `lanes` numbers from half precision.
pub(crate) fn converts_halves(lanes: usize) -> bool {
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

/// Rounds numbers to half precision.
///
/// # Panics
/// If the slices have different lengths.
pub fn round_to_f16(numbers: &[f32], to: &mut [f16]) {
    to.convert_from_f32_slice(numbers);
}

/// Converts numbers to half precision; `false` if one changes. `back` is memory for as many.
pub(crate) fn exact_halves(numbers: &[f32], to: &mut [f16], back: &mut [f32]) -> bool {
    to.convert_from_f32_slice(numbers);
    to.convert_to_f32_slice(back);
    numbers.iter().zip(back).all(|(number, back)| number.to_bits() == back.to_bits())
}
