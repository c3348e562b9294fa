//! The two sums of attention: products of a query with keys, and values by their weights.
//!
//! Both process vectors of `d_k` numbers, which usually are a few whole registers: `V` of them, or
//! 0. A number is summed in the same order regardless of the number of positions.

use crate::prefetch::{prefetch, prefetch_behind};
use pulp::Simd;

/// The start of the vector of each position.
pub(super) trait Places: Copy {
    fn start(self, place: usize) -> usize;
}

/// Positions at equal distances.
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

/// Vectors of the same length.
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

    /// `sums += weight · vector`
    #[inline(always)]
    fn add<S: Simd, const V: usize>(
        self,
        simd: S,
        place: usize,
        weight: f32,
        sums: &mut [S::f32s; V],
    ) {
        let weight = simd.splat_f32s(weight);
        for (sum, &number) in sums.iter_mut().zip(self.registers::<S, V>(place)) {
            *sum = simd.mul_add_e_f32s(weight, number, *sum);
        }
    }
}

/// The memory that is read after a key: for a head with many positions its later keys and its
/// values, then the keys of the next head; otherwise the next sentence, `behind` numbers later.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'v, P> {
    pub(super) keys: Vectors<'v, P>,
    pub(super) values: Vectors<'v, P>,
    pub(super) next: Vectors<'v, P>,
    pub(super) behind: usize,
}

impl<P: Places> Ahead<'_, P> {
    /// Number of positions between a key that is read and the key that is prefetched.
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

/// Writes the products of `Q` queries with the key of each of `count` positions; the queries share
/// what is read of a key. Scores, `[Q, wide]`, are whole registers; those behind the last position
/// are arbitrary.
#[inline(always)]
pub(super) fn products<S: Simd, P: Places, const V: usize, const Q: usize>(
    simd: S,
    queries: [&[f32]; Q],
    keys: Vectors<'_, P>,
    count: usize,
    ahead: Option<Ahead<'_, P>>,
    scores: &mut [f32],
) {
    let wide = scores.len() / Q;
    if V == 0 || !adds_across::<S>() {
        for place in 0..count {
            if let Some(ahead) = ahead {
                ahead.ask(place, count);
            }
            for (index, query) in queries.into_iter().enumerate() {
                scores[index * wide + place] = dot(simd, query, keys.at(place));
            }
        }
        return;
    }
    let queries: [&[S::f32s; V]; Q] = queries
        .map(|query| S::as_simd_f32s(query).0.first_chunk().expect("V registers of d_k numbers"));
    let (scores, wide) = (S::as_mut_simd_f32s(scores).0, wide / S::F32_LANES);
    for index in 0..wide {
        let mut fours = [[simd.splat_f32s(0.0); 4]; Q];
        for four in 0..S::F32_LANES / 4 {
            let first = index * S::F32_LANES + four * 4;
            if first < count {
                let mut parts = [[simd.splat_f32s(0.0); 4]; Q];
                for part in 0..4 {
                    let place = (first + part).min(count - 1);
                    if let Some(ahead) = ahead {
                        ahead.ask(place, count);
                    }
                    let mut sums = [simd.splat_f32s(0.0); Q];
                    for (register, &key) in keys.registers::<S, V>(place).iter().enumerate() {
                        for (query, sum) in queries.iter().zip(&mut sums) {
                            *sum = simd.mul_add_e_f32s(query[register], key, *sum);
                        }
                    }
                    for (parts, sum) in parts.iter_mut().zip(sums) {
                        parts[part] = sum;
                    }
                }
                for (fours, parts) in fours.iter_mut().zip(parts) {
                    fours[four] = four_sums(simd, parts);
                }
            }
        }
        for (query, fours) in fours.into_iter().enumerate() {
            scores[query * wide + index] = joined(simd, fours);
        }
    }
}

/// The weights of positions for a query, and the memory for their sum of values.
pub(super) struct Weighed<'w, 'o> {
    pub(super) weights: &'w [f32],
    pub(super) factor: f32,
    pub(super) out: &'o mut [f32],
}

/// `out = factor · Σ weights[place] · values[place]`, with positions distributed over `W` sums, to
/// keep the processor busy.
#[inline(always)]
pub(super) fn weighed<S: Simd, P: Places, const V: usize, const W: usize>(
    simd: S,
    query: Weighed<'_, '_>,
    values: Vectors<'_, P>,
) {
    if V == 0 {
        return weighed_by_parts(simd, query, values);
    }
    let mut sums = [[simd.splat_f32s(0.0); V]; W];
    let (turns, rest) = query.weights.as_chunks::<W>();
    for (turn, weights) in turns.iter().enumerate() {
        for (index, (sums, &weight)) in sums.iter_mut().zip(weights).enumerate() {
            values.add::<S, V>(simd, turn * W + index, weight, sums);
        }
    }
    for (index, (sums, &weight)) in sums.iter_mut().zip(rest).enumerate() {
        values.add::<S, V>(simd, turns.len() * W + index, weight, sums);
    }
    let factor = simd.splat_f32s(query.factor);
    for (register, out) in S::as_mut_simd_f32s(query.out).0.iter_mut().enumerate().take(V) {
        let mut sum = sums[0][register];
        for sums in &sums[1..] {
            sum = simd.add_f32s(sum, sums[register]);
        }
        *out = simd.mul_f32s(sum, factor);
    }
}

/// [`weighed`] for `Q` queries, which share what is read of a value: the same sums.
#[inline(always)]
pub(super) fn weighed_together<
    S: Simd,
    P: Places,
    const V: usize,
    const W: usize,
    const Q: usize,
>(
    simd: S,
    mut queries: [Weighed<'_, '_>; Q],
    values: Vectors<'_, P>,
) {
    if V == 0 {
        for query in queries {
            weighed_by_parts(simd, query, values);
        }
        return;
    }
    let count = queries[0].weights.len();
    // The sums of all registers would not fit into those of the processor.
    for register in 0..V {
        let mut sums = [[simd.splat_f32s(0.0); W]; Q];
        let turns = count / W;
        for turn in 0..turns {
            for index in 0..W {
                let value = values.registers::<S, V>(turn * W + index)[register];
                for (query, sums) in queries.iter().zip(&mut sums) {
                    let weight = simd.splat_f32s(query.weights[turn * W + index]);
                    sums[index] = simd.mul_add_e_f32s(weight, value, sums[index]);
                }
            }
        }
        for index in 0..count % W {
            let value = values.registers::<S, V>(turns * W + index)[register];
            for (query, sums) in queries.iter().zip(&mut sums) {
                let weight = simd.splat_f32s(query.weights[turns * W + index]);
                sums[index] = simd.mul_add_e_f32s(weight, value, sums[index]);
            }
        }
        for (query, sums) in queries.iter_mut().zip(sums) {
            let mut sum = sums[0];
            for &other in &sums[1..] {
                sum = simd.add_f32s(sum, other);
            }
            let factor = simd.splat_f32s(query.factor);
            S::as_mut_simd_f32s(query.out).0[register] = simd.mul_f32s(sum, factor);
        }
    }
}

/// [`weighed`] for any number of registers and a remainder, one after the other.
#[inline(always)]
fn weighed_by_parts<S: Simd, P: Places>(
    simd: S,
    Weighed { weights, factor, out }: Weighed<'_, '_>,
    values: Vectors<'_, P>,
) {
    let (out, out_rest) = S::as_mut_simd_f32s(out);
    let factor = simd.splat_f32s(factor);
    for (register, out) in out.iter_mut().enumerate() {
        let mut sum = simd.splat_f32s(0.0);
        for (place, &weight) in weights.iter().enumerate() {
            sum = simd.mul_add_e_f32s(
                simd.splat_f32s(weight),
                S::as_simd_f32s(values.at(place)).0[register],
                sum,
            );
        }
        *out = simd.mul_f32s(sum, factor);
    }
    if !out_rest.is_empty() {
        let mut sum = simd.splat_f32s(0.0);
        for (place, &weight) in weights.iter().enumerate() {
            sum = simd.mul_add_e_f32s(
                simd.splat_f32s(weight),
                simd.partial_load_f32s(S::as_simd_f32s(values.at(place)).1),
                sum,
            );
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
        sum = simd.mul_add_e_f32s(
            simd.partial_load_f32s(a_rest),
            simd.partial_load_f32s(b_rest),
            sum,
        );
    }
    simd.reduce_sum_f32s(sum)
}

/// Whether [`added`] is implemented for this instruction set.
#[inline(always)]
const fn adds_across<S: Simd>() -> bool {
    cfg!(target_arch = "x86_64") && (S::F32_LANES == 8 || S::F32_LANES == 16)
}

/// The four sums of each 128 bits of the four registers.
#[inline(always)]
fn four_sums<S: Simd>(simd: S, [a, b, c, d]: [S::f32s; 4]) -> S::f32s {
    added::<S, 64>(simd, added::<S, 32>(simd, a, b), added::<S, 32>(simd, c, d))
}

/// The sums of the 128-bit parts of each register, one register after the other; as many registers
/// are read as one has 128-bit parts.
#[inline(always)]
fn joined<S: Simd>(simd: S, [a, b, c, d]: [S::f32s; 4]) -> S::f32s {
    let ab = added::<S, 128>(simd, a, b);
    if S::F32_LANES == 8 { ab } else { added::<S, 128>(simd, ab, added::<S, 128>(simd, c, d)) }
}

/// Adds neighbouring parts of `BITS` bits of a register: the sums of `a` and of `b` alternate if
/// parts are smaller than 128 bits, otherwise those of `a` come first.
#[inline(always)]
fn added<S: Simd, const BITS: usize>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        use std::mem::transmute_copy as cast;
        // SAFETY: registers of this many numbers are those of the set, which the processor has.
        let [first, second]: [S::f32s; 2] = unsafe {
            match (S::F32_LANES, BITS) {
                (16, 32) => cast(&[
                    _mm512_unpacklo_ps(cast(&a), cast(&b)),
                    _mm512_unpackhi_ps(cast(&a), cast(&b)),
                ]),
                (16, 64) => cast(&[
                    _mm512_unpacklo_pd(cast(&a), cast(&b)),
                    _mm512_unpackhi_pd(cast(&a), cast(&b)),
                ]),
                (16, 128) => cast(&[
                    _mm512_shuffle_f32x4::<0x88>(cast(&a), cast(&b)),
                    _mm512_shuffle_f32x4::<0xdd>(cast(&a), cast(&b)),
                ]),
                (8, 32) => cast(&[
                    _mm256_unpacklo_ps(cast(&a), cast(&b)),
                    _mm256_unpackhi_ps(cast(&a), cast(&b)),
                ]),
                (8, 64) => cast(&[
                    _mm256_unpacklo_pd(cast(&a), cast(&b)),
                    _mm256_unpackhi_pd(cast(&a), cast(&b)),
                ]),
                (8, 128) => cast(&[
                    _mm256_permute2f128_ps::<0x20>(cast(&a), cast(&b)),
                    _mm256_permute2f128_ps::<0x31>(cast(&a), cast(&b)),
                ]),
                _ => unreachable!("adds_across: no registers of {} numbers", S::F32_LANES),
            }
        };
        simd.add_f32s(first, second)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (simd, a, b);
        unreachable!("adds_across: no registers of {} numbers", S::F32_LANES)
    }
}
