//! Logarithms of the sums of exponentials of an output layer, and their gradients, without all of
//! its logits in memory.
//!
//! `l_i = ln Σ_v exp(x_iv)`, `x = H Wᵀ + b`, and the gradients of `Σ_i g_i l_i`:
//! `P = g exp(x - l)`, `dH = P W`, `dW = Pᵀ H`, `db` the sums of the columns of `P`.
//!
//! `H: [n, width]`, `W: [vocab, width]`, `b: [vocab]`, `g, l: [n]`. Logits are computed twice, some
//! rows and columns at a time, as keys' scores in FlashAttention (Dao et al. 2022, section 3.1): in
//! training they and their gradients are most of the memory of a small model. If `g` is known
//! before `l`, which is so if the loss is a mean of `l`, both are computed together, and logits once.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod tiles;

use crate::best::{largest, sum_of_exponentials};
use crate::exponential::exponential;
use crate::instructions::arch;
use crate::matrix::Matrix;
use crate::parallel::{Parallel, Shared, by_parts};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Rows and columns of the logits that are computed at once.
const ROWS: usize = 256;
const COLUMNS: usize = 1024;

/// Logits that are computed at once where all of a row are needed together: 8 MiB.
const LOGITS: usize = 1 << 21;

/// With fewer rows at once, the gradients of all weights would be read too often.
const FEWEST: usize = 128;

/// An output layer and the rows that it reads.
#[derive(Clone, Copy, Debug)]
pub struct LogSumExp<'a> {
    /// `H`
    pub hidden: &'a [f32],
    /// `W`
    pub weight: &'a [f32],
    /// `b`, or 0.
    pub bias: Option<&'a [f32]>,
    /// Width of the rows of `H` and `W`.
    pub width: usize,
    /// Whether products may be [in bfloat16](Matrix::in_bf16).
    pub in_bf16: bool,
}

/// The softmax of the logits times a factor for each row.
#[derive(Clone, Copy, Debug)]
pub struct Softmax<'a> {
    /// `l`
    pub logarithms: &'a [f32],
    /// `g`
    pub factors: &'a [f32],
}

/// Where gradients are written.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// `dH`
    pub hidden: &'a mut [f32],
    /// `dW`
    pub weight: &'a mut [f32],
    /// `db`, if it is wanted.
    pub bias: Option<&'a mut [f32]>,
}

impl LogSumExp<'_> {
    /// Computes the logarithms `l`.
    ///
    /// # Panics
    /// If a length does not match its sizes.
    pub fn logarithms(&self, to: &mut [f32], threads: &dyn Parallel) {
        let [n, vocab] = self.sizes();
        assert_eq!(to.len(), n, "[n]");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if tiles::fit(self) {
            return tiles::logarithms(self, to, threads);
        }
        let mut room = vec![0.0; n.min(ROWS) * vocab.min(COLUMNS)];
        let mut all = vec![Running::default(); n];
        for columns in blocks(vocab, COLUMNS) {
            for rows in blocks(n, ROWS) {
                let logits = self.logits(rows.clone(), columns.clone(), &mut room, threads);
                let all = Shared::new(&mut all[rows]);
                each_row(logits, columns.len(), threads, |row, logits| {
                    // SAFETY: each thread has its own rows.
                    let row = unsafe { all.part(row, 1) };
                    row[0].add(logits);
                });
            }
        }
        to.iter_mut().zip(&all).for_each(|(to, row)| *to = row.logarithm());
    }

    /// Computes the gradients.
    ///
    /// # Panics
    /// If a length does not match its sizes.
    pub fn differentiate(&self, of: Softmax<'_>, to: Gradients<'_>, threads: &dyn Parallel) {
        let [n, vocab] = self.sizes();
        assert_eq!([of.logarithms.len(), of.factors.len()], [n; 2], "[n]");
        assert_eq!(
            [to.hidden.len(), to.weight.len()],
            [self.hidden.len(), self.weight.len()],
            "[n, width] and [vocab, width]"
        );
        assert!(to.bias.as_ref().is_none_or(|bias| bias.len() == vocab), "[vocab]");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if tiles::fit(self) {
            return tiles::differentiate(self, of, to, threads);
        }
        let mut room = vec![0.0; n.min(ROWS) * vocab.min(COLUMNS)];
        let Gradients { hidden: to_hidden, weight: to_weight, bias: mut to_bias } = to;
        to_hidden.fill(0.0);
        to_weight.fill(0.0);
        for columns in blocks(vocab, COLUMNS) {
            let some = columns.start * self.width..columns.end * self.width;
            let (weight, to_weight) = (&self.weight[some.clone()], &mut to_weight[some]);
            for rows in blocks(n, ROWS) {
                let probabilities = self.logits(rows.clone(), columns.clone(), &mut room, threads);
                each_row(probabilities, columns.len(), threads, |row, logits| {
                    of.replace(rows.start + row, logits);
                });
                if let Some(bias) = &mut to_bias {
                    add_rows(probabilities, &mut bias[columns.clone()], rows.start == 0);
                }
                let probabilities =
                    Matrix::new(probabilities, [rows.len(), columns.len()]).in_bf16(self.in_bf16);
                let some = rows.start * self.width..rows.end * self.width;
                let hidden = Matrix::new(&self.hidden[some.clone()], [rows.len(), self.width]);
                let weight = Matrix::new(weight, [columns.len(), self.width]);
                probabilities.add(weight, &mut to_hidden[some], threads);
                probabilities.transposed().add(hidden, to_weight, threads);
            }
        }
    }

    /// Computes the logarithms, and the gradients for the factors `g`. Logits are computed only
    /// once, if those of enough rows fit into the cache.
    ///
    /// # Panics
    /// If a length does not match its sizes.
    pub fn logarithms_and_gradients(
        &self,
        factors: &[f32],
        logarithms: &mut [f32],
        to: Gradients<'_>,
        threads: &dyn Parallel,
    ) {
        let ([n, vocab], width) = (self.sizes(), self.width);
        let step = (LOGITS / vocab.max(1)).min(ROWS);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        let has_tiles = tiles::fit(self);
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let has_tiles = false;
        if has_tiles || step < FEWEST {
            self.logarithms(logarithms, threads);
            return self.differentiate(Softmax { logarithms, factors }, to, threads);
        }
        assert_eq!([logarithms.len(), factors.len()], [n; 2], "[n]");
        let Gradients { hidden: to_hidden, weight: to_weight, bias: mut to_bias } = to;
        to_weight.fill(0.0);
        let mut room = vec![0.0; n.min(step) * vocab];
        let weight = Matrix::new(self.weight, [vocab, width]);
        for rows in blocks(n, step) {
            let logits = self.logits(rows.clone(), 0..vocab, &mut room, threads);
            let (factors, logarithms) = (&factors[rows.clone()], &mut logarithms[rows.clone()]);
            let logarithms = Shared::new(logarithms);
            each_row(logits, vocab, threads, |row, logits| {
                let mut running = Running::default();
                running.add(logits);
                let (logarithm, factor) = (running.logarithm(), factors[row]);
                // SAFETY: each thread has its own rows.
                let to = unsafe { logarithms.part(row, 1) };
                to[0] = logarithm;
                arch().dispatch(ScaledSoftmax { logits, logarithm, factor });
            });
            if let Some(bias) = &mut to_bias {
                add_rows(logits, bias, rows.start == 0);
            }
            let probabilities = Matrix::new(logits, [rows.len(), vocab]).in_bf16(self.in_bf16);
            let some = rows.start * width..rows.end * width;
            let hidden = Matrix::new(&self.hidden[some.clone()], [rows.len(), width]);
            probabilities.multiply(weight, None, &mut to_hidden[some], threads);
            probabilities.transposed().add(hidden, to_weight, threads);
        }
    }

    /// Numbers of rows and of logits of a row.
    ///
    /// # Panics
    /// If a length does not match the width.
    fn sizes(&self) -> [usize; 2] {
        let sizes = [self.hidden, self.weight].map(|rows| rows.len() / self.width.max(1));
        let lengths = [self.hidden.len(), self.weight.len()];
        assert_eq!(sizes.map(|n| n * self.width), lengths, "[n, width] and [vocab, width]");
        assert!(self.bias.is_none_or(|bias| bias.len() == sizes[1]), "[vocab]");
        sizes
    }

    fn logits<'r>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        room: &'r mut [f32],
        threads: &dyn Parallel,
    ) -> &'r mut [f32] {
        let (sizes, width) = ([rows.len(), columns.len()], self.width);
        let to = &mut room[..sizes[0] * sizes[1]];
        let hidden = &self.hidden[rows.start * width..rows.end * width];
        let weight = &self.weight[columns.start * width..columns.end * width];
        let bias = self.bias.map(|bias| &bias[columns]);
        let weight = Matrix::new(weight, [sizes[1], width]).transposed();
        let hidden = Matrix::new(hidden, [sizes[0], width]).in_bf16(self.in_bf16);
        hidden.multiply(weight, bias, to, threads);
        to
    }
}

/// Parts of `0..n` of at most `step`.
fn blocks(n: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(step).map(move |start| start..n.min(start + step))
}

/// Calls `work` with each row of `numbers` and its place.
fn each_row(
    numbers: &mut [f32],
    width: usize,
    threads: &dyn Parallel,
    work: impl Fn(usize, &mut [f32]) + Sync,
) {
    let (n, len) = (numbers.len() / width, numbers.len());
    let numbers = Shared::new(numbers);
    by_parts(threads, n, len, |rows| {
        for row in rows {
            // SAFETY: each thread has its own rows.
            work(row, unsafe { numbers.part(row * width, width) });
        }
    });
}

/// Adds the rows of `numbers` to `sums`, which are 0 before the `first`.
fn add_rows(numbers: &[f32], sums: &mut [f32], is_first: bool) {
    if is_first {
        sums.fill(0.0);
    }
    for row in numbers.chunks_exact(sums.len().max(1)) {
        sums.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
    }
}

/// The sum of the exponentials of the logits so far.
#[derive(Clone, Copy, Debug)]
struct Running {
    largest: f32,
    /// Of the exponentials of the differences to the largest.
    sum: f64,
}

impl Default for Running {
    fn default() -> Self {
        Self { largest: f32::NEG_INFINITY, sum: 0.0 }
    }
}

impl Running {
    fn add(&mut self, logits: &[f32]) {
        let largest = largest(logits);
        let sum = f64::from(sum_of_exponentials(logits, 1.0, largest));
        self.merge(Self { largest, sum });
    }

    fn merge(&mut self, other: Self) {
        let [mut more, less] =
            if other.largest > self.largest { [other, *self] } else { [*self, other] };
        if less.sum > 0.0 {
            more.sum += less.sum * f64::from(less.largest - more.largest).exp();
        }
        // A logit that is NaN makes the sum NaN.
        if other.largest.is_nan() {
            more = other;
        }
        *self = more;
    }

    fn logarithm(&self) -> f32 {
        (f64::from(self.largest) + self.sum.ln()) as f32
    }
}

impl Softmax<'_> {
    /// Replaces logits of a row by `g exp(x - l)`.
    fn replace(&self, row: usize, logits: &mut [f32]) {
        let (logarithm, factor) = (self.logarithms[row], self.factors[row]);
        arch().dispatch(ScaledSoftmax { logits, logarithm, factor });
    }
}

struct ScaledSoftmax<'a> {
    logits: &'a mut [f32],
    logarithm: f32,
    factor: f32,
}

impl WithSimd for ScaledSoftmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        /// Below, products and parts of the result may be subnormal, which takes many times as long.
        const LEAST: f32 = -60.0;
        let Self { logits, logarithm, factor } = self;
        for logit in logits {
            *logit = factor * exponential::<false, 6>((*logit - logarithm).clamp(LEAST, 0.0));
        }
    }
}
