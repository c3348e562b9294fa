//! Resizing with antialiasing, bit for bit as Pillow's `Image.resize` since version 13: each axis
//! is filtered separately, with fixed-point weights, and rounded to 8 bits.
//!
//! Implemented here because a library for it adds a minute to a cold build.

use crate::Image;

/// Number of fractional bits of a weight.
const PRECISION: u32 = 22;

/// A filter; its support grows in proportion when the picture shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// `1 - |x|`
    Bilinear,
    /// Cubic convolution with `a = -1/2` (Keys 1981).
    Bicubic,
}

impl Filter {
    /// The distance from which on the filter is 0.
    fn support(self) -> f64 {
        match self {
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
        }
    }

    fn at(self, x: f64) -> f64 {
        let x = x.abs();
        match self {
            Filter::Bilinear if x < 1.0 => 1.0 - x,
            Filter::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Filter::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
            Filter::Bilinear | Filter::Bicubic => 0.0,
        }
    }

    /// For each of `wanted` places the index of its first source, and the weights of that and the
    /// following ones.
    fn weights(self, given: usize, wanted: usize) -> Vec<(usize, Vec<i32>)> {
        let scale = given as f64 / wanted as f64;
        let stretch = scale.max(1.0);
        let support = self.support() * stretch;
        let of = |place: usize| {
            let center = (place as f64 + 0.5) * scale;
            let first = (center - support + 0.5).max(0.0) as usize;
            let end = ((center + support + 0.5) as usize).min(given);
            let weights: Vec<_> = (first..end)
                .map(|source| self.at((source as f64 - center + 0.5) / stretch))
                .collect();
            let sum: f64 = weights.iter().sum();
            let fixed = |weight: &f64| (weight / sum * f64::from(1 << PRECISION)).round() as i32;
            (first, weights.iter().map(fixed).collect())
        };
        (0..wanted).map(of).collect()
    }
}

/// Resizes to height and width: `[height, width, 3]`.
///
/// The height is filtered first if it shrinks by more than twice as many pixels as the width; since
/// each axis is rounded, the order matters.
pub(crate) fn resize(image: &Image, [height, width]: [usize; 2], filter: Filter) -> Vec<u8> {
    let columns = filter.weights(image.width(), width);
    let rows = filter.weights(image.height(), height);
    let shrinks = |given: usize, wanted: usize| given as i64 - wanted as i64;
    let by = shrinks(image.height(), height);
    if by > 0 && by > 2 * shrinks(image.width(), width) {
        horizontally(&columns, &vertically(&rows, image.pixels(), image.width()), image.width())
    } else {
        vertically(&rows, &horizontally(&columns, image.pixels(), image.width()), width)
    }
}

/// Filters each row of `width` pixels.
fn horizontally(columns: &[(usize, Vec<i32>)], pixels: &[u8], width: usize) -> Vec<u8> {
    let mut filtered = Vec::with_capacity(pixels.len() / width * columns.len());
    for row in pixels.chunks_exact(3 * width) {
        for (first, weights) in columns {
            filtered.extend(weighted(weights, row[3 * first..].chunks_exact(3)));
        }
    }
    filtered
}

/// Filters each column of rows of `width` pixels.
fn vertically(rows: &[(usize, Vec<i32>)], pixels: &[u8], width: usize) -> Vec<u8> {
    let mut filtered = Vec::with_capacity(3 * width * rows.len());
    for (first, weights) in rows {
        for column in 0..width {
            let below = pixels[3 * (first * width + column)..].chunks(3 * width);
            filtered.extend(weighted(weights, below));
        }
    }
    filtered
}

/// The weighted sum of pixels, each at the beginning of a chunk.
fn weighted<'p>(weights: &[i32], pixels: impl Iterator<Item = &'p [u8]>) -> [u8; 3] {
    let mut sums = [1i32 << (PRECISION - 1); 3];
    for (weight, pixel) in weights.iter().zip(pixels) {
        for (sum, level) in sums.iter_mut().zip(pixel) {
            *sum += weight * i32::from(*level);
        }
    }
    sums.map(|sum| (sum >> PRECISION).clamp(0, 255) as u8)
}
