//! Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1).
//!
//! A few queries read keys and values in place: nothing is copied. Many queries of a long sentence
//! are multiplied with packed keys and values in blocks, whose scores stay in the cache (as in Dao
//! et al. 2022, but with all scores of a query at once).

mod blocks;
mod one;
mod sums;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod tiles;

use crate::exponential;
use crate::instructions::arch;
use crate::parallel::{Parallel, Shared, by_parts};
use crate::stored::Stored;
use blocks::Blocks;
use half::f16;
use one::{Read, StepOfBeams};
use pulp::Simd;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use tiles::TileBlocks;

/// The number of queries of a sentence from which packing its keys and values is faster.
pub const MANY: usize = 8;

/// The sizes that all queries share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Number of heads of queries.
    pub heads: usize,
    /// Number of heads of keys and values; each is read by `heads / key_heads` consecutive heads of
    /// queries.
    pub key_heads: usize,
    /// Width of a head.
    pub d_k: usize,
    /// The factor of the scores.
    pub scale: f32,
    /// The bound `c` of scores: `c · tanh(score / c)`.
    pub cap: Option<f32>,
}

/// The keys and values of one sentence, in f32 or half precision.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'m, N = f32> {
    /// The keys.
    pub keys: &'m [N],
    /// The values, in the layout of the keys.
    pub values: &'m [N],
    /// The layout of the keys.
    pub strides: Strides,
    /// Number of positions.
    pub places: usize,
    /// The additive mask.
    pub mask: Option<Mask<'m>>,
    /// Whether keys and values are packed first, which is faster from [`MANY`] queries on. It
    /// changes the order of summation.
    pub packed: bool,
}

/// The memory for the results of queries.
#[derive(Debug)]
pub struct Results<'o> {
    /// The weighted sums of values: `[n, heads · d_k]`.
    pub context: &'o mut [f32],
    /// The weights of positions, if requested: `[n, heads, places]`.
    pub weights: Option<&'o mut [f32]>,
}

/// The strides between vectors of `d_k` numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// From one head to the next.
    pub head: usize,
    /// From one position to the next.
    pub place: usize,
}

/// An additive mask of the scores: for each head and query, one number per position.
#[derive(Clone, Copy, Debug)]
pub struct Mask<'m> {
    /// The rows.
    pub numbers: &'m [f32],
    /// The stride between heads; 0 if they share rows.
    pub head: usize,
    /// The stride between queries; 0 if they share rows.
    pub query: usize,
}

/// One step of the hypotheses of a sentence, one row each.
#[derive(Clone, Copy, Debug)]
pub struct Step<'s> {
    /// The query of the new position: `[beams, heads · d_k]`.
    pub query: &'s [f32],
    /// Its key: `[beams, key_heads · d_k]`.
    pub key: &'s [f32],
    /// Its value, in the shape of `key`.
    pub value: &'s [f32],
    /// The strides between hypotheses in `query`, `key` and `value`.
    pub strides: [usize; 3],
    /// The position of the caches that key and value are written to.
    pub past: usize,
    /// The first position that is read: earlier ones are padding, or outside the window.
    pub first: usize,
    /// The largest `past` of the batch.
    pub longest: usize,
    /// The beam that holds each position: `[beams, longest]`, of which those from `first` to `past`
    /// are read.
    pub holders: &'s [i64],
    /// The additive mask of the scores by their distance from the new position:
    /// `[heads, longest + 1]`, of which the last `past + 1` are read.
    pub bias: Option<&'s [f32]>,
}

/// The keys and values of the hypotheses of a sentence, `[beams, key_heads, capacity, d_k]`.
#[derive(Debug)]
pub struct Caches<'c> {
    /// The keys.
    pub keys: &'c mut [f32],
    /// The values.
    pub values: &'c mut [f32],
    /// Number of positions of a row.
    pub capacity: usize,
}

impl Attention {
    /// Attention in which each head has its own keys and values.
    pub fn new(heads: usize, d_k: usize, scale: f32) -> Self {
        Self { heads, key_heads: heads, d_k, scale, cap: None }
    }

    /// The width of a query and of its result: `heads · d_k`.
    pub fn width(&self) -> usize {
        self.heads * self.d_k
    }

    /// The width of a key and of a value: `key_heads · d_k`.
    pub fn key_width(&self) -> usize {
        self.key_heads * self.d_k
    }

    /// The head of keys that a head of queries reads.
    #[inline(always)]
    fn key_head(&self, head: usize) -> usize {
        head / (self.heads / self.key_heads)
    }

    /// Converts products to scores.
    #[inline(always)]
    fn score(&self, products: &mut [f32]) {
        products.iter_mut().for_each(|product| *product *= self.scale);
        if let Some(cap) = self.cap {
            products.iter_mut().for_each(|score| *score = cap * (*score / cap).tanh());
        }
    }

    /// Attention from some queries of one sentence to its memory. `stride` is the distance between
    /// rows of queries. The heads are divided among the threads.
    ///
    /// # Panics
    /// If a slice is shorter than its dimensions.
    pub fn read<N: Attended>(
        &self,
        queries: (&[f32], usize),
        memory: &Memory<'_, N>,
        into: Results<'_>,
        threads: &dyn Parallel,
    ) {
        N::attend(self, queries, memory, into, threads);
    }

    #[inline(always)]
    fn read_stored<N: Stored>(
        &self,
        (queries, stride): (&[f32], usize),
        memory: &Memory<'_, N>,
        into: Results<'_>,
        threads: &dyn Parallel,
    ) {
        let Results { context, weights } = into;
        let (n, Memory { strides, places, mask, .. }) =
            (context.len() / self.width().max(1), *memory);
        assert_eq!(context.len(), n * self.width(), "[n, heads · d_k]");
        assert!(
            weights.as_ref().is_none_or(|weights| weights.len() == n * self.heads * places),
            "[n, heads, places]"
        );
        if n == 0 || places == 0 || self.width() == 0 {
            return context.fill(0.0);
        }
        let last = (self.key_heads - 1) * strides.head + (places - 1) * strides.place + self.d_k;
        assert!(
            memory.keys.len() >= last && memory.values.len() >= last,
            "keys and values of all places"
        );
        assert!(queries.len() >= (n - 1) * stride + self.width(), "all queries");
        let least = |mask: Mask<'_>| (self.heads - 1) * mask.head + (n - 1) * mask.query + places;
        assert!(mask.is_none_or(|mask| mask.numbers.len() >= least(mask)), "a mask for all scores");
        let (context, weights) = (Shared::new(context), weights.map(Shared::new));
        by_parts(threads, self.heads, 2 * n * places * self.width(), |heads| {
            let read = Read {
                attention: self,
                queries,
                stride,
                memory,
                n,
                heads,
                context: &context,
                weights: weights.as_ref(),
            };
            if !memory.packed {
                return N::dispatch(read);
            }
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            let read = match TileBlocks::new(read) {
                Ok(tiles) => return N::dispatch(tiles),
                Err(read) => read,
            };
            N::dispatch(Blocks(read))
        });
    }

    /// Writes the new keys and values into the caches, and attends to them for each hypothesis:
    /// `out: [beams, heads · d_k]`.
    ///
    /// # Panics
    /// If a length does not match its dimensions, or a hypothesis or position does not exist.
    pub fn step(&self, step: &Step<'_>, caches: Caches<'_>, out: &mut [f32]) {
        let Caches { keys, values, capacity } = caches;
        assert!(
            step.past < capacity && step.past <= step.longest,
            "place {} of {capacity}, at most {}",
            step.past,
            step.longest
        );
        assert!(step.first <= step.past, "from place {} to {}", step.first, step.past);
        let beams = out.len() / self.width().max(1);
        let least = |stride: usize, width| {
            beams.saturating_sub(1) * stride + if beams > 0 { width } else { 0 }
        };
        let [query, key, value] = step.strides;
        let news = [
            (step.query, query, self.width()),
            (step.key, key, self.key_width()),
            (step.value, value, self.key_width()),
        ];
        assert_eq!(out.len(), beams * self.width(), "[beams, heads · d_k]");
        let is_whole = news.iter().all(|&(rows, stride, width)| rows.len() >= least(stride, width));
        assert!(is_whole, "query, key and value of each hypothesis");
        assert_eq!(
            [keys.len(), values.len()],
            [beams * self.key_width() * capacity; 2],
            "[beams, key_heads, capacity, d_k]"
        );
        assert_eq!(step.holders.len(), beams * step.longest, "[beams, longest]");
        assert!(
            step.bias.is_none_or(|bias| bias.len() == self.heads * (step.longest + 1)),
            "[heads, longest + 1]"
        );
        if out.is_empty() {
            return;
        }
        arch().dispatch(StepOfBeams { attention: self, step, keys, values, capacity, out });
    }
}

impl<'m, N: Stored> Memory<'m, N> {
    /// The key or value at a position.
    #[inline(always)]
    fn vector(&self, of: &'m [N], [head, place]: [usize; 2], d_k: usize) -> &'m [N] {
        &of[head * self.strides.head + place * self.strides.place..][..d_k]
    }

    /// Replaces the products of a query with all keys, padded to whole vectors, by exponentials of
    /// their distances to the largest score, and returns their sum.
    #[inline(always)]
    fn weights<S: Simd>(
        &self,
        simd: S,
        at: [usize; 2],
        attention: &Attention,
        scores: &mut [f32],
    ) -> f32 {
        self.distances(simd, at, attention, scores);
        exponentials(scores);
        sum(simd, scores)
    }

    /// Replaces the products of a query with all keys, padded to whole vectors, by the distances of
    /// their scores to the largest.
    #[inline(always)]
    fn distances<S: Simd>(
        &self,
        simd: S,
        [head, index]: [usize; 2],
        attention: &Attention,
        scores: &mut [f32],
    ) {
        let (real, filled) = scores.split_at_mut(self.places);
        attention.score(real);
        if let Some(mask) = self.mask {
            let mask = &mask.numbers[head * mask.head + index * mask.query..];
            real.iter_mut().zip(mask).for_each(|(score, mask)| *score += mask);
        }
        filled.fill(f32::NEG_INFINITY);
        distances(simd, scores);
    }
}

/// The distance to the largest score from which on a weight, `exp(-60) = 9e-27`, does not change a
/// sum of f32. Even smaller weights would make products with values subnormal, which Intel's
/// processors compute many times slower.
const NEGLIGIBLE: f32 = -60.0;

/// Replaces scores, padded to whole vectors, by their distances to the largest.
#[inline(always)]
fn distances<S: Simd>(simd: S, scores: &mut [f32]) {
    let mut largest = simd.splat_f32s(f32::NEG_INFINITY);
    for &vector in S::as_simd_f32s(scores).0 {
        largest = simd.max_f32s(largest, vector);
    }
    let largest = simd.reduce_max_f32s(largest);
    for score in scores {
        let distance = *score - largest;
        // Not `max`, which would hide a NaN.
        *score = if distance < NEGLIGIBLE { NEGLIGIBLE } else { distance };
    }
}

/// Replaces distances by their exponentials; many at once are faster than those of one row.
#[inline(always)]
fn exponentials(distances: &mut [f32]) {
    for number in distances {
        *number = exponential::<false, 7>(*number);
    }
}

/// The sum of whole vectors.
#[inline(always)]
fn sum<S: Simd>(simd: S, numbers: &[f32]) -> f32 {
    let mut sum = simd.splat_f32s(0.0);
    for &vector in S::as_simd_f32s(numbers).0 {
        sum = simd.add_f32s(sum, vector);
    }
    simd.reduce_sum_f32s(sum)
}

/// A type of numbers in memory to which there is attention.
pub trait Attended: Stored {
    /// [`Attention::read`] of each type, which this crate compiles: another crate would with its own
    /// settings, in which functions of vectors are called one by one.
    #[doc(hidden)]
    fn attend(
        attention: &Attention,
        queries: (&[f32], usize),
        memory: &Memory<'_, Self>,
        into: Results<'_>,
        threads: &dyn Parallel,
    );
}

impl Attended for f32 {
    fn attend(
        attention: &Attention,
        queries: (&[f32], usize),
        memory: &Memory<'_, Self>,
        into: Results<'_>,
        threads: &dyn Parallel,
    ) {
        attention.read_stored(queries, memory, into, threads);
    }
}

impl Attended for f16 {
    fn attend(
        attention: &Attention,
        queries: (&[f32], usize),
        memory: &Memory<'_, Self>,
        into: Results<'_>,
        threads: &dyn Parallel,
    ) {
        attention.read_stored(queries, memory, into, threads);
    }
}
