//! The two sums of attention: products of a query with keys, and values by their weights.
//!
//! Both are of vectors of `d_k` numbers, which usually are a few whole registers: `V` of them, else 0. A number is summed in the same
//! order however many places there are.

use crate::prefetch::{prefetch, prefetch_behind};
use pulp::Simd;

/// Where the vectors of places begin.
pub(super) trait Places: Copy {
    fn start(self, place: usize) -> usize;
}

/// Places at equal distances.
#[derive(Clone, Copy)]
pub(super) struct Even {
    pub(super) first: usize,
    pub(super) stride: usize,
}

impl Places for Even {
    #[inline(always)]
    fn start(self, place: usize) -> usize {
        self.first + place * self.stride
    }
}

/// Vectors of some length in numbers.
#[derive(Clone, Copy)]
pub(super) struct Vectors<'v, P> {
    pub(super) numbers: &'v [f32],
    pub(super) places: P,
    pub(super) d_k: usize,
}

impl<'v, P: Places> Vectors<'v, P> {
    #[inline(always)]
    pub(super) fn at(self, place: usize) -> &'v [f32] {
        &self.numbers[self.places.start(place)..][..self.d_k]
    }

    /// All numbers, in `V` registers.
    #[inline(always)]
    fn registers<S: Simd, const V: usize>(self, place: usize) -> &'v [S::f32s; V] {
        S::as_simd_f32s(self.at(place)).0.first_chunk().expect("V registers of d_k numbers")
    }
}

/// What is read after a key: where a head has many places its later keys and its values, then the keys of the next head; else the
/// next sentence, which is so many numbers behind.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'v, P> {
    pub(super) keys: Vectors<'v, P>,
    pub(super) values: Vectors<'v, P>,
    pub(super) next: Vectors<'v, P>,
    pub(super) behind: usize,
}

impl<P: Places> Ahead<'_, P> {
    /// Places between a key that is read and the key that is asked for.
    const DISTANCE: usize = 32;

    #[inline(always)]
    fn ask(self, place: usize, count: usize) {
        let later = place + Self::DISTANCE;
        if count <= Self::DISTANCE {
            prefetch_behind(self.keys.at(place), self.behind);
            return prefetch_behind(self.values.at(place), self.behind);
        }
        prefetch(if later < count { self.keys.at(later) } else { self.next.at(later - count) });
        prefetch(self.values.at(place));
    }
}

/// Writes the product of the query with the key of each place, of which there are `count`. Scores are whole registers; those behind
/// the last place may be any.
#[inline(always)]
pub(super) fn products<S: Simd, P: Places, const V: usize>(
    simd: S,
    query: &[f32],
    keys: Vectors<'_, P>,
    count: usize,
    ahead: Option<Ahead<'_, P>>,
    scores: &mut [f32],
) {
    if V == 0 || !adds_across::<S>() {
        for (place, score) in scores[..count].iter_mut().enumerate() {
            if let Some(ahead) = ahead {
                ahead.ask(place, count);
            }
            *score = dot(simd, query, keys.at(place));
        }
        return;
    }
    let query: &[S::f32s; V] = S::as_simd_f32s(query).0.first_chunk().expect("V registers of d_k numbers");
    for (index, scores) in S::as_mut_simd_f32s(scores).0.iter_mut().enumerate() {
        let mut fours = [simd.splat_f32s(0.0); 4];
        for (four, sums) in fours.iter_mut().take(S::F32_LANES / 4).enumerate() {
            let first = index * S::F32_LANES + four * 4;
            if first < count {
                let mut parts = [simd.splat_f32s(0.0); 4];
                for (part, sums) in parts.iter_mut().enumerate() {
                    let place = (first + part).min(count - 1);
                    if let Some(ahead) = ahead {
                        ahead.ask(place, count);
                    }
                    let key = keys.registers::<S, V>(place);
                    for (&query, &key) in query.iter().zip(key) {
                        *sums = simd.mul_add_e_f32s(query, key, *sums);
                    }
                }
                *sums = four_sums(simd, parts);
            }
        }
        *scores = joined(simd, fours);
    }
}

/// `out = factor · Σ weights[place] · values[place]`, in `W` sums whose places take turns, to keep the processor busy.
#[inline(always)]
pub(super) fn weighed<S: Simd, P: Places, const V: usize, const W: usize>(
    simd: S,
    weights: &[f32],
    factor: f32,
    values: Vectors<'_, P>,
    out: &mut [f32],
) {
    if V == 0 {
        return weighed_by_parts(simd, weights, factor, values, out);
    }
    let mut sums = [[simd.splat_f32s(0.0); V]; W];
    let (turns, rest) = weights.as_chunks::<W>();
    for (turn, weights) in turns.iter().enumerate() {
        for (index, (sums, &weight)) in sums.iter_mut().zip(weights).enumerate() {
            let (weight, values) = (simd.splat_f32s(weight), values.registers::<S, V>(turn * W + index));
            for (sum, &value) in sums.iter_mut().zip(values) {
                *sum = simd.mul_add_e_f32s(weight, value, *sum);
            }
        }
    }
    for (index, (sums, &weight)) in sums.iter_mut().zip(rest).enumerate() {
        let (weight, values) = (simd.splat_f32s(weight), values.registers::<S, V>(turns.len() * W + index));
        for (sum, &value) in sums.iter_mut().zip(values) {
            *sum = simd.mul_add_e_f32s(weight, value, *sum);
        }
    }
    let factor = simd.splat_f32s(factor);
    for (register, out) in S::as_mut_simd_f32s(out).0.iter_mut().enumerate().take(V) {
        let mut sum = sums[0][register];
        for sums in &sums[1..] {
            sum = simd.add_f32s(sum, sums[register]);
        }
        *out = simd.mul_f32s(sum, factor);
    }
}

/// [`weighed`] for any number of registers and a rest, one after the other.
#[inline(always)]
fn weighed_by_parts<S: Simd, P: Places>(simd: S, weights: &[f32], factor: f32, values: Vectors<'_, P>, out: &mut [f32]) {
    let (out, out_rest) = S::as_mut_simd_f32s(out);
    let factor = simd.splat_f32s(factor);
    for (register, out) in out.iter_mut().enumerate() {
        let mut sum = simd.splat_f32s(0.0);
        for (place, &weight) in weights.iter().enumerate() {
            sum = simd.mul_add_e_f32s(simd.splat_f32s(weight), S::as_simd_f32s(values.at(place)).0[register], sum);
        }
        *out = simd.mul_f32s(sum, factor);
    }
    if !out_rest.is_empty() {
        let mut sum = simd.splat_f32s(0.0);
        for (place, &weight) in weights.iter().enumerate() {
            sum = simd.mul_add_e_f32s(simd.splat_f32s(weight), simd.partial_load_f32s(S::as_simd_f32s(values.at(place)).1), sum);
        }
        simd.partial_store_f32s(out_rest, simd.mul_f32s(sum, factor));
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

/// Whether [`four_sums`] and [`joined`] are written for this instruction set.
#[inline(always)]
const fn adds_across<S: Simd>() -> bool {
    cfg!(target_arch = "x86_64") && (S::F32_LANES == 8 || S::F32_LANES == 16)
}

/// In each 128 bits the four sums of the 128 bits of the four parts.
#[inline(always)]
fn four_sums<S: Simd>(_: S, parts: [S::f32s; 4]) -> S::f32s {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        use std::mem::transmute_copy;
        // SAFETY: registers of this many numbers are those of the set, which the processor has.
        unsafe {
            if S::F32_LANES == 16 {
                let [a, b, c, d]: [__m512; 4] = transmute_copy(&parts);
                let ab = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
                let cd = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
                let (low, high) = (_mm512_unpacklo_pd(ab, cd), _mm512_unpackhi_pd(ab, cd));
                return transmute_copy(&_mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high)));
            }
            if S::F32_LANES == 8 {
                let [a, b, c, d]: [__m256; 4] = transmute_copy(&parts);
                let ab = _mm256_castps_pd(_mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)));
                let cd = _mm256_castps_pd(_mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d)));
                let (low, high) = (_mm256_unpacklo_pd(ab, cd), _mm256_unpackhi_pd(ab, cd));
                return transmute_copy(&_mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high)));
            }
        }
    }
    unreachable!("adds_across: no registers of {} numbers", S::F32_LANES)
}

/// The sums of the 128 bits of each register, one register after the other; as many registers are read as one has 128 bits.
#[inline(always)]
fn joined<S: Simd>(_: S, fours: [S::f32s; 4]) -> S::f32s {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        use std::mem::transmute_copy;
        // SAFETY: as above.
        unsafe {
            if S::F32_LANES == 16 {
                let [a, b, c, d]: [__m512; 4] = transmute_copy(&fours);
                let ab = _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
                let cd = _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
                return transmute_copy(&_mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xdd>(ab, cd)));
            }
            if S::F32_LANES == 8 {
                let [a, b, ..]: [__m256; 4] = transmute_copy(&fours);
                return transmute_copy(&_mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b)));
            }
        }
    }
    unreachable!("adds_across: no registers of {} numbers", S::F32_LANES)
}
