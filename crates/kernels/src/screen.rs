//! The largest numbers of a product's rows, without computing most of the product.
//!
//! Products of 8-bit integers give an upper and a lower bound of each number:
//! `x·w - x̂·ŵ = (x - x̂)·ŵ + x·(w - ŵ)`, and no product of vectors is larger than the product of
//! their lengths. Only columns that can be among the largest are computed, bit for bit as with
//! [`Weights`](crate::Weights). These are about ten of 8,000 logits of a translation model.

use crate::instructions::arch;
use crate::integers::{IntegerWeights, multiplies_integers};
use crate::parallel::Parallel;
use crate::rows::{Place, Quantised, Rows};
use pulp::{Simd, WithSimd};
use std::mem;

/// The number of integer steps on either side of zero.
const SIDE: f32 = 127.0;

/// Number of elements that are compared at once.
const LANES: usize = 16;
/// Number of columns of a block, in groups of columns that are [`LANES`] apart; a group is skipped
/// as a whole.
const BLOCK: usize = 256;
/// Number of blocks whose groups are distinguished.
const APART: usize = 8;

/// Number of integer products that are searched while they are in the cache, if the weights are
/// too.
const CACHED: usize = 1 << 17;

/// More than the rounding error of a bound.
const SLACK: f32 = 1.001;

/// Weights `[outputs, inputs]` of a product `x Wᵀ + bias` as integers, and their distances from the
/// weights.
#[derive(Debug)]
pub struct Screen {
    integers: IntegerWeights,
    bias: Vec<f32>,
    /// `None` if the integers are the weights.
    distances: Option<Distances>,
}

/// For each output the length of its rounded weights, and that of their rounding errors; and the
/// largest of these in each group.
#[derive(Debug)]
struct Distances {
    kept: Vec<f32>,
    left: Vec<f32>,
    of_groups: Vec<[[f32; LANES]; 2]>,
}

/// The requested columns of each row.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'w> {
    /// Number of columns with the largest numbers.
    pub count: usize,
    /// Columns that are included regardless of their numbers.
    pub always: &'w [usize],
}

/// Memory of a search, reused by the next one.
#[derive(Debug, Default)]
pub struct Room {
    bytes: Vec<u8>,
    largest: Vec<f32>,
    products: Vec<f32>,
    /// The largest upper bound of each group.
    upper: Vec<[f32; LANES]>,
    candidates: Candidates,
}

/// The columns of a row that can be among the requested ones.
#[derive(Debug, Default)]
pub struct Candidates {
    /// In ascending order.
    pub columns: Vec<usize>,
    /// The numbers of these columns according to the integers.
    pub numbers: Vec<f32>,
    /// Whether the row has NaN, or numbers so large that nothing is known about its columns.
    pub is_unknown: bool,
}

impl Distances {
    fn new(kept: Vec<f32>, left: Vec<f32>) -> Self {
        let of_block = |(kept, left): (&[f32], &[f32])| {
            let mut largest = [[0.0; LANES]; 2];
            for (place, (&kept, &left)) in kept.iter().zip(left).enumerate() {
                largest[0][place % LANES] = kept.max(largest[0][place % LANES]);
                largest[1][place % LANES] = left.max(largest[1][place % LANES]);
            }
            largest
        };
        let of_groups = kept.chunks(BLOCK).zip(left.chunks(BLOCK)).map(of_block).collect();
        Self { kept, left, of_groups }
    }
}

impl Screen {
    /// Whether integer products are fast enough on this processor.
    pub fn is_fast() -> bool {
        multiplies_integers()
    }

    /// A screen of weights that are integers.
    ///
    /// # Panics
    /// If the bias has another length than the outputs.
    pub fn of(integers: IntegerWeights, bias: Option<&[f32]>) -> Self {
        let bias = bias.map_or_else(|| vec![0.0; integers.outputs()], <[f32]>::to_vec);
        assert_eq!(bias.len(), integers.outputs(), "[outputs]");
        Self { integers, bias, distances: None }
    }

    /// Rounds weights: `fill` writes the row `[inputs]` of an output. `None` if a number is NaN or
    /// infinite; a bias can be minus infinity.
    ///
    /// # Panics
    /// If the bias has another length than `outputs`.
    pub fn new(
        inputs: usize,
        outputs: usize,
        fill: &mut dyn FnMut(usize, &mut [f32]),
        bias: Option<&[f32]>,
    ) -> Option<Self> {
        assert!(bias.is_none_or(|bias| bias.len() == outputs), "[outputs]");
        let (mut row, mut bytes, mut steps) =
            (vec![0.0; inputs], vec![0; inputs * outputs], vec![0.0; outputs]);
        let (mut all_kept, mut all_left) = (vec![0.0; outputs], vec![0.0; outputs]);
        // The rounding error of sums of as many products in f32, relative to the lengths.
        let rounding = (inputs + 8) as f32 * f32::EPSILON;
        for output in 0..outputs {
            fill(output, &mut row);
            let is_usable = |bias: f32| bias.is_finite() || bias == f32::NEG_INFINITY;
            if !row.iter().all(|weight| weight.is_finite())
                || !bias.is_none_or(|bias| is_usable(bias[output]))
            {
                return None;
            }
            let largest = row.iter().fold(0.0_f32, |largest, weight| largest.max(weight.abs()));
            let step = largest / SIDE;
            let (mut kept, mut left, mut all) = (0.0_f32, 0.0_f32, 0.0_f32);
            for (input, &weight) in row.iter().enumerate() {
                let integer = if largest > 0.0 {
                    (weight / step).round_ties_even().clamp(-SIDE, SIDE)
                } else {
                    0.0
                };
                bytes[input * outputs + output] = integer as i8 as u8;
                let rounded = integer * step;
                (kept, left, all) = (
                    kept + rounded * rounded,
                    left + (weight - rounded).powi(2),
                    all + weight * weight,
                );
            }
            steps[output] = step;
            all_kept[output] = kept.sqrt() * SLACK;
            all_left[output] = (left.sqrt() + rounding * all.sqrt()) * SLACK;
        }
        let distances = Some(Distances::new(all_kept, all_left));
        let bias = bias.map_or_else(|| vec![0.0; outputs], <[f32]>::to_vec);
        Some(Self { integers: IntegerWeights::pack(inputs, &bytes, &steps), bias, distances })
    }

    /// The screen of some outputs, in the given order.
    ///
    /// # Panics
    /// If an output does not exist.
    pub fn select(&self, outputs: &[usize]) -> Self {
        let chosen =
            |numbers: &[f32]| outputs.iter().map(|&output| numbers[output]).collect::<Vec<_>>();
        let distances = self
            .distances
            .as_ref()
            .map(|distances| Distances::new(chosen(&distances.kept), chosen(&distances.left)));
        Self { integers: self.integers.select(outputs), bias: chosen(&self.bias), distances }
    }

    /// The bias of each output.
    pub fn bias(&self) -> &[f32] {
        &self.bias
    }

    /// The weights as integers.
    pub fn integers(&self) -> &IntegerWeights {
        &self.integers
    }

    /// Calls back for each row of `x: [n, inputs]` in turn, with the columns that can be among the
    /// requested ones.
    ///
    /// # Panics
    /// If `x` does not have whole rows, or a column does not exist.
    pub fn candidates(
        &self,
        x: &[f32],
        wanted: Wanted<'_>,
        threads: &dyn Parallel,
        room: &mut Room,
        mut found: impl FnMut(usize, &Candidates),
    ) {
        let inputs = self.integers.inputs();
        let (mut bytes, mut largest) = (mem::take(&mut room.bytes), mem::take(&mut room.largest));
        bytes.resize(x.len(), 0);
        largest.resize(x.len() / inputs.max(1), 0.0);
        let quantised = Quantised { bytes: &mut bytes, largest: &mut largest };
        Rows::default().apply(0, Place::Nowhere(x), inputs, Some(quantised));
        self.look(
            &bytes,
            wanted,
            threads,
            &|row| (largest[row] / SIDE, Some(&x[row * inputs..][..inputs])),
            room,
            &mut found,
        );
        (room.bytes, room.largest) = (bytes, largest);
    }

    /// The same for rows of integers, `x: u8 [n, inputs]`, whose products are exact; they are
    /// multiplied by the step size of their row.
    ///
    /// # Panics
    /// As [`Screen::candidates`].
    pub fn candidates_of_integers(
        &self,
        x: &[u8],
        step_of: impl Fn(usize) -> f32,
        wanted: Wanted<'_>,
        threads: &dyn Parallel,
        room: &mut Room,
        mut found: impl FnMut(usize, &Candidates),
    ) {
        self.look(x, wanted, threads, &|row| (step_of(row), None), room, &mut found);
    }

    /// `step_of` returns the step size of a row, and the row before rounding.
    fn look<'x>(
        &self,
        bytes: &[u8],
        wanted: Wanted<'_>,
        threads: &dyn Parallel,
        step_of: &dyn Fn(usize) -> (f32, Option<&'x [f32]>),
        room: &mut Room,
        found: &mut dyn FnMut(usize, &Candidates),
    ) {
        let (inputs, outputs) = (self.integers.inputs(), self.integers.outputs());
        let n = bytes.len() / inputs.max(1);
        assert_eq!(bytes.len(), n * inputs, "[n, inputs]");
        let is_small = inputs * outputs <= 8 * CACHED;
        // Whole tiles of the product.
        let together =
            if is_small { (CACHED / outputs.max(1) / 12 * 12).clamp(12, 96) } else { 96 }
                .min(n.max(1));
        let Room { products, upper, candidates, .. } = room;
        products.resize(products.len().max(together * outputs), 0.0);
        for (block, bytes) in bytes.chunks((together * inputs).max(1)).enumerate() {
            let products = &mut products[..bytes.len() / inputs * outputs];
            self.integers.multiply(bytes, products, threads);
            for (row, products) in products.chunks_exact(outputs).enumerate() {
                let ((step, x), bytes) =
                    (step_of(block * together + row), &bytes[row * inputs..][..inputs]);
                arch().dispatch(Look {
                    screen: self,
                    x,
                    bytes,
                    step,
                    products,
                    wanted,
                    upper,
                    found: candidates,
                });
                found(block * together + row, candidates);
            }
        }
    }
}

/// Searches the products of a row.
struct Look<'a> {
    screen: &'a Screen,
    x: Option<&'a [f32]>,
    bytes: &'a [u8],
    step: f32,
    products: &'a [f32],
    wanted: Wanted<'a>,
    /// As in [`Room`].
    upper: &'a mut Vec<[f32; LANES]>,
    found: &'a mut Candidates,
}

impl WithSimd for Look<'_> {
    type Output = ();

    // Closures are not always inlined into functions of other instruction sets.
    #[allow(clippy::needless_range_loop, reason = "as above")]
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { screen, x, bytes, step, products, wanted, upper, found } = self;
        found.columns.clear();
        found.numbers.clear();
        // The factors of the lengths of the weights.
        let (mut all, mut left) = ([0.0; LANES], [0.0; LANES]);
        let x = x.unwrap_or_default();
        for (x, bytes) in x.chunks(LANES).zip(bytes.chunks(LANES)) {
            for lane in 0..x.len() {
                let rest = x[lane] - (f32::from(bytes[lane]) - 128.0) * step;
                all[lane] += x[lane] * x[lane];
                left[lane] += rest * rest;
            }
        }
        let row = Row { screen, products, step, left: length(&left), all: length(&all) };
        found.is_unknown = !(row.left.is_finite() && row.all.is_finite());
        if found.is_unknown {
            return;
        }
        upper.clear();
        // Groups share no columns, so at least `count` numbers are above the `count`-th largest of
        // their lower bounds.
        let mut lower = [[f32::NEG_INFINITY; LANES]; APART];
        let mut start = 0;
        while start < products.len() {
            let (block, numbers) = (start / BLOCK, row.largest(start));
            let mut errors = [0.0; LANES];
            if let Some(distances) = &screen.distances {
                let [kept, left] = &distances.of_groups[block];
                for lane in 0..LANES {
                    errors[lane] = row.left * kept[lane] + row.all * left[lane];
                }
            }
            let (lower, mut bounds) = (&mut lower[block % APART], [0.0; LANES]);
            for lane in 0..LANES {
                lower[lane] = larger(lower[lane], numbers[lane] - errors[lane]);
                bounds[lane] = numbers[lane] + errors[lane];
            }
            upper.push(bounds);
            start += BLOCK;
        }
        let least = nth_largest(lower.as_flattened_mut(), wanted.count);
        for block in 0..upper.len() {
            let mut is_reached = false;
            for lane in 0..LANES {
                is_reached |= upper[block][lane] >= least;
            }
            if !is_reached {
                continue;
            }
            let (before, end) = (found.columns.len(), ((block + 1) * BLOCK).min(products.len()));
            for lane in 0..LANES {
                let mut column = block * BLOCK + lane;
                while upper[block][lane] >= least && column < end {
                    if row.upper(column) >= least {
                        found.columns.push(column);
                    }
                    column += LANES;
                }
            }
            found.columns[before..].sort_unstable();
        }
        if !wanted.always.is_empty() {
            found.columns.extend_from_slice(wanted.always);
            found.columns.sort_unstable();
            found.columns.dedup();
        }
        for index in 0..found.columns.len() {
            found.numbers.push(row.number(found.columns[index]));
        }
    }
}

/// The length of a vector, slightly too large.
#[inline(always)]
fn length(squares: &[f32; LANES]) -> f32 {
    squares.iter().sum::<f32>().sqrt() * SLACK
}

struct Row<'a> {
    screen: &'a Screen,
    products: &'a [f32],
    step: f32,
    /// The length of the row's rounding errors, and that of the row.
    left: f32,
    all: f32,
}

impl Row<'_> {
    /// The upper bound of the number of a column.
    #[inline(always)]
    fn upper(&self, column: usize) -> f32 {
        let error = match &self.screen.distances {
            Some(distances) => {
                self.left * distances.kept[column] + self.all * distances.left[column]
            }
            None => 0.0,
        };
        self.number(column) + error
    }

    #[inline(always)]
    fn number(&self, column: usize) -> f32 {
        self.products[column] * self.step + self.screen.bias[column]
    }

    /// The largest number of each group in the block that starts at `start`: of the columns that
    /// are [`LANES`] apart.
    #[allow(clippy::needless_range_loop, reason = "as in `with_simd`")]
    #[inline(always)]
    fn largest(&self, start: usize) -> [f32; LANES] {
        let end = (start + BLOCK).min(self.products.len());
        let (products, rest) = self.products[start..end].as_chunks::<LANES>();
        let (bias, _) = self.screen.bias[start..end].as_chunks::<LANES>();
        let mut largest = [f32::NEG_INFINITY; LANES];
        for index in 0..products.len() {
            for lane in 0..LANES {
                largest[lane] =
                    larger(largest[lane], products[index][lane] * self.step + bias[index][lane]);
            }
        }
        for lane in 0..rest.len() {
            largest[lane] = larger(largest[lane], self.number(end - rest.len() + lane));
        }
        largest
    }
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// The `n`-th largest number; minus infinity if there are fewer. May change the order.
#[inline(always)]
pub(crate) fn nth_largest(numbers: &mut [f32], n: usize) -> f32 {
    /// Up to this number the largest are kept sorted without a search.
    const FEW: usize = 16;
    if !(1..=numbers.len()).contains(&n) {
        return f32::NEG_INFINITY;
    }
    if n > FEW {
        return *numbers.select_nth_unstable_by(n - 1, |a, b| b.total_cmp(a)).1;
    }
    let mut best = [f32::NEG_INFINITY; FEW];
    for &number in &*numbers {
        if number > best[n - 1] {
            let mut place = n - 1;
            while place > 0 && best[place - 1] < number {
                best[place] = best[place - 1];
                place -= 1;
            }
            best[place] = number;
        }
    }
    best[n - 1]
}

/// `x · row` of `rows: [n, inputs]`, summed in the same order as in [`Weights`](crate::Weights);
/// `out: [n]`.
///
/// # Panics
/// If a length does not match its dimensions.
pub fn dots(x: &[f32], rows: &[f32], out: &mut [f32]) {
    assert_eq!(rows.len(), out.len() * x.len(), "[n, inputs]");
    arch().dispatch(Dots { x, rows, out });
}

struct Dots<'a> {
    x: &'a [f32],
    rows: &'a [f32],
    out: &'a mut [f32],
}

impl WithSimd for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        /// Number of sums that do not wait for each other.
        const TOGETHER: usize = 8;
        let Self { x, rows, out } = self;
        for (block, out) in out.chunks_mut(TOGETHER).enumerate() {
            // A block that is not full sums its last row several times.
            let row = |place: usize| {
                &rows[(block * TOGETHER + place.min(out.len() - 1)) * x.len()..][..x.len()]
            };
            let rows: [&[f32]; TOGETHER] = std::array::from_fn(row);
            let mut sums = [0.0_f32; TOGETHER];
            for (input, &x) in x.iter().enumerate() {
                for place in 0..TOGETHER {
                    // SAFETY: each row has as many numbers as `x`.
                    let weight = unsafe { *rows[place].get_unchecked(input) };
                    sums[place] = fused(simd, x, weight, sums[place]);
                }
            }
            out.copy_from_slice(&sums[..out.len()]);
        }
    }
}

/// `x · y + sum`, rounded once if the processor's vector instructions do.
#[inline(always)]
fn fused<S: Simd>(_: S, x: f32, y: f32, sum: f32) -> f32 {
    if S::F32_LANES > 4 || cfg!(target_arch = "aarch64") { x.mul_add(y, sum) } else { x * y + sum }
}
