//! Functions of one number.

use crate::exponential;

/// A function of one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// The number itself.
    #[default]
    Identity,
    /// The maximum of the number and zero.
    Relu,
    /// `x · sigmoid(x)`
    Swish,
    /// `x · Φ(x)`, where Φ is the CDF of the normal distribution (Hendrycks and Gimpel 2016).
    Gelu,
    /// `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`, the approximation in the same paper.
    TanhGelu,
}

/// The sigmoid of a very negative number is tiny: neither exponential overflows.
#[inline(always)]
pub(crate) fn swish(x: f32) -> f32 {
    let small = exponential::<false, 7>(-x.abs());
    let share = if x < 0.0 { small } else { 1.0 };
    x * share / (1.0 + small)
}

/// `(1 + tanh(u)) / 2 = sigmoid(2u)`
#[inline(always)]
pub(crate) fn tanh_gelu(x: f32) -> f32 {
    const FACTORS: [f32; 2] = [1.595_769, 0.071_354_82];
    let size = (x * (FACTORS[0] + FACTORS[1] * x * x)).abs();
    // Beyond, the result for a negative number is subnormal.
    let small = if size < 87.0 { exponential::<false, 7>(-size) } else { 0.0 };
    let share = if x < 0.0 { small } else { 1.0 };
    x * share / (1.0 + small)
}

/// The probability above `|x|` is `exp(-x²/2)` times a polynomial in `1 / (1 + SLOPE · |x|)`, the
/// form of Abramowitz and Stegun 1964, 7.1.26. Its coefficients are our own least-squares fit to a
/// relative error of 2.3e-7 up to 5.5.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    const SLOPE: f32 = 0.35;
    const FACTORS: [f32; 7] = [
        0.139_853_94,
        0.135_883_94,
        0.147_915_51,
        -0.002_402_863_2,
        0.225_364_5,
        -0.193_576_37,
        0.046_961_41,
    ];
    let size = x.abs();
    let inner = 1.0 / (1.0 + SLOPE * size);
    let (mut series, mut place) = (0.0, FACTORS.len());
    while place > 0 {
        place -= 1;
        series = (series + FACTORS[place]) * inner;
    }
    let behind = x * exponential::<false, 7>(-0.5 * size * size) * series;
    if x < 0.0 { behind } else { x - behind }
}
