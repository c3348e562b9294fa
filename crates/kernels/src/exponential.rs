//! Exponentials for softmax.

/// `exp(x)` for `x <= 0`: `2^n · exp(r)` with `|r| <= ln 2 / 2`, by Taylor's series up to a power.
/// Up to the sixth power its error is at most three units in the last place, up to the seventh two.
///
/// `FUSED` is for processors with fused multiply-add.
#[inline(always)]
pub fn exponential<const FUSED: bool, const POWER: usize>(x: f32) -> f32 {
    const FACTORS: [f32; 8] =
        [1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5_040.0];
    /// Below, `exp` is subnormal.
    const LEAST: f32 = -87.0;
    /// Adding it leaves no bits for the fraction: the lowest bits contain the nearest integer.
    const INTEGERS: f32 = 12_582_912.0;
    /// `ln 2` as a sum; the larger part has few enough bits to be multiplied exactly.
    const LN_2: [f32; 2] = [355.0 / 512.0, -2.121_944_4e-4];
    let x = if x < LEAST { LEAST } else { x };
    let add = |product: [f32; 2], term: f32| {
        let [a, b] = product;
        if FUSED { a.mul_add(b, term) } else { a * b + term }
    };
    let shifted = add([x, std::f32::consts::LOG2_E], INTEGERS);
    let n = shifted - INTEGERS;
    let r = add([-n, LN_2[1]], add([-n, LN_2[0]], x));
    let (mut series, mut place) = (FACTORS[POWER], POWER);
    while place > 0 {
        place -= 1;
        series = add([series, r], FACTORS[place]);
    }
    let power = shifted.to_bits().wrapping_sub(INTEGERS.to_bits()).wrapping_add(127) << 23;
    series * f32::from_bits(power)
}
