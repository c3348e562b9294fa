//! The two sums of attention: products of a query with keys, and values by their weights.
//!
//! Both process vectors of `d_k` numbers, which usually are a few whole registers: `V` of them, or
//! 0. A number is summed in the same order regardless of the number of positions.

use crate::prefetch::prefetch;
use crate::stored::Stored;
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
pub(super) struct Vectors<'v, P, N> {
    pub(super) numbers: &'v [N],
    pub(super) places: P,
    pub(super) d_k: usize,
}

impl<'v, P: Places, N: Stored> Vectors<'v, P, N> {
    #[inline(always)]
    pub(super) fn at(self, place: usize) -> &'v [N] {
        &self.numbers[self.places.start(place)..][..self.d_k]
    }

    /// The numbers of one register of a position.
    #[inline(always)]
    fn register<S: Simd>(self, simd: S, place: usize, register: usize) -> S::f32s {
        let numbers = &self.at(place)[register * S::F32_LANES..][..S::F32_LANES];
        // SAFETY: a register of numbers.
        unsafe { N::load(simd, numbers.as_ptr()) }
    }

    /// The numbers behind the whole registers of a position, in a register that ends with zeros.
    #[inline(always)]
    fn rest<S: Simd>(self, simd: S, place: usize) -> S::f32s {
        let numbers = &self.at(place)[self.d_k / S::F32_LANES * S::F32_LANES..];
        simd.partial_load_f32s(N::floats(numbers, &mut [0.0; MOST_LANES]))
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
        for (register, sum) in sums.iter_mut().enumerate() {
            *sum = simd.mul_add_e_f32s(weight, self.register(simd, place, register), *sum);
        }
    }
}

/// Numbers of the widest register.
const MOST_LANES: usize = 16;

/// Number of positions between a key that is read and the key that is prefetched. Of heads with
/// fewer positions, those of the next sentence are prefetched together.
pub(super) const FAR: usize = 32;

/// The memory that is read after a key of a head with many positions: its later keys and its
/// values, then the keys of the next head.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'v, P, N> {
    pub(super) keys: Vectors<'v, P, N>,
    pub(super) values: Vectors<'v, P, N>,
    pub(super) next: Vectors<'v, P, N>,
}

impl<P: Places, N: Stored> Ahead<'_, P, N> {
    #[inline(always)]
    fn ask(self, place: usize, count: usize) {
        let later = place + FAR;
        prefetch(if later < count { self.keys.at(later) } else { self.next.at(later - count) });
        prefetch(self.values.at(place));
    }
}

/// Writes the products of `Q` queries with the key of each of `count` positions; the queries share
/// what is read of a key. Scores, `[Q, wide]`, are whole registers; those behind the last position
/// are arbitrary.
#[allow(clippy::needless_range_loop, reason = "iterators were not inlined here: 1.4 times slower")]
#[inline(always)]
pub(super) fn products<S: Simd, P: Places, N: Stored, const V: usize, const Q: usize>(
    simd: S,
    queries: [&[f32]; Q],
    keys: Vectors<'_, P, N>,
    count: usize,
    ahead: Option<Ahead<'_, P, N>>,
    scores: &mut [f32],
) {
    let wide = scores.len() / Q;
    if const { V == 0 || !adds_across::<S>() } {
        for place in 0..count {
            if let Some(ahead) = ahead {
                ahead.ask(place, count);
            }
            for (index, query) in queries.into_iter().enumerate() {
                scores[index * wide + place] = dot(simd, query, keys, place);
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
                // Several queries do not fit into 16 registers: two keys share what is read of them.
                if const { S::F32_LANES == 8 && Q > 1 } {
                    for pair in 0..2 {
                        let places = [0, 1].map(|key| (first + pair * 2 + key).min(count - 1));
                        if let Some(ahead) = ahead {
                            ahead.ask(places[0], count);
                            ahead.ask(places[1], count);
                        }
                        let sums = of_two_keys::<S, P, N, V, Q>(simd, queries, keys, places);
                        for query in 0..Q {
                            parts[query][pair * 2] = sums[query][0];
                            parts[query][pair * 2 + 1] = sums[query][1];
                        }
                    }
                } else {
                    for part in 0..4 {
                        let place = (first + part).min(count - 1);
                        if let Some(ahead) = ahead {
                            ahead.ask(place, count);
                        }
                        let mut sums = [simd.splat_f32s(0.0); Q];
                        for register in 0..V {
                            let key = keys.register(simd, place, register);
                            for query in 0..Q {
                                sums[query] =
                                    simd.mul_add_e_f32s(queries[query][register], key, sums[query]);
                            }
                        }
                        for query in 0..Q {
                            parts[query][part] = sums[query];
                        }
                    }
                }
                for query in 0..Q {
                    fours[query][four] = four_sums(simd, parts[query]);
                }
            }
        }
        for (query, fours) in fours.into_iter().enumerate() {
            scores[query * wide + index] = joined(simd, fours);
        }
    }
}

/// The products of `Q` queries with the keys of two positions, still to be summed across registers.
#[allow(clippy::needless_range_loop, reason = "as in `products`")]
#[inline(always)]
fn of_two_keys<S: Simd, P: Places, N: Stored, const V: usize, const Q: usize>(
    simd: S,
    queries: [&[S::f32s; V]; Q],
    keys: Vectors<'_, P, N>,
    places: [usize; 2],
) -> [[S::f32s; 2]; Q] {
    let mut sums = [[simd.splat_f32s(0.0); 2]; Q];
    for register in 0..V {
        let here =
            [keys.register(simd, places[0], register), keys.register(simd, places[1], register)];
        for query in 0..Q {
            for key in 0..2 {
                sums[query][key] =
                    simd.mul_add_e_f32s(queries[query][register], here[key], sums[query][key]);
            }
        }
    }
    sums
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
pub(super) fn weighed<S: Simd, P: Places, N: Stored, const V: usize, const W: usize>(
    simd: S,
    query: Weighed<'_, '_>,
    values: Vectors<'_, P, N>,
) {
    if const { V == 0 } {
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
#[allow(clippy::needless_range_loop, reason = "iterators were not inlined here: 1.4 times slower")]
#[inline(always)]
pub(super) fn weighed_together<
    S: Simd,
    P: Places,
    N: Stored,
    const V: usize,
    const W: usize,
    const Q: usize,
>(
    simd: S,
    mut queries: [Weighed<'_, '_>; Q],
    values: Vectors<'_, P, N>,
) {
    // The sums of all registers would not fit into those of the processor. Two registers of eight
    // numbers are a line of the cache; their sums leave 6 of 16 registers for what is read.
    if const { S::F32_LANES == 8 && V.is_multiple_of(2) && Q * W <= 5 } {
        for pair in 0..V / 2 {
            weighed_registers::<S, P, N, W, Q, 2>(simd, &mut queries, values, pair * 2);
        }
    } else {
        for register in 0..V {
            weighed_registers::<S, P, N, W, Q, 1>(simd, &mut queries, values, register);
        }
    }
}

/// [`weighed_together`] for `R` registers from the first.
#[allow(clippy::needless_range_loop, reason = "as in `products`")]
#[inline(always)]
fn weighed_registers<
    S: Simd,
    P: Places,
    N: Stored,
    const W: usize,
    const Q: usize,
    const R: usize,
>(
    simd: S,
    queries: &mut [Weighed<'_, '_>; Q],
    values: Vectors<'_, P, N>,
    first: usize,
) {
    let count = queries[0].weights.len();
    let weights: [&[f32]; Q] = std::array::from_fn(|query| &queries[query].weights[..count]);
    let mut sums = [[[simd.splat_f32s(0.0); R]; Q]; W];
    let turns = count / W;
    for turn in 0..turns {
        for index in 0..W {
            let place = turn * W + index;
            add::<S, P, N, Q, R>(simd, weights, values, [place, first], &mut sums[index]);
        }
    }
    for index in 0..count % W {
        let place = turns * W + index;
        add::<S, P, N, Q, R>(simd, weights, values, [place, first], &mut sums[index]);
    }
    for (index, query) in queries.iter_mut().enumerate() {
        let factor = simd.splat_f32s(query.factor);
        for register in 0..R {
            let mut sum = sums[0][index][register];
            for other in &sums[1..] {
                sum = simd.add_f32s(sum, other[index][register]);
            }
            S::as_mut_simd_f32s(query.out).0[first + register] = simd.mul_f32s(sum, factor);
        }
    }
}

/// Adds `R` registers of the value of a position, from the first, to the sum of each query.
#[allow(clippy::needless_range_loop, reason = "as in `products`")]
#[inline(always)]
fn add<S: Simd, P: Places, N: Stored, const Q: usize, const R: usize>(
    simd: S,
    weights: [&[f32]; Q],
    values: Vectors<'_, P, N>,
    [place, first]: [usize; 2],
    sums: &mut [[S::f32s; R]; Q],
) {
    let mut here = [simd.splat_f32s(0.0); R];
    for register in 0..R {
        here[register] = values.register(simd, place, first + register);
    }
    for query in 0..Q {
        let weight = simd.splat_f32s(weights[query][place]);
        for register in 0..R {
            sums[query][register] =
                simd.mul_add_e_f32s(weight, here[register], sums[query][register]);
        }
    }
}

/// [`weighed`] for any number of registers and a remainder, one after the other.
#[inline(always)]
fn weighed_by_parts<S: Simd, P: Places, N: Stored>(
    simd: S,
    Weighed { weights, factor, out }: Weighed<'_, '_>,
    values: Vectors<'_, P, N>,
) {
    let (out, out_rest) = S::as_mut_simd_f32s(out);
    let factor = simd.splat_f32s(factor);
    for (register, out) in out.iter_mut().enumerate() {
        let mut sum = simd.splat_f32s(0.0);
        for (place, &weight) in weights.iter().enumerate() {
            let value = values.register(simd, place, register);
            sum = simd.mul_add_e_f32s(simd.splat_f32s(weight), value, sum);
        }
        *out = simd.mul_f32s(sum, factor);
    }
    if !out_rest.is_empty() {
        let mut sum = simd.splat_f32s(0.0);
        for (place, &weight) in weights.iter().enumerate() {
            sum = simd.mul_add_e_f32s(simd.splat_f32s(weight), values.rest(simd, place), sum);
        }
        simd.partial_store_f32s(out_rest, simd.mul_f32s(sum, factor));
    }
}

#[inline(always)]
fn dot<S: Simd, P: Places, N: Stored>(
    simd: S,
    query: &[f32],
    keys: Vectors<'_, P, N>,
    place: usize,
) -> f32 {
    let (query, rest) = S::as_simd_f32s(query);
    let mut sum = simd.splat_f32s(0.0);
    for (register, &query) in query.iter().enumerate() {
        sum = simd.mul_add_e_f32s(query, keys.register(simd, place, register), sum);
    }
    if !rest.is_empty() {
        sum = simd.mul_add_e_f32s(simd.partial_load_f32s(rest), keys.rest(simd, place), sum);
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
