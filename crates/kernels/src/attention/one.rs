//! Attention query by query.

use super::{Attention, Memory, Step, exponentials};
use crate::parallel::Shared;
use crate::prefetch::prefetch;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Vectors that are summed together, each in a register.
const TOGETHER: usize = 4;

/// Places between a key that is read and the key that is asked for, beside the value that is read next.
const AHEAD: usize = 32;

/// [`Attention::read`] for some heads.
pub(super) struct Read<'a, 'm> {
    pub(super) attention: &'a Attention,
    pub(super) queries: &'a [f32],
    pub(super) stride: usize,
    pub(super) memory: &'a Memory<'m>,
    pub(super) n: usize,
    pub(super) heads: Range<usize>,
    pub(super) context: &'a Shared<'a, f32>,
    pub(super) weights: Option<&'a Shared<'a, f32>>,
}

impl Read<'_, '_> {
    /// The query of a head.
    #[inline(always)]
    pub(super) fn query(&self, [head, index]: [usize; 2]) -> &[f32] {
        let d_k = self.attention.d_k;
        &self.queries[index * self.stride + head * d_k..][..d_k]
    }

    /// Writes the weights of a head, if they are wanted: exponentials times a factor.
    #[inline(always)]
    pub(super) fn put(&self, [head, index]: [usize; 2], exponentials: &[f32], factor: f32) {
        let Some(weights) = self.weights else { return };
        let start = (index * self.attention.heads + head) * exponentials.len();
        // SAFETY: a thread has heads of its own.
        let weights = unsafe { weights.part(start, exponentials.len()) };
        weights.iter_mut().zip(exponentials).for_each(|(weight, exponential)| *weight = exponential * factor);
    }

    /// Where the result of a head begins.
    #[inline(always)]
    pub(super) fn place_of(&self, [head, index]: [usize; 2]) -> usize {
        (index * self.attention.heads + head) * self.attention.d_k
    }
}

impl WithSimd for Read<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let d_k = self.attention.d_k;
        let &Memory { keys, values, places, .. } = self.memory;
        let mut scores = vec![0.0; places.next_multiple_of(S::F32_LANES)];
        for head in self.heads.clone() {
            let [key, value] =
                [keys, values].map(|of| move |head, place| self.memory.vector(of, [self.attention.key_head(head), place], d_k));
            for index in 0..self.n {
                let query = self.query([head, index]);
                for (place, score) in scores[..places].iter_mut().enumerate() {
                    if index == 0 {
                        ask([head, place], [self.heads.end, places], key, value);
                    }
                    *score = dot(simd, query, key(head, place));
                }
                let sum = self.memory.weights(simd, [head, index], self.attention, &mut scores);
                self.put([head, index], &scores[..places], 1.0 / sum);
                // SAFETY: a thread has heads of its own.
                let out = unsafe { self.context.part(self.place_of([head, index]), d_k) };
                weigh(simd, &scores[..places], 1.0 / sum, |place| value(head, place), out);
            }
        }
    }
}

/// [`Attention::step`] with vector instructions, after the caches have been written.
pub(super) struct StepOfBeams<'a, 's> {
    pub(super) attention: &'a Attention,
    pub(super) step: &'a Step<'s>,
    pub(super) keys: &'a [f32],
    pub(super) values: &'a [f32],
    pub(super) capacity: usize,
    pub(super) out: &'a mut [f32],
}

impl WithSimd for StepOfBeams<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { attention, step, keys, values, capacity, out } = self;
        let &Attention { heads, key_heads, d_k, .. } = attention;
        let (width, past, first, longest) = (heads * d_k, step.past, step.first, step.longest);
        let n = past + 1 - first;
        let mut scores = vec![0.0; n.next_multiple_of(S::F32_LANES)];
        for head in 0..heads {
            for (beam, out) in out.chunks_exact_mut(width).enumerate() {
                let (query, out) = (&step.query[beam * step.strides[0] + head * d_k..][..d_k], &mut out[head * d_k..][..d_k]);
                let holders = &step.holders[beam * longest..][..past];
                let start = |head: usize, place: usize| {
                    let holder = if place < past { holders[place] as usize } else { beam };
                    ((holder * key_heads + attention.key_head(head)) * capacity + place) * d_k
                };
                // Places are counted from the first that is read.
                let [key, value] = [keys, values].map(|cache| move |head, place| &cache[start(head, first + place)..][..d_k]);
                let (real, filled) = scores.split_at_mut(n);
                for (place, score) in real.iter_mut().enumerate() {
                    ask([head, place], [heads, n], key, value);
                    *score = attention.score(dot(simd, query, key(head, place)));
                }
                if let Some(bias) = step.bias {
                    let bias = &bias[head * (longest + 1) + longest - past + first..];
                    real.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
                }
                filled.fill(f32::NEG_INFINITY);
                let sum = exponentials(simd, &mut scores);
                weigh(simd, &scores[..n], 1.0 / sum, |place| value(head, place), out);
            }
        }
    }
}

/// Asks for the value of a place, and for the key some places behind it or at the start of the next head.
#[inline(always)]
fn ask<'v>(
    [head, place]: [usize; 2],
    [heads, places]: [usize; 2],
    key: impl Fn(usize, usize) -> &'v [f32],
    value: impl Fn(usize, usize) -> &'v [f32],
) {
    let ahead = place + AHEAD.min(places);
    if ahead < places {
        prefetch(key(head, ahead));
    } else if head + 1 < heads {
        prefetch(key(head + 1, ahead - places));
    }
    prefetch(value(head, place));
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
