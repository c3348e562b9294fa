//! The largest numbers of a product's rows and the softmax of these, in one pass with the product:
//! no row is ever written completely.

use crate::exponential::exponential;
use crate::instructions::arch;
use crate::screen::{Wanted, nth_largest};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Rows that are computed at once; more where weights are divided for each product.
const ROWS: usize = 96;
const COARSE_ROWS: usize = 512;
/// Rows begin with multiples of it.
const BLOCK: usize = 32;
/// Columns that are computed at once: few enough to sum exponentials in f32.
const COLUMNS: usize = 1024;
/// They begin with multiples of it.
const STEP: usize = 128;
/// Numbers that stay in the second-level cache.
const CACHED: usize = 1 << 17;
/// Number of vectors per iteration, for instruction-level parallelism; also of exponentials.
const VECTORS: usize = 4;
const LANES: usize = 64;

/// Number of terms of a softmax that are corrected if numbers are not exact.
const TERMS: usize = 8;
/// Number of columns too many, in unknown order, with which a row is computed exactly.
const TIES: usize = 256;

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

/// What is exact of a product whose numbers are not.
pub trait Exact {
    /// The largest error of a number of a row; not finite if a number is not.
    fn error_of(&self, row: usize) -> f32;

    /// The exact numbers of some columns of a row.
    fn numbers_of(&mut self, row: usize, columns: &[usize]) -> Vec<f32>;
}

/// Computes a product `[n, outputs]`, and finds the requested columns of each row. The softmax is
/// that of `factor_of(row)` times the row. `multiply` writes some rows and columns of the product;
/// rows begin with a multiple of 32, columns of 128. If these numbers are not `exact`, the requested
/// columns and the largest terms of the softmax are nevertheless.
pub fn best(
    [n, outputs]: [usize; 2],
    wanted: Wanted<'_>,
    factor_of: impl Fn(usize) -> f32,
    mut multiply: impl FnMut(Range<usize>, Range<usize>, &mut [f32]),
    mut exact: Option<&mut dyn Exact>,
) -> Vec<Best> {
    let most = if exact.is_some() { COARSE_ROWS } else { ROWS };
    let n_rows = n.div_ceil(n.div_ceil(most).max(1)).next_multiple_of(BLOCK).min(n);
    let n_columns = (CACHED / n_rows.max(1) / STEP * STEP).clamp(STEP, COLUMNS).min(outputs);
    let (mut found, mut room) = (Vec::with_capacity(n), vec![0.0; n_rows * n_columns]);
    for first in (0..n).step_by(n_rows.max(1)) {
        let rows = first..n.min(first + n_rows);
        let new_search = |row: usize| {
            let error = exact.as_ref().map_or(0.0, |exact| exact.error_of(row));
            Search::new(factor_of(row), wanted, error)
        };
        let mut searches: Vec<_> = rows.clone().map(new_search).collect();
        for start in (0..outputs).step_by(n_columns.max(1)) {
            let columns = start..outputs.min(start + n_columns);
            let room = &mut room[..rows.len() * columns.len()];
            multiply(rows.clone(), columns.clone(), room);
            for (search, numbers) in searches.iter_mut().zip(room.chunks_exact(columns.len())) {
                search.read(numbers, start);
            }
        }
        for (row, mut search) in rows.zip(searches) {
            if let Some(exact) = &mut exact {
                if search.is_lost {
                    search = Search::new(search.factor, wanted, 0.0);
                    for start in (0..outputs).step_by(COLUMNS) {
                        let columns: Vec<_> = (start..outputs.min(start + COLUMNS)).collect();
                        search.read(&exact.numbers_of(row, &columns), start);
                    }
                } else {
                    search.correct(&mut |columns| exact.numbers_of(row, columns));
                }
            }
            found.push(search.finish());
        }
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
    /// How many of the largest numbers are certainly searched.
    count: usize,
    /// The largest distance of exact numbers whose order is unknown: 0 if all are known.
    unknown: f32,
    /// Whether there are more [`TIES`] than are kept.
    is_lost: bool,
}

impl<'w> Search<'w> {
    fn new(factor: f32, wanted: Wanted<'w>, error: f32) -> Self {
        let (unknown, least) = (2.0 * error, if error == 0.0 { 0 } else { TERMS });
        let count = wanted.count.max(least);
        let (best, always) =
            (Vec::with_capacity(count + 1), Vec::with_capacity(wanted.always.len()));
        let largest = if error.is_finite() { f32::NEG_INFINITY } else { f32::NAN };
        let (sum, is_lost) = (0.0, false);
        Self { factor, wanted, best, always, largest, sum, count, unknown, is_lost }
    }

    /// Searches the numbers of some columns, from `start` on.
    fn read(&mut self, numbers: &[f32], start: usize) {
        arch().dispatch(Read { search: self, numbers, start });
    }

    /// The minimum of a number to be among the largest.
    #[inline(always)]
    fn least(&self) -> f32 {
        match self.count.checked_sub(1) {
            _ if self.is_lost => f32::INFINITY,
            Some(last) => self.best.get(last).map_or(f32::NEG_INFINITY, |last| self.below(last.1)),
            None => f32::INFINITY,
        }
    }

    /// The minimum of a number that can exceed the `count`-th largest.
    #[inline(always)]
    fn below(&self, number: f32) -> f32 {
        number - self.unknown
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
                least = least.max(self.least());
                let is_left = |&(_, number): &(usize, f32)| number < least || self.unknown == 0.0;
                while self.best.len() > self.count && self.best.last().is_some_and(is_left) {
                    self.best.pop();
                }
                self.is_lost |= self.best.len() > self.count + TIES;
            }
        }
        least
    }

    /// Replaces the numbers that were found by exact ones.
    fn correct(&mut self, numbers_of: &mut dyn FnMut(&[usize]) -> Vec<f32>) {
        if self.largest.is_nan() || self.largest == f32::NEG_INFINITY {
            return;
        }
        let found: Vec<usize> = self.best.iter().chain(&self.always).map(|found| found.0).collect();
        let numbers = numbers_of(&found);
        let term = |number: f32, largest: f32| {
            f64::from(exponential::<false, 6>((number * self.factor - largest).min(0.0)))
        };
        let numbers_of_best = &numbers[..self.best.len()];
        let most = numbers_of_best.iter().copied().fold(f32::NEG_INFINITY, f32::max) * self.factor;
        let (mut others, mut exact) = (self.sum, 0.0);
        for (&(_, coarse), &number) in self.best.iter().zip(numbers_of_best) {
            others -= term(coarse, self.largest);
            exact += term(number, most);
        }
        self.sum = exact + others.max(0.0) * f64::from(self.largest - most).exp();
        self.largest = most;
        for (place, number) in self.best.iter_mut().chain(&mut self.always).zip(numbers) {
            place.1 = number;
        }
        self.best.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        self.best.truncate(self.wanted.count);
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
        if search.best.len() < search.count && !search.is_lost {
            least = search.below(maxima.nth_largest(search.count));
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
