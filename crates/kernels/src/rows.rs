//! Fused operations on rows between two products, in one pass over memory.

use crate::activation::{Activation, gelu, swish, tanh_gelu};
use crate::instructions::arch;
use pulp::{Simd, WithSimd};

/// The operations on each row, in the order of the fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows<'r> {
    /// The factor of each row: `[rows]`.
    pub scale: Option<&'r [f32]>,
    /// Added to every row: `[width]`.
    pub bias: Option<&'r [f32]>,
    /// Added to the rows: `[rows, width]`.
    pub residual: Option<&'r [f32]>,
    /// Normalisation.
    pub norm: Option<Norm<'r>>,
    /// Applied to each number.
    pub activation: Activation,
}

/// Layer normalisation of rows (Ba et al. 2016), or without a bias normalisation by the root of the
/// mean square (Zhang and Sennrich 2019).
#[derive(Clone, Copy, Debug)]
pub struct Norm<'r> {
    /// `[width]`
    pub weight: &'r [f32],
    /// `[width]`
    pub bias: Option<&'r [f32]>,
    /// Added to the variance, or to the mean square.
    pub epsilon: f32,
}

/// Rows quantised to 127 steps on either side of zero, with one step size per row (128 represents
/// zero, as in ONNX Runtime).
#[derive(Debug)]
pub struct Quantised<'q> {
    /// `[rows, width]`
    pub bytes: &'q mut [u8],
    /// The largest magnitude of each row: `[rows]`. A row of zeros has 0, and bytes of 128.
    pub largest: &'q mut [f32],
}

/// Rows `[n, width]` and their destination.
#[derive(Debug)]
pub enum Place<'p> {
    /// In place.
    Over(&'p mut [f32]),
    /// From the first to the second.
    To(&'p [f32], &'p mut [f32]),
    /// Not written: only the quantised bytes are needed.
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
    /// Processes `n` rows, the rows `first..` of all rows of the fields.
    ///
    /// # Panics
    /// If a length does not match its dimensions.
    pub fn apply(
        &self,
        first: usize,
        place: Place<'_>,
        width: usize,
        quantised: Option<Quantised<'_>>,
    ) {
        let n = place.len() / width.max(1);
        assert_eq!(place.len(), n * width, "whole rows");
        assert!(!matches!(&place, Place::To(rows, out) if rows.len() != out.len()), "[n, width]");
        assert!(
            quantised
                .as_ref()
                .is_none_or(|made| (made.bytes.len(), made.largest.len()) == (n * width, n)),
            "bytes: [n, width]"
        );
        let wide =
            [self.bias, self.norm.map(|norm| norm.weight), self.norm.and_then(|norm| norm.bias)];
        assert!(wide.into_iter().flatten().all(|row| row.len() == width), "[width]");
        assert!(self.scale.is_none_or(|scale| scale.len() >= first + n), "[rows]");
        assert!(
            self.residual.is_none_or(|residual| residual.len() >= (first + n) * width),
            "[rows, width]"
        );
        arch().dispatch(Apply { rows: self, first, n, place, width, quantised });
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
                each(row, &residual[(first + index) * width..][..width], |x, residual| {
                    x + residual
                });
            }
            if let Some(norm) = &rows.norm {
                normalise(simd, row, norm);
            }
            match rows.activation {
                Activation::Identity => {}
                Activation::Relu => apply(row, |x| if x < 0.0 { 0.0 } else { x }),
                Activation::Swish => apply(row, swish),
                Activation::Gelu => apply(row, gelu),
                Activation::TanhGelu => apply(row, tanh_gelu),
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

#[inline(always)]
fn normalise<S: Simd>(simd: S, row: &mut [f32], norm: &Norm<'_>) {
    let n = row.len() as f32;
    let (vectors, rest) = S::as_simd_f32s(row);
    let mean = norm.bias.map_or(0.0, |_| {
        let mut sum = simd.splat_f32s(0.0);
        for &vector in vectors {
            sum = simd.add_f32s(sum, vector);
        }
        (simd.reduce_sum_f32s(sum) + rest.iter().sum::<f32>()) / n
    });
    let (wide_mean, mut squares) = (simd.splat_f32s(mean), simd.splat_f32s(0.0));
    for &vector in vectors {
        let distance = simd.sub_f32s(vector, wide_mean);
        squares = simd.mul_add_e_f32s(distance, distance, squares);
    }
    let squares =
        simd.reduce_sum_f32s(squares) + rest.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>();
    let factor = 1.0 / (squares / n + norm.epsilon).sqrt();
    match norm.bias {
        Some(bias) => {
            let (weight, bias) = (&norm.weight[..row.len()], &bias[..row.len()]);
            for index in 0..row.len() {
                row[index] = (row[index] - mean) * factor * weight[index] + bias[index];
            }
        }
        None => each(row, norm.weight, |x, weight| x * factor * weight),
    }
}

/// The largest magnitude; NaN if any number is NaN.
#[inline(always)]
fn quantise<S: Simd>(simd: S, row: &[f32], bytes: &mut [u8]) -> f32 {
    /// The number of steps on either side of zero.
    const SIDE: f32 = 127.0;
    /// Adding it leaves no bits for the fraction: the lowest bits contain the nearest integer, ties
    /// to even.
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
    let largest =
        if simd.reduce_sum_f32s(sum).is_nan() { f32::NAN } else { simd.reduce_max_f32s(most) };
    // For a row of zeros this is 0 · ∞ = NaN, whose lowest bits are 0.
    let factor = SIDE / largest;
    let row = &row[..bytes.len()];
    for index in 0..bytes.len() {
        bytes[index] = (row[index] * factor + INTEGERS).to_bits() as u8 ^ 0x80;
    }
    largest
}
