//! The largest numbers of a product's rows and the softmax of these, in one pass with the product:
//! no row is ever written completely.

use crate::exponential::exponential;
use crate::instructions::arch;
use crate::screen::{Wanted, nth_largest};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Rows and columns that are computed at once: few enough to stay in the cache, and to sum
/// exponentials in f32.
const ROWS: usize = 96;
const COLUMNS: usize = 1024;
/// Number of vectors per iteration, for instruction-level parallelism; also of exponentials.
const VECTORS: usize = 4;
const LANES: usize = 64;

/// The result for a row.
#[derive(Clone, Debug)]
pub struct Best {
    /// The requested columns in ascending order with their numbers. Of equal numbers the first are
    /// the largest. If one is NaN, at least one column has NaN.
    pub columns: Vec<(usize, f32)>,
    /// The largest `factor · number`: NaN if one is NaN, minus infinity for an empty row.
    pub largest: f32,
    /// `ln Σ exp(factor · number - largest)`
    pub log_sum: f32,
}

/// Computes a product `[n, outputs]`, and finds the requested columns of each row. The softmax is
/// that of `factor_of(row)` times the row. `multiply` writes some rows and columns of the product.
pub fn best(
    [n, outputs]: [usize; 2],
    wanted: Wanted<'_>,
    factor_of: impl Fn(usize) -> f32,
    mut multiply: impl FnMut(Range<usize>, Range<usize>, &mut [f32]),
) -> Vec<Best> {
    let (mut found, mut room) =
        (Vec::with_capacity(n), vec![0.0; n.min(ROWS) * outputs.min(COLUMNS)]);
    for first in (0..n).step_by(ROWS) {
        let rows = first..n.min(first + ROWS);
        let mut searches: Vec<_> =
            rows.clone().map(|row| Search::new(factor_of(row), wanted)).collect();
        for start in (0..outputs).step_by(COLUMNS) {
            let columns = start..outputs.min(start + COLUMNS);
            let room = &mut room[..rows.len() * columns.len()];
            multiply(rows.clone(), columns.clone(), room);
            for (search, numbers) in searches.iter_mut().zip(room.chunks_exact(columns.len())) {
                arch().dispatch(Read { search, numbers, start });
            }
        }
        found.extend(searches.into_iter().map(Search::finish));
    }
    found
}

/// The largest number; NaN if one is NaN, minus infinity if there are none.
pub fn largest(numbers: &[f32]) -> f32 {
    arch().dispatch(Largest(numbers))
}

/// `Σ exp(factor · number - largest)`; no exponent is above 0.
pub fn sum_of_exponentials(numbers: &[f32], factor: f32, largest: f32) -> f32 {
    arch().dispatch(Exponentials { numbers, factor, largest })
}

/// The search in a row.
struct Search<'w> {
    factor: f32,
    wanted: Wanted<'w>,
    /// The largest numbers so far, largest first.
    best: Vec<(usize, f32)>,
    always: Vec<(usize, f32)>,
    largest: f32,
    sum: f64,
}

impl<'w> Search<'w> {
    fn new(factor: f32, wanted: Wanted<'w>) -> Self {
        let (best, always) =
            (Vec::with_capacity(wanted.count + 1), Vec::with_capacity(wanted.always.len()));
        Self { factor, wanted, best, always, largest: f32::NEG_INFINITY, sum: 0.0 }
    }

    /// The minimum of a number to be among the largest.
    #[inline(always)]
    fn least(&self) -> f32 {
        if self.best.len() < self.wanted.count {
            f32::NEG_INFINITY
        } else {
            self.best.last().map_or(f32::INFINITY, |last| last.1)
        }
    }

    /// Adds the numbers that are at least `least`; returns the minimum for others.
    #[inline(never)]
    fn put_some(&mut self, numbers: &[f32], start: usize, mut least: f32) -> f32 {
        for (column, &number) in (start..).zip(numbers) {
            if number >= least {
                let place = self.best.partition_point(|&(other, best)| {
                    best > number || (best == number && other < column)
                });
                self.best.insert(place, (column, number));
                self.best.truncate(self.wanted.count);
                least = least.max(self.least());
            }
        }
        least
    }

    fn finish(self) -> Best {
        let Self { mut best, always, largest, sum, .. } = self;
        if largest.is_nan() {
            best = vec![(0, f32::NAN)];
        }
        best.extend(always);
        best.sort_unstable_by_key(|(column, _)| *column);
        best.dedup_by_key(|(column, _)| *column);
        Best { columns: best, largest, log_sum: sum.ln() as f32 }
    }
}

/// Reads numbers of a row, starting at column `start`.
struct Read<'a, 'w> {
    search: &'a mut Search<'w>,
    numbers: &'a [f32],
    start: usize,
}

impl WithSimd for Read<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { search, numbers, start } = self;
        let maxima = Maxima::of(simd, numbers);
        let most = maxima.largest(simd);
        let largest = most * search.factor;
        if largest > search.largest || largest.is_nan() {
            search.sum *= f64::from(search.largest - largest).exp();
            search.largest = if search.largest.is_nan() { search.largest } else { largest };
        }
        if search.largest > f32::NEG_INFINITY {
            let Search { factor, largest, .. } = *search;
            search.sum += f64::from(Exponentials { numbers, factor, largest }.with_simd(simd));
        }
        for &column in search
            .wanted
            .always
            .iter()
            .filter(|column| (start..start + numbers.len()).contains(*column))
        {
            search.always.push((column, numbers[column - start]));
        }
        let mut least = search.least();
        if search.best.len() < search.wanted.count {
            least = maxima.nth_largest(search.wanted.count);
        }
        if most < least || most.is_nan() {
            return;
        }
        let (vectors, rest) = S::as_simd_f32s(numbers);
        let (whole, last) = vectors.as_chunks::<VECTORS>();
        for (group, &[a, b, c, d]) in whole.iter().enumerate() {
            if reaches(simd, simd.max_f32s(simd.max_f32s(a, b), simd.max_f32s(c, d)), least) {
                let first = group * VECTORS * S::F32_LANES;
                for first in (first..first + VECTORS * S::F32_LANES).step_by(S::F32_LANES) {
                    if reaches(simd, vectors[first / S::F32_LANES], least) {
                        least = search.put_some(
                            &numbers[first..first + S::F32_LANES],
                            start + first,
                            least,
                        );
                    }
                }
            }
        }
        let first = numbers.len() - last.len() * S::F32_LANES - rest.len();
        search.put_some(&numbers[first..], start + first, least);
    }
}

/// Whether a number is at least `least`.
#[inline(always)]
fn reaches<S: Simd>(simd: S, vector: S::f32s, least: f32) -> bool {
    simd.first_true_m32s(simd.greater_than_or_equal_f32s(vector, simd.splat_f32s(least)))
        < S::F32_LANES
}

struct Largest<'a>(&'a [f32]);

impl WithSimd for Largest<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        Maxima::of(simd, self.0).largest(simd)
    }
}

struct Exponentials<'a> {
    numbers: &'a [f32],
    factor: f32,
    largest: f32,
}

impl WithSimd for Exponentials<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f32 {
        // Instruction sets with vectors have fused multiply-add.
        if S::F32_LANES > 1 { self.sum::<true>() } else { self.sum::<false>() }
    }
}

impl Exponentials<'_> {
    #[allow(
        clippy::needless_range_loop,
        reason = "closures are not always inlined into functions of other instruction sets"
    )]
    #[inline(always)]
    fn sum<const FUSED: bool>(self) -> f32 {
        let Self { numbers, factor, largest } = self;
        let (whole, rest) = numbers.as_chunks::<LANES>();
        let mut lanes = [0.0_f32; LANES];
        for numbers in whole {
            for lane in 0..LANES {
                lanes[lane] += exponential::<FUSED, 6>(numbers[lane] * factor - largest);
            }
        }
        for half in [LANES / 2, LANES / 4] {
            for lane in 0..half {
                lanes[lane] += lanes[lane + half];
            }
        }
        let mut sum = 0.0;
        for lane in 0..LANES / 4 {
            sum += lanes[lane];
        }
        for index in 0..rest.len() {
            sum += exponential::<FUSED, 6>(rest[index] * factor - largest);
        }
        sum
    }
}

/// The largest numbers of parts of a row: one per lane of several vectors, and those of the
/// remainder.
struct Maxima<S: Simd> {
    lanes: [S::f32s; VECTORS],
    rest: f32,
    has_nan: bool,
}

impl<S: Simd> Maxima<S> {
    #[allow(clippy::needless_range_loop, reason = "constant places keep vectors in registers")]
    #[inline(always)]
    fn of(simd: S, numbers: &[f32]) -> Self {
        let (vectors, rest) = S::as_simd_f32s(numbers);
        let (whole, last) = vectors.as_chunks::<VECTORS>();
        // Comparisons hide NaN; a sum of squares is NaN only if a number is.
        let (mut lanes, mut sums) =
            ([simd.splat_f32s(f32::NEG_INFINITY); VECTORS], [simd.splat_f32s(0.0); VECTORS]);
        for vectors in whole {
            for place in 0..VECTORS {
                lanes[place] = simd.max_f32s(lanes[place], vectors[place]);
                sums[place] = simd.mul_add_e_f32s(vectors[place], vectors[place], sums[place]);
            }
        }
        for &vector in last {
            lanes[0] = simd.max_f32s(lanes[0], vector);
            sums[0] = simd.mul_add_e_f32s(vector, vector, sums[0]);
        }
        let sum = simd.add_f32s(simd.add_f32s(sums[0], sums[1]), simd.add_f32s(sums[2], sums[3]));
        let (mut largest, mut rest_sum) = (f32::NEG_INFINITY, 0.0);
        for &number in rest {
            (largest, rest_sum) =
                (if number > largest { number } else { largest }, rest_sum + number * number);
        }
        Self { lanes, rest: largest, has_nan: (simd.reduce_sum_f32s(sum) + rest_sum).is_nan() }
    }

    /// NaN if one number is NaN, minus infinity if there are none.
    #[inline(always)]
    fn largest(&self, simd: S) -> f32 {
        let [a, b, c, d] = self.lanes;
        let largest = simd.reduce_max_f32s(simd.max_f32s(simd.max_f32s(a, b), simd.max_f32s(c, d)));
        if self.has_nan {
            f32::NAN
        } else if self.rest > largest {
            self.rest
        } else {
            largest
        }
    }

    /// A bound that at least `n` numbers reach.
    #[inline(always)]
    fn nth_largest(&self, n: usize) -> f32 {
        let mut lanes = [f32::NEG_INFINITY; VECTORS * 16];
        S::as_mut_simd_f32s(&mut lanes)
            .0
            .iter_mut()
            .zip(&self.lanes)
            .for_each(|(lanes, found)| *lanes = *found);
        nth_largest(&mut lanes, n)
    }
}
