//! The same by tiles of bfloat16 (AMX-BF16): logits, their softmax and its products with rows and
//! weights while they are in the caches.

use super::{Gradients, LogSumExp, Running, Softmax, add_rows, blocks};
use crate::matrix::Matrix;
use crate::panels::Lines;
use crate::parallel::{Parallel, Shared, by_parts};
use crate::product::tiles::blocks::{PAIR, SUMS, multiply_block};
use crate::product::tiles::sum;
use crate::split::{PARTS, TILE, WIDTH, split_columns, split_rows};
use crate::tiles::{BLOCK, Configured, are_usable};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Rows and columns of the logits that are computed at once.
const ROWS: usize = 128;
const COLUMNS: usize = 256;
/// Whether it is faster by tiles.
pub(super) fn fit(given: &LogSumExp<'_>) -> bool {
    let [n, vocab] = given.sizes();
    given.width >= WIDTH && n >= BLOCK && vocab >= 2 * BLOCK && are_usable()
}

/// [`LogSumExp::logarithms`], which fits.
pub(super) fn logarithms(given: &LogSumExp<'_>, to: &mut [f32], threads: &dyn Parallel) {
    let [n, _] = given.sizes();
    // SAFETY: tiles are usable.
    let hidden = unsafe { Hidden::new(given) };
    let parts = each_part(given, threads, |chunks| {
        let mut all = vec![Running::default(); n];
        for columns in chunks {
            // SAFETY: tiles are usable.
            unsafe { given.add_chunk(&hidden, columns, &mut all) };
        }
        all
    });
    let mut all = vec![Running::default(); n];
    for part in parts {
        all.iter_mut().zip(part).for_each(|(row, part)| row.merge(part));
    }
    to.iter_mut().zip(&all).for_each(|(to, row)| *to = row.logarithm());
}

/// [`LogSumExp::differentiate`], which fits.
pub(super) fn differentiate(
    given: &LogSumExp<'_>,
    of: Softmax<'_>,
    to: Gradients<'_>,
    threads: &dyn Parallel,
) {
    let ([n, _], width) = (given.sizes(), given.width);
    // SAFETY: tiles are usable.
    let hidden = unsafe { Hidden::new(given) };
    let (to_weight, to_bias) = (Shared::new(to.weight), to.bias.map(Shared::new));
    let parts = each_part(given, threads, |chunks| {
        let mut to_hidden = Lines::zeros(hidden.n_blocks * hidden.n_panels * SUMS);
        for columns in chunks {
            let (start, n) = (columns.start, columns.len());
            // SAFETY: each thread has its own columns.
            let weight = unsafe { to_weight.part(start * width, n * width) };
            let bias = to_bias.as_ref().map(|bias| {
                // SAFETY: as above.
                unsafe { bias.part(start, n) }
            });
            let to = Chunk { hidden: to_hidden.all_mut(), weight, bias };
            // SAFETY: tiles are usable.
            unsafe { given.differentiate_chunk(&hidden, of, columns, to) };
        }
        to_hidden
    });
    for (place, part) in parts.iter().enumerate() {
        for (index, sums) in part.all().chunks_exact(SUMS).enumerate() {
            let (row, column) = (index / hidden.n_panels * BLOCK, index % hidden.n_panels * BLOCK);
            let size = [(n - row).min(BLOCK), (width - column).min(BLOCK)];
            put(sums, size, &mut to.hidden[row * width + column..], width, place > 0);
        }
    }
}

/// The results of `work` for the columns of each thread, in the order of the columns.
fn each_part<T: Send>(
    given: &LogSumExp<'_>,
    threads: &dyn Parallel,
    work: impl Fn(&mut dyn Iterator<Item = Range<usize>>) -> T + Sync,
) -> Vec<T> {
    let [n, vocab] = given.sizes();
    let found = Mutex::new(Vec::new());
    by_parts(threads, vocab.div_ceil(COLUMNS), n * vocab * given.width, |chunks| {
        let first = chunks.start;
        let result = work(&mut blocks(vocab, COLUMNS).skip(first).take(chunks.len()));
        found.lock().unwrap_or_else(PoisonError::into_inner).push((first, result));
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_unstable_by_key(|(first, _)| *first);
    found.into_iter().map(|(_, result)| result).collect()
}

/// The parts of the rows.
struct Hidden {
    n_blocks: usize,
    n_panels: usize,
    /// As rows of `A`: `[n / 16, width / 32, PARTS, TILE]`
    rows: Lines<u16>,
    /// As columns of `B`: `[n / ROWS, width / 32, ROWS / 32, PARTS, 2, TILE]`
    columns: Lines<u16>,
}

impl Hidden {
    /// # Safety
    /// Tiles are usable.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn new(given: &LogSumExp<'_>) -> Self {
        let ([n, _], width) = (given.sizes(), given.width);
        let (n_blocks, n_panels) = (n.div_ceil(BLOCK), width.div_ceil(BLOCK));
        let matrix = Matrix::new(given.hidden, [n, width]);
        let mut rows = Lines::zeros(n_blocks * n_panels * PAIR);
        split_rows::<f32, true>(&matrix, 0..n, 0..width, rows.all_mut());
        let mut columns = Lines::zeros(n.div_ceil(ROWS) * n_panels * ROWS / BLOCK * PAIR);
        let mut parts = columns.all_mut().chunks_exact_mut(ROWS / BLOCK * PAIR);
        for some in blocks(n, ROWS) {
            for panel in blocks(width, BLOCK) {
                let to = parts.next().expect("a part for each");
                split_columns::<f32>(&matrix, panel, some.clone(), to);
            }
        }
        Self { n_blocks, n_panels, rows, columns }
    }

    fn rows_at(&self, row: usize) -> [*const u16; 2] {
        parts_of(&self.rows, row, self.n_panels)
    }
}

/// Gradients of a chunk of columns.
struct Chunk<'a> {
    /// Sums over the chunks of a thread: `[n / 32, width / 32, 32, 32]`
    hidden: &'a mut [f32],
    weight: &'a mut [f32],
    bias: Option<&'a mut [f32]>,
}

/// Weights of a chunk, and memory for its logits.
struct Room {
    /// As columns of `B`: `[COLUMNS / 32, width / 32, PARTS, 2, TILE]`
    weight: Lines<u16>,
    sums: Lines<f32>,
    logits: Vec<f32>,
}

impl LogSumExp<'_> {
    /// # Safety
    /// Tiles are usable.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn room(&self, columns: Range<usize>) -> Room {
        let n_panels = self.width.div_ceil(BLOCK);
        let mut weight = Lines::zeros(COLUMNS / BLOCK * n_panels * PAIR);
        let matrix = Matrix::new(self.weight, [self.weight.len() / self.width, self.width]);
        for (some, to) in
            blocks(columns.len(), BLOCK).zip(weight.all_mut().chunks_exact_mut(n_panels * PAIR))
        {
            let some = columns.start + some.start..columns.start + some.end;
            split_columns::<f32>(&matrix.transposed(), some, 0..self.width, to);
        }
        Room { weight, sums: Lines::zeros(COLUMNS * BLOCK), logits: vec![0.0; ROWS * COLUMNS] }
    }

    /// The logits of up to 32 rows and some columns: `[32, COLUMNS]`
    ///
    /// # Safety
    /// Tiles are configured.
    #[inline(always)]
    unsafe fn logits_by_tiles(
        &self,
        hidden: &Hidden,
        row: usize,
        columns: &Range<usize>,
        (weight, sums, to): (&Lines<u16>, &mut Lines<f32>, &mut [f32]),
    ) {
        let (x, sums) = (hidden.rows_at(row), sums.all_mut());
        // SAFETY: by contract; there are the tiles of all inputs.
        unsafe { multiply_block::<f32>(x, weight.all(), hidden.n_panels, sums, true) };
        for (some, sums) in blocks(columns.len(), BLOCK).zip(sums.chunks_exact(SUMS)) {
            let bias = self.bias.map(|bias| &bias[columns.start + some.start..][..some.len()]);
            for (to, sums) in to.chunks_exact_mut(COLUMNS).zip(sums.chunks_exact(BLOCK)) {
                let to = &mut to[some.clone()];
                to.copy_from_slice(&sums[..some.len()]);
                if let Some(bias) = bias {
                    to.iter_mut().zip(bias).for_each(|(to, bias)| *to += bias);
                }
            }
        }
    }

    /// Adds the exponentials of some columns.
    ///
    /// # Safety
    /// Tiles are usable.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn add_chunk(&self, hidden: &Hidden, columns: Range<usize>, all: &mut [Running]) {
        // SAFETY: by contract.
        let (mut room, configured) = unsafe { (self.room(columns.clone()), Configured::new()) };
        for (row, all) in all.chunks_mut(BLOCK).enumerate() {
            let Room { weight, sums, logits } = &mut room;
            // SAFETY: tiles are configured.
            unsafe { self.logits_by_tiles(hidden, row * BLOCK, &columns, (weight, sums, logits)) };
            for (all, logits) in all.iter_mut().zip(logits.chunks_exact(COLUMNS)) {
                all.add(&logits[..columns.len()]);
            }
        }
        drop(configured);
    }

    /// The gradients of some columns.
    ///
    /// # Safety
    /// Tiles are usable.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn differentiate_chunk(
        &self,
        hidden: &Hidden,
        of: Softmax<'_>,
        columns: Range<usize>,
        to: Chunk<'_>,
    ) {
        let ([n, _], width, n_panels) = (self.sizes(), self.width, hidden.n_panels);
        // SAFETY: by contract.
        let mut room = unsafe { self.room(columns.clone()) };
        let matrix = Matrix::new(
            &self.weight[columns.start * width..columns.end * width],
            [columns.len(), width],
        );
        let deep = columns.len().div_ceil(WIDTH);
        // Weights as columns whose inputs are those of the vocabulary.
        let mut weight = Lines::zeros(n_panels * deep * PAIR);
        for (panel, to) in blocks(width, BLOCK).zip(weight.all_mut().chunks_exact_mut(deep * PAIR))
        {
            split_columns::<f32>(&matrix, panel, 0..columns.len(), to);
        }
        let mut parts = Lines::zeros(ROWS * COLUMNS * PARTS);
        let mut to_weight: Lines<f32> = Lines::zeros(deep * n_panels * SUMS);
        let mut to_bias = to.bias;
        // SAFETY: by contract.
        let configured = unsafe { Configured::new() };
        for (block, rows) in blocks(n, ROWS).enumerate() {
            for (some, logits) in
                blocks(rows.len(), BLOCK).zip(room.logits.chunks_exact_mut(BLOCK * COLUMNS))
            {
                let row = rows.start + some.start;
                let given = (&room.weight, &mut room.sums, &mut *logits);
                // SAFETY: tiles are configured.
                unsafe { self.logits_by_tiles(hidden, row, &columns, given) };
                for (row, logits) in (row..).zip(logits.chunks_exact_mut(COLUMNS)).take(some.len())
                {
                    let logits = &mut logits[..columns.len()];
                    of.replace(row, logits);
                }
            }
            let numbers = &room.logits[..rows.len() * COLUMNS];
            let probabilities = Matrix::new(numbers, [rows.len(), COLUMNS]);
            if let Some(bias) = &mut to_bias {
                for (index, row) in numbers.chunks_exact(COLUMNS).enumerate() {
                    add_rows(&row[..columns.len()], bias, block + index == 0);
                }
            }
            split_rows::<f32, true>(
                &probabilities,
                0..rows.len(),
                0..columns.len(),
                parts.all_mut(),
            );
            for some in blocks(rows.len(), BLOCK) {
                let x = parts_of(&parts, some.start, deep);
                let row = (rows.start + some.start) / BLOCK;
                let to = &mut to.hidden[row * n_panels * SUMS..][..n_panels * SUMS];
                // SAFETY: there are the tiles of all columns; tiles are configured.
                unsafe { multiply_block::<f32>(x, weight.all(), deep, to, false) };
            }
            let count = rows.len().div_ceil(WIDTH);
            split_rows::<f32, true>(
                &probabilities.transposed(),
                0..columns.len(),
                0..rows.len(),
                parts.all_mut(),
            );
            for (index, to) in to_weight.all_mut().chunks_exact_mut(n_panels * SUMS).enumerate() {
                let x = parts_of(&parts, index * BLOCK, count);
                for (panel, to) in to.chunks_exact_mut(SUMS).enumerate() {
                    let place = (block * n_panels + panel) * ROWS / BLOCK;
                    let hidden = hidden.columns.all()[place * PAIR..].as_ptr();
                    // SAFETY: there are the tiles of all rows; tiles are configured.
                    unsafe { sum::<f32>(x, hidden, count, to, block == 0) };
                }
            }
        }
        drop(configured);
        for (index, sums) in to_weight.all().chunks_exact(SUMS).enumerate() {
            let (row, column) = (index / n_panels * BLOCK, index % n_panels * BLOCK);
            let size = [(columns.len() - row).min(BLOCK), (width - column).min(BLOCK)];
            put(sums, size, &mut to.weight[row * width + column..], width, false);
        }
    }
}

/// The parts of 32 rows with `count` blocks of inputs.
fn parts_of(parts: &Lines<u16>, row: usize, count: usize) -> [*const u16; 2] {
    [0, 1].map(|half| parts.all()[(row / BLOCK * 2 + half) * count * PARTS * TILE..].as_ptr())
}

/// Writes or adds the sums of a block to its rows.
fn put(sums: &[f32], [rows, columns]: [usize; 2], to: &mut [f32], stride: usize, adds: bool) {
    for (to, sums) in to.chunks_mut(stride).zip(sums.chunks_exact(BLOCK)).take(rows) {
        for (to, sum) in to[..columns].iter_mut().zip(sums) {
            *to = if adds { *to + sum } else { *sum };
        }
    }
}
