//! Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1) to keys and values in place: nothing is copied.

use crate::exponential;
use crate::prefetch::prefetch;
use pulp::{Arch, Simd, WithSimd};

/// Queries of a sentence for which it pays to turn its keys.
pub const MANY: usize = 8;

/// Vectors that are summed together, each in a register.
const TOGETHER: usize = 4;

/// The sizes that all queries have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Number of heads.
    pub heads: usize,
    /// Numbers of a head's key.
    pub d_k: usize,
    /// The factor of the scores.
    pub scale: f32,
}

/// The keys and values of one sentence.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'m> {
    /// The keys.
    pub keys: &'m [f32],
    /// The values, laid out as the keys.
    pub values: &'m [f32],
    /// How the keys are laid out.
    pub strides: Strides,
    /// Number of places.
    pub places: usize,
    /// The additive mask, if there is one.
    pub mask: Option<Mask<'m>>,
    /// Whether the keys of a head are first transposed, which pays off from [`MANY`] queries on. It changes the order of
    /// summation.
    pub turned: bool,
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

/// One step of the hypotheses of a sentence, a row for each.
#[derive(Clone, Copy, Debug)]
pub struct Step<'s> {
    /// Query, key and value of the new position: each `[beams, heads · d_k]`, of which rows begin `stride` apart.
    pub query: &'s [f32],
    /// As `query`.
    pub key: &'s [f32],
    /// As `query`.
    pub value: &'s [f32],
    /// The stride between hypotheses in `query`, `key` and `value`.
    pub stride: usize,
    /// At which place of the caches key and value are put.
    pub past: usize,
    /// The largest `past` of the batch.
    pub longest: usize,
    /// The beam that holds each place: `[beams, longest]`, of which the first `past` are read.
    pub holders: &'s [i64],
    /// The additive mask of the scores by their distance from the new position: `[heads, longest + 1]`, of which the last `past + 1`
    /// are read; or none.
    pub bias: Option<&'s [f32]>,
}

/// The keys and values of the hypotheses of a sentence, `[beams, heads, capacity, d_k]`.
#[derive(Debug)]
pub struct Caches<'c> {
    /// The keys.
    pub keys: &'c mut [f32],
    /// The values.
    pub values: &'c mut [f32],
    /// Places that a row has room for.
    pub capacity: usize,
}

impl Attention {
    /// The width of a query and of its result: `heads · d_k`.
    pub fn width(&self) -> usize {
        self.heads * self.d_k
    }

    /// Attention from some queries of one sentence to its memory. `stride` separates the rows of queries; `out: [n, heads · d_k]`.
    ///
    /// # Panics
    /// If a slice is shorter than its dimensions.
    pub fn read(&self, queries: &[f32], stride: usize, memory: &Memory<'_>, out: &mut [f32]) {
        let (n, Memory { strides, places, mask, .. }) = (out.len() / self.width().max(1), *memory);
        assert_eq!(out.len(), n * self.width(), "[n, heads · d_k]");
        if n == 0 || places == 0 || self.width() == 0 {
            return out.fill(0.0);
        }
        let last = (self.heads - 1) * strides.head + (places - 1) * strides.place + self.d_k;
        assert!(memory.keys.len() >= last && memory.values.len() >= last, "keys and values of all places");
        assert!(queries.len() >= (n - 1) * stride + self.width(), "all queries");
        let least = |mask: Mask<'_>| (self.heads - 1) * mask.head + (n - 1) * mask.query + places;
        assert!(mask.is_none_or(|mask| mask.numbers.len() >= least(mask)), "a mask for all scores");
        Arch::new().dispatch(Read { attention: self, queries, stride, memory, n, out });
    }

    /// Writes the new keys and values into the caches, and attends to them for each hypothesis: `out: [beams, heads · d_k]`.
    ///
    /// # Panics
    /// If a length does not match its dimensions, or a hypothesis or position does not exist.
    pub fn step(&self, step: &Step<'_>, caches: Caches<'_>, out: &mut [f32]) {
        let Caches { keys, values, capacity } = caches;
        assert!(step.past < capacity && step.past <= step.longest, "place {} of {capacity}, at most {}", step.past, step.longest);
        let beams = out.len() / self.width().max(1);
        let least = beams.saturating_sub(1) * step.stride + if beams > 0 { self.width() } else { 0 };
        assert_eq!(out.len(), beams * self.width(), "[beams, heads · d_k]");
        assert!([step.query, step.key, step.value].iter().all(|rows| rows.len() >= least), "query, key and value of each hypothesis");
        assert_eq!([keys.len(), values.len()], [out.len() * capacity; 2], "[beams, heads, capacity, d_k]");
        assert_eq!(step.holders.len(), beams * step.longest, "[beams, longest]");
        assert!(step.bias.is_none_or(|bias| bias.len() == self.heads * (step.longest + 1)), "[heads, longest + 1]");
        for (cache, new) in [(&mut *keys, step.key), (&mut *values, step.value)] {
            for (index, places) in cache.chunks_exact_mut((capacity * self.d_k).max(1)).enumerate() {
                let start = index / self.heads * step.stride + index % self.heads * self.d_k;
                places[step.past * self.d_k..][..self.d_k].copy_from_slice(&new[start..][..self.d_k]);
            }
        }
        Arch::new().dispatch(StepOfBeams { attention: self, step, keys, values, capacity, out });
    }
}

/// [`Attention::read`] in the processor's vectors.
struct Read<'a, 'm> {
    attention: &'a Attention,
    queries: &'a [f32],
    stride: usize,
    memory: &'a Memory<'m>,
    n: usize,
    out: &'a mut [f32],
}

impl WithSimd for Read<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { attention: &Attention { heads, d_k, scale }, queries, stride, memory, n, out } = self;
        let &Memory { keys, values, strides, places, mask, turned: is_turned } = memory;
        let wide = places.next_multiple_of(S::F32_LANES);
        let (mut scores, mut turned) = (vec![0.0; wide], vec![0.0; if is_turned { d_k * wide } else { 0 }]);
        for head in 0..heads {
            let start = |head: usize, place: usize| head * strides.head + place * strides.place;
            for place in 0..places {
                prefetch(&values[start(head, place)..][..d_k]);
                if head + 1 < heads {
                    prefetch(&keys[start(head + 1, place)..][..d_k]);
                }
            }
            if is_turned {
                for place in 0..places {
                    for (index, &number) in keys[start(head, place)..][..d_k].iter().enumerate() {
                        turned[index * wide + place] = number;
                    }
                }
            }
            for index in 0..n {
                let query = &queries[index * stride + head * d_k..][..d_k];
                if is_turned {
                    dots(simd, query, &turned, &mut scores);
                } else {
                    for (place, score) in scores[..places].iter_mut().enumerate() {
                        *score = dot(simd, query, &keys[start(head, place)..][..d_k]);
                    }
                }
                let (real, filled) = scores.split_at_mut(places);
                match mask {
                    Some(mask) => {
                        let mask = &mask.numbers[head * mask.head + index * mask.query..][..places];
                        for place in 0..real.len() {
                            real[place] = real[place] * scale + mask[place];
                        }
                    }
                    None => real.iter_mut().for_each(|score| *score *= scale),
                }
                filled.fill(f32::NEG_INFINITY);
                let sum = exponentials(simd, &mut scores);
                let out = &mut out[(index * heads + head) * d_k..][..d_k];
                weigh(simd, &scores[..places], 1.0 / sum, |place| &values[start(head, place)..][..d_k], out);
            }
        }
    }
}

/// The products of a query with the keys of all places, `[d_k, places]`, of which there are whole vectors.
#[inline(always)]
fn dots<S: Simd>(simd: S, query: &[f32], turned: &[f32], scores: &mut [f32]) {
    let ((scores, _), (turned, _)) = (S::as_mut_simd_f32s(scores), S::as_simd_f32s(turned));
    let n = scores.len();
    let (groups, rest) = scores.as_chunks_mut::<TOGETHER>();
    for (group, scores) in groups.iter_mut().enumerate() {
        *scores = dots_of(simd, query, &turned[group * TOGETHER..], n);
    }
    for (last, score) in rest.iter_mut().enumerate() {
        [*score] = dots_of(simd, query, &turned[groups.len() * TOGETHER + last..], n);
    }
}

/// Those of `N` vectors, of which rows begin `stride` apart. Two sums of each, so that one need not wait for the other.
#[inline(always)]
fn dots_of<S: Simd, const N: usize>(simd: S, query: &[f32], turned: &[S::f32s], stride: usize) -> [S::f32s; N] {
    let mut sums = [[simd.splat_f32s(0.0); N]; 2];
    for (index, pair) in query.chunks(2).enumerate() {
        for (half, &number) in pair.iter().enumerate() {
            let (number, keys) = (simd.splat_f32s(number), &turned[(2 * index + half) * stride..][..N]);
            for lane in 0..N {
                sums[half][lane] = simd.mul_add_e_f32s(number, keys[lane], sums[half][lane]);
            }
        }
    }
    let [mut sums, others] = sums;
    for lane in 0..N {
        sums[lane] = simd.add_f32s(sums[lane], others[lane]);
    }
    sums
}

/// [`Attention::step`] with vector instructions, after the caches have been written.
struct StepOfBeams<'a, 's> {
    attention: &'a Attention,
    step: &'a Step<'s>,
    keys: &'a [f32],
    values: &'a [f32],
    capacity: usize,
    out: &'a mut [f32],
}

impl WithSimd for StepOfBeams<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { attention: &Attention { heads, d_k, scale }, step, keys, values, capacity, out } = self;
        let (width, past, longest) = (heads * d_k, step.past, step.longest);
        let mut scores = vec![0.0; (past + 1).next_multiple_of(S::F32_LANES)];
        for head in 0..heads {
            for (beam, out) in out.chunks_exact_mut(width).enumerate() {
                let (query, out) = (&step.query[beam * step.stride + head * d_k..][..d_k], &mut out[head * d_k..][..d_k]);
                let holders = &step.holders[beam * longest..][..past];
                let start = |head: usize, place: usize| {
                    let holder = if place < past { holders[place] as usize } else { beam };
                    ((holder * heads + head) * capacity + place) * d_k
                };
                for place in 0..=past {
                    prefetch(&values[start(head, place)..][..d_k]);
                    if head + 1 < heads {
                        prefetch(&keys[start(head + 1, place)..][..d_k]);
                    }
                }
                let (real, filled) = scores.split_at_mut(past + 1);
                for (place, score) in real.iter_mut().enumerate() {
                    *score = dot(simd, query, &keys[start(head, place)..][..d_k]) * scale;
                }
                if let Some(bias) = step.bias {
                    let bias = &bias[head * (longest + 1) + longest - past..];
                    real.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
                }
                filled.fill(f32::NEG_INFINITY);
                let sum = exponentials(simd, &mut scores);
                weigh(simd, &scores[..=past], 1.0 / sum, |place| &values[start(head, place)..][..d_k], out);
            }
        }
    }
}

#[inline(always)]
fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (S::as_simd_f32s(a), S::as_simd_f32s(b));
    let mut sum = simd.splat_f32s(0.0);
    for (&a, &b) in a.iter().zip(b) {
        sum = simd.mul_add_e_f32s(a, b, sum);
    }
    if !a_rest.is_empty() {
        sum = simd.mul_add_e_f32s(simd.partial_load_f32s(a_rest), simd.partial_load_f32s(b_rest), sum);
    }
    simd.reduce_sum_f32s(sum)
}

/// `out = factor · Σ weights[place] · values(place)`
#[inline(always)]
fn weigh<'v, S: Simd>(simd: S, weights: &[f32], factor: f32, values: impl Fn(usize) -> &'v [f32], out: &mut [f32]) {
    let (out, out_rest) = S::as_mut_simd_f32s(out);
    let (groups, rest) = out.as_chunks_mut::<TOGETHER>();
    let wide_factor = simd.splat_f32s(factor);
    for (group, out) in groups.iter_mut().enumerate() {
        let mut sums = [simd.splat_f32s(0.0); TOGETHER];
        for (place, &weight) in weights.iter().enumerate() {
            let (weight, values) = (simd.splat_f32s(weight), &S::as_simd_f32s(values(place)).0[group * TOGETHER..][..TOGETHER]);
            for lane in 0..TOGETHER {
                sums[lane] = simd.mul_add_e_f32s(weight, values[lane], sums[lane]);
            }
        }
        for lane in 0..TOGETHER {
            out[lane] = simd.mul_f32s(sums[lane], wide_factor);
        }
    }
    for (last, out) in rest.iter_mut().enumerate() {
        let mut sum = simd.splat_f32s(0.0);
        for (place, &weight) in weights.iter().enumerate() {
            let values = S::as_simd_f32s(values(place)).0[groups.len() * TOGETHER + last];
            sum = simd.mul_add_e_f32s(simd.splat_f32s(weight), values, sum);
        }
        *out = simd.mul_f32s(sum, wide_factor);
    }
    if !out_rest.is_empty() {
        let mut sum = simd.splat_f32s(0.0);
        for (place, &weight) in weights.iter().enumerate() {
            sum = simd.mul_add_e_f32s(simd.splat_f32s(weight), simd.partial_load_f32s(S::as_simd_f32s(values(place)).1), sum);
        }
        simd.partial_store_f32s(out_rest, simd.mul_f32s(sum, wide_factor));
    }
}

/// Makes scores, of which there are whole vectors, exponentials of their distances to the largest, and gives their sum.
#[inline(always)]
fn exponentials<S: Simd>(simd: S, scores: &mut [f32]) -> f32 {
    let mut largest = simd.splat_f32s(f32::NEG_INFINITY);
    for &vector in S::as_simd_f32s(scores).0 {
        largest = simd.max_f32s(largest, vector);
    }
    let largest = simd.reduce_max_f32s(largest);
    for score in &mut *scores {
        *score = exponential::<false, 7>(*score - largest);
    }
    let mut sum = simd.splat_f32s(0.0);
    for &vector in S::as_simd_f32s(scores).0 {
        sum = simd.add_f32s(sum, vector);
    }
    simd.reduce_sum_f32s(sum)
}
