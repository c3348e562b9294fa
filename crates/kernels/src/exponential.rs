//! Exponentials for softmax.

use pulp::Simd;
use std::f32::consts::LOG2_E;

const FACTORS: [f32; 8] =
    [1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5_040.0];
/// Below, `exp` is subnormal.
const LEAST: f32 = -87.0;
/// Adding it leaves no bits for the fraction: the lowest bits contain the nearest integer.
const INTEGERS: f32 = 12_582_912.0;
/// `ln 2` as a sum; the larger part has few enough bits to be multiplied exactly.
const LN_2: [f32; 2] = [355.0 / 512.0, -2.121_944_4e-4];
/// The bits of the exponent of `2^n`, less those of `n + INTEGERS`.
const EXPONENT: u32 = 127_u32.wrapping_sub(INTEGERS.to_bits());

/// `exp(x)` for `x <= 0`: `2^n · exp(r)` with `|r| <= ln 2 / 2`, by Taylor's series up to a power.
/// Up to the sixth power its error is at most three units in the last place, up to the seventh two.
///
/// `FUSED` is for processors with fused multiply-add.
#[inline(always)]
pub fn exponential<const FUSED: bool, const POWER: usize>(x: f32) -> f32 {
    let x = if x < LEAST { LEAST } else { x };
    let add = |product: [f32; 2], term: f32| {
        let [a, b] = product;
        if FUSED { a.mul_add(b, term) } else { a * b + term }
    };
    let shifted = add([x, LOG2_E], INTEGERS);
    let n = shifted - INTEGERS;
    let r = add([-n, LN_2[1]], add([-n, LN_2[0]], x));
    let (mut series, mut place) = (FACTORS[POWER], POWER);
    while place > 0 {
        place -= 1;
        series = add([series, r], FACTORS[place]);
    }
    let power = shifted.to_bits().wrapping_add(EXPONENT) << 23;
    series * f32::from_bits(power)
}

/// The same for a vector, up to the sixth power.
#[inline(always)]
pub(crate) fn exponentials<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let all = |number| simd.splat_f32s(number);
    let x = simd.max_f32s(all(LEAST), x);
    let shifted = simd.mul_add_e_f32s(x, all(LOG2_E), all(INTEGERS));
    let n = simd.sub_f32s(shifted, all(INTEGERS));
    let r = simd.mul_add_e_f32s(n, all(-LN_2[0]), x);
    let r = simd.mul_add_e_f32s(n, all(-LN_2[1]), r);
    let mut series = all(FACTORS[6]);
    for factor in [FACTORS[5], FACTORS[4], FACTORS[3], FACTORS[2], FACTORS[1], FACTORS[0]] {
        series = simd.mul_add_e_f32s(series, r, all(factor));
    }
    let bits = simd.add_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(EXPONENT));
    let power = simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(23));
    simd.mul_f32s(series, simd.transmute_f32s_u32s(power))
}
