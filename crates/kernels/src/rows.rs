//! Fused operations on rows between two products, in one pass over memory.

use crate::exponential;
use pulp::{Arch, Simd, WithSimd};

/// The operations on each row, in the order of the fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows<'r> {
    /// The factor of each row: `[rows]`.
    pub scale: Option<&'r [f32]>,
    /// Added to every row: `[width]`.
    pub bias: Option<&'r [f32]>,
    /// Added to the rows: `[rows, width]`.
    pub residual: Option<&'r [f32]>,
    /// Layer normalisation (Ba et al. 2016).
    pub norm: Option<Norm<'r>>,
    /// Applied to each number.
    pub activation: Activation,
}

/// Layer normalisation of rows.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'r> {
    /// `[width]`
    pub weight: &'r [f32],
    /// `[width]`
    pub bias: &'r [f32],
    /// Added to the variance.
    pub epsilon: f32,
}

/// A function of single numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// The number itself.
    #[default]
    Identity,
    /// The larger of the number and zero.
    Relu,
    /// `x · sigmoid(x)`
    Swish,
}

/// Rows quantised to 127 steps on either side of zero, with one step size per row (128 represents zero, as in ONNX Runtime).
#[derive(Debug)]
pub struct Quantised<'q> {
    /// `[rows, width]`
    pub bytes: &'q mut [u8],
    /// The largest magnitude of each row: `[rows]`. A row of zeros has 0, and bytes of 128.
    pub largest: &'q mut [f32],
}

/// Rows `[n, width]`, and where they go.
#[derive(Debug)]
pub enum Place<'p> {
    /// Over themselves.
    Over(&'p mut [f32]),
    /// From the first to the second.
    To(&'p [f32], &'p mut [f32]),
    /// Nowhere: only the quantised bytes are needed.
    Nowhere(&'p [f32]),
}

impl Place<'_> {
    fn len(&self) -> usize {
        match self {
            Place::Over(rows) => rows.len(),
            Place::To(rows, _) | Place::Nowhere(rows) => rows.len(),
        }
    }
}

impl Rows<'_> {
    /// Works on `n` rows, which are rows `first..` of all that the fields are about.
    ///
    /// # Panics
    /// If a length does not match its dimensions.
    pub fn apply(&self, first: usize, place: Place<'_>, width: usize, quantised: Option<Quantised<'_>>) {
        let n = place.len() / width.max(1);
        assert_eq!(place.len(), n * width, "whole rows");
        assert!(!matches!(&place, Place::To(rows, out) if rows.len() != out.len()), "[n, width]");
        assert!(quantised.as_ref().is_none_or(|made| (made.bytes.len(), made.largest.len()) == (n * width, n)), "bytes: [n, width]");
        let wide = [self.bias, self.norm.map(|norm| norm.weight), self.norm.map(|norm| norm.bias)];
        assert!(wide.into_iter().flatten().all(|row| row.len() == width), "[width]");
        assert!(self.scale.is_none_or(|scale| scale.len() >= first + n), "[rows]");
        assert!(self.residual.is_none_or(|residual| residual.len() >= (first + n) * width), "[rows, width]");
        Arch::new().dispatch(Apply { rows: self, first, n, place, width, quantised });
    }
}

/// [`Rows::apply`] in the processor's vectors.
struct Apply<'a, 'r> {
    rows: &'a Rows<'r>,
    first: usize,
    n: usize,
    place: Place<'a>,
    width: usize,
    quantised: Option<Quantised<'a>>,
}

impl WithSimd for Apply<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, first, n, mut place, width, mut quantised } = self;
        let mut room = vec![0.0; if matches!(place, Place::Nowhere(_)) { width } else { 0 }];
        for index in 0..n {
            let at = index * width..(index + 1) * width;
            let row = match &mut place {
                Place::Over(rows) => &mut rows[at.clone()],
                Place::To(rows, out) => copied(&mut out[at.clone()], &rows[at.clone()]),
                Place::Nowhere(rows) => copied(&mut room, &rows[at.clone()]),
            };
            match (rows.scale.map(|scale| scale[first + index]), rows.bias) {
                (Some(scale), Some(bias)) => each(row, bias, |x, bias| x * scale + bias),
                (Some(scale), None) => apply(row, |x| x * scale),
                (None, Some(bias)) => each(row, bias, |x, bias| x + bias),
                (None, None) => {}
            }
            if let Some(residual) = rows.residual {
                each(row, &residual[(first + index) * width..][..width], |x, residual| x + residual);
            }
            if let Some(norm) = &rows.norm {
                normalise(simd, row, norm);
            }
            match rows.activation {
                Activation::Identity => {}
                Activation::Relu => apply(row, |x| if x < 0.0 { 0.0 } else { x }),
                Activation::Swish => apply(row, swish),
            }
            if let Some(Quantised { bytes, largest }) = &mut quantised {
                largest[index] = quantise(simd, row, &mut bytes[at]);
            }
        }
    }
}

#[inline(always)]
fn copied<'r>(row: &'r mut [f32], from: &[f32]) -> &'r mut [f32] {
    row.copy_from_slice(from);
    row
}

#[inline(always)]
fn each(row: &mut [f32], other: &[f32], f: impl Fn(f32, f32) -> f32) {
    let other = &other[..row.len()];
    for index in 0..row.len() {
        row[index] = f(row[index], other[index]);
    }
}

#[inline(always)]
fn apply(row: &mut [f32], f: impl Fn(f32) -> f32) {
    for x in row {
        *x = f(*x);
    }
}

/// The sigmoid of a very negative number is tiny: neither exponential overflows.
#[inline(always)]
fn swish(x: f32) -> f32 {
    let small = exponential::<false, 7>(-x.abs());
    let share = if x < 0.0 { small } else { 1.0 };
    x * share / (1.0 + small)
}

#[inline(always)]
fn normalise<S: Simd>(simd: S, row: &mut [f32], norm: &Norm<'_>) {
    let n = row.len() as f32;
    let (vectors, rest) = S::as_simd_f32s(row);
    let mut sum = simd.splat_f32s(0.0);
    for &vector in vectors {
        sum = simd.add_f32s(sum, vector);
    }
    let mean = (simd.reduce_sum_f32s(sum) + rest.iter().sum::<f32>()) / n;
    let (wide_mean, mut squares) = (simd.splat_f32s(mean), simd.splat_f32s(0.0));
    for &vector in vectors {
        let distance = simd.sub_f32s(vector, wide_mean);
        squares = simd.mul_add_e_f32s(distance, distance, squares);
    }
    let squares = simd.reduce_sum_f32s(squares) + rest.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>();
    let factor = 1.0 / (squares / n + norm.epsilon).sqrt();
    let (weight, bias) = (&norm.weight[..row.len()], &norm.bias[..row.len()]);
    for index in 0..row.len() {
        row[index] = (row[index] - mean) * factor * weight[index] + bias[index];
    }
}

/// The largest magnitude; NaN if any number is NaN.
#[inline(always)]
fn quantise<S: Simd>(simd: S, row: &[f32], bytes: &mut [u8]) -> f32 {
    /// The steps on either side of zero.
    const SIDE: f32 = 127.0;
    /// Adding it leaves no bits for the fraction: the nearest integer, ties to even, is in the lowest bits.
    const INTEGERS: f32 = 12_582_912.0;
    let (vectors, rest) = S::as_simd_f32s(row);
    let (mut most, mut sum) = (simd.splat_f32s(0.0), simd.splat_f32s(0.0));
    for &vector in vectors {
        let size = simd.abs_f32s(vector);
        (most, sum) = (simd.max_f32s(most, size), simd.add_f32s(sum, size));
    }
    if !rest.is_empty() {
        let size = simd.abs_f32s(simd.partial_load_f32s(rest));
        (most, sum) = (simd.max_f32s(most, size), simd.add_f32s(sum, size));
    }
    let largest = if simd.reduce_sum_f32s(sum).is_nan() { f32::NAN } else { simd.reduce_max_f32s(most) };
    // For a row of zeros this is 0 · ∞ = NaN, whose lowest bits are 0.
    let factor = SIDE / largest;
    let row = &row[..bytes.len()];
    for index in 0..bytes.len() {
        bytes[index] = (row[index] * factor + INTEGERS).to_bits() as u8 ^ 0x80;
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between -2 and 2 without a pattern.
    fn numbers(n: usize, seed: usize) -> Vec<f32> {
        (0..n).map(|index| ((index * 7_919 + seed * 104_729) % 2_003) as f32 / 500.75 - 2.0).collect()
    }

    /// A row in f64.
    fn expected(rows: &Rows<'_>, x: &[f32], row: usize) -> Vec<f64> {
        let width = x.len();
        let wide = |x: f32| f64::from(x);
        let mut made: Vec<f64> = x.iter().map(|&x| wide(x) * rows.scale.map_or(1.0, |scale| wide(scale[row]))).collect();
        for (index, made) in made.iter_mut().enumerate() {
            *made +=
                rows.bias.map_or(0.0, |bias| wide(bias[index])) + rows.residual.map_or(0.0, |residual| wide(residual[row * width + index]));
        }
        if let Some(norm) = rows.norm {
            let mean = made.iter().sum::<f64>() / width as f64;
            let variance = made.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
            let normal = |(index, x): (usize, &f64)| {
                (x - mean) / (variance + wide(norm.epsilon)).sqrt() * wide(norm.weight[index]) + wide(norm.bias[index])
            };
            made = made.iter().enumerate().map(normal).collect();
        }
        let activated = made.into_iter().map(|x| match rows.activation {
            Activation::Identity => x,
            Activation::Relu => x.max(0.0),
            Activation::Swish => x / (1.0 + (-x).exp()),
        });
        activated.collect()
    }

    #[test]
    fn every_step_is_as_in_f64() {
        for width in [64, 6, 37] {
            let n = 5;
            let (x, residual) = (numbers(n * width, 1), numbers(n * width, 2));
            let [bias, weight, scale] = [3, 4, 5].map(|seed| numbers(width, seed));
            let norm = Norm { weight: &weight, bias: &bias, epsilon: 1e-5 };
            let none = Rows::default();
            let all =
                Rows { scale: Some(&scale), bias: Some(&bias), residual: Some(&residual), norm: Some(norm), activation: Activation::Swish };
            for rows in [
                none,
                Rows { scale: Some(&scale), ..none },
                Rows { bias: Some(&bias), activation: Activation::Relu, ..none },
                Rows { residual: Some(&residual), norm: Some(norm), ..none },
                Rows { activation: Activation::Swish, ..none },
                all,
            ] {
                let (mut out, mut bytes, mut largest) = (vec![f32::NAN; n * width], vec![0; n * width], vec![0.0; n]);
                let quantised = Quantised { bytes: &mut bytes, largest: &mut largest };
                rows.apply(0, Place::To(&x, &mut out), width, Some(quantised));
                let mut over = x[width..].to_vec();
                rows.apply(1, Place::Over(&mut over), width, None);
                assert_eq!(over, out[width..], "over itself");
                let mut again = vec![0; n * width];
                rows.apply(0, Place::Nowhere(&x), width, Some(Quantised { bytes: &mut again, largest: &mut vec![0.0; n] }));
                assert_eq!(again, bytes, "without an output");
                for row in 0..n {
                    let (found, at) = (&out[row * width..][..width], row * width);
                    let expected = expected(&rows, &x[at..][..width], row);
                    let worst =
                        found.iter().zip(&expected).map(|(&found, expected)| (f64::from(found) - expected).abs()).fold(0.0, f64::max);
                    assert!(worst < 1e-5, "{rows:?}: {worst:e}");
                    assert_eq!(largest[row], found.iter().fold(0.0, |largest: f32, x| largest.max(x.abs())));
                    for (&x, &byte) in found.iter().zip(&bytes[at..]) {
                        let step = f64::from(x) / f64::from(largest[row]) * 127.0;
                        assert!((step - (f64::from(byte) - 128.0)).abs() <= 0.5 + 1e-4, "{step} became {byte}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_without_numbers_say_so() {
        let x = [0.0, -0.0, 0.0, 0.0, 1.0, f32::NAN, 2.0, 3.0, -4.0, 2.0, 0.0, 4.0];
        let (mut bytes, mut largest) = ([0; 12], [0.0; 3]);
        Rows::default().apply(0, Place::Nowhere(&x), 4, Some(Quantised { bytes: &mut bytes, largest: &mut largest }));
        assert_eq!((largest[0], largest[1].is_nan(), largest[2]), (0.0, true, 4.0));
        assert_eq!(bytes[..4], [128; 4]);
        assert_eq!(bytes[8..], [1, 192, 128, 255]);
    }

    #[test]
    fn large_numbers_overflow_nothing() {
        let mut x = [-1e30, -200.0, -88.0, 0.0, 88.0, 200.0, 1e30, -0.5];
        Rows { activation: Activation::Swish, ..Rows::default() }.apply(0, Place::Over(&mut x), 8, None);
        assert!(x[..3].iter().all(|x| x.abs() < 1e-6), "{x:?}");
        assert_eq!(x[3..7], [0.0, 88.0, 200.0, 1e30]);
    }
}
