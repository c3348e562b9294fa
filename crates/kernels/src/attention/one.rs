//! Attention query by query.

use super::sums::{
    Ahead, Even, FAR, Places, Vectors, Weighed, products, weighed, weighed_together,
};
use super::{Attention, Memory, Step, distances, exponentials, sum};
use crate::parallel::Shared;
use crate::prefetch::prefetch_behind;
use crate::stored::Stored;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Number of scores with preallocated memory.
const FEW: usize = 512;

/// [`Attention::read`] for some heads.
pub(super) struct Read<'a, 'm, N> {
    pub(super) attention: &'a Attention,
    pub(super) queries: &'a [f32],
    pub(super) stride: usize,
    pub(super) memory: &'a Memory<'m, N>,
    pub(super) n: usize,
    pub(super) heads: Range<usize>,
    pub(super) context: &'a Shared<'a, f32>,
    pub(super) weights: Option<&'a Shared<'a, f32>>,
}

impl<N: Stored> Read<'_, '_, N> {
    /// The query of a head.
    #[inline(always)]
    pub(super) fn query(&self, [head, index]: [usize; 2]) -> &[f32] {
        let d_k = self.attention.d_k;
        &self.queries[index * self.stride + head * d_k..][..d_k]
    }

    /// Writes the weights of a head, if they are requested: exponentials times a factor.
    #[inline(always)]
    pub(super) fn put(&self, [head, index]: [usize; 2], exponentials: &[f32], factor: f32) {
        let Some(weights) = self.weights else { return };
        let start = (index * self.attention.heads + head) * exponentials.len();
        // SAFETY: each thread has its own heads.
        let weights = unsafe { weights.part(start, exponentials.len()) };
        weights
            .iter_mut()
            .zip(exponentials)
            .for_each(|(weight, exponential)| *weight = exponential * factor);
    }

    /// The position where the result of a head begins.
    #[inline(always)]
    pub(super) fn place_of(&self, [head, index]: [usize; 2]) -> usize {
        (index * self.attention.heads + head) * self.attention.d_k
    }
}

/// Calls a method with the number of registers that contain `d_k` numbers, or 0, and with the
/// number of sums that then fit into registers.
macro_rules! by_registers {
    ($simd:ident, $d_k:expr, $of:ident) => {
        // Without vectors all widths are computed alike.
        if const { S::F32_LANES == 1 } {
            return $of.run::<S, 0, 1>($simd);
        }
        match ($d_k % S::F32_LANES, $d_k / S::F32_LANES) {
            // Few models have narrower heads.
            (0, 2) if const { S::F32_LANES >= 16 } => $of.run::<S, 2, 4>($simd),
            (0, 4) => $of.run::<S, 4, 2>($simd),
            (0, 8) => $of.run::<S, 8, 1>($simd),
            _ => $of.run::<S, 0, 1>($simd),
        }
    };
}

/// Calls a method with the number of queries that share reads as its last constant, if so many
/// share them.
macro_rules! by_count {
    ($count:ident, $of:ident.$method:ident::<$($constant:ident),*>($($argument:expr),*)) => {
        match $count {
            5 if const { most_sharing::<S, V>() >= 5 } => {
                $of.$method::<$($constant,)* 5>($($argument),*)
            }
            4 if const { most_sharing::<S, V>() >= 4 } => {
                $of.$method::<$($constant,)* 4>($($argument),*)
            }
            2 if const { most_sharing::<S, V>() >= 2 } => {
                $of.$method::<$($constant,)* 2>($($argument),*)
            }
            _ => $of.$method::<$($constant,)* 1>($($argument),*),
        }
    };
}

/// The largest number of queries that share reads of vectors of `V` registers.
const fn most_sharing<S: Simd, const V: usize>() -> usize {
    match V {
        0 => 1,
        // Their sums fit into 16 registers only if few are summed at once.
        1 | 2 if S::F32_LANES < 16 => 2,
        _ => 5,
    }
}

impl<N: Stored> WithSimd for Read<'_, '_, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let d_k = self.attention.d_k;
        by_registers!(simd, d_k, self);
    }
}

impl<'m, N: Stored> Read<'_, 'm, N> {
    /// Keys or values of a head.
    #[inline(always)]
    fn of(&self, numbers: &'m [N], head: usize) -> Vectors<'m, Even, N> {
        let strides = self.memory.strides;
        let places =
            Even { first: self.attention.key_head(head) * strides.head, stride: strides.place };
        Vectors { numbers, places, d_k: self.attention.d_k }
    }

    #[inline(always)]
    fn run<S: Simd, const V: usize, const W: usize>(self, simd: S) {
        let places = self.memory.places;
        let (wide, rows) = (places.next_multiple_of(S::F32_LANES), self.heads.len() * self.n);
        let mut room = Room::new(wide, rows, self.n);
        let mut first = 0;
        while first < rows {
            // Rows are independent: computing one does not wait for another.
            let together = room.together.min(rows - first);
            let (mut row, all) = (0, room.scores(together));
            while row < together {
                let count = self.sharing::<S, V>(first + row, together - row);
                let scores = &mut all[row * wide..][..count * wide];
                by_count!(count, self.products::<S, V>(simd, first + row, scores));
                row += count;
            }
            for (row, scores) in all.chunks_exact_mut(wide).enumerate() {
                self.memory.distances(simd, self.at(first + row), self.attention, scores);
            }
            exponentials(all);
            let mut row = 0;
            while row < together {
                let count = self.sharing::<S, V>(first + row, together - row);
                let scores = &all[row * wide..][..count * wide];
                by_count!(count, self.sums::<S, V, W>(simd, first + row, scores));
                row += count;
            }
            first += together;
        }
    }

    /// The number of queries from a row on, among `left`, that read keys and values together.
    #[inline(always)]
    fn sharing<S: Simd, const V: usize>(&self, row: usize, left: usize) -> usize {
        let shared = match left.min(self.n - row % self.n) {
            1 => 1,
            2 | 3 => 2,
            5 => 5,
            _ => 4,
        };
        shared.min(const { most_sharing::<S, V>() })
    }

    /// The products of `Q` queries from a row on with all keys.
    #[inline(always)]
    fn products<S: Simd, const V: usize, const Q: usize>(
        &self,
        simd: S,
        row: usize,
        scores: &mut [f32],
    ) {
        let Memory { keys, values, places, .. } = *self.memory;
        let [head, index] = self.at(row);
        let queries = std::array::from_fn(|query| self.query([head, index + query]));
        let of = |numbers| self.of(numbers, head);
        if places <= FAR {
            let start = self.attention.key_head(head) * self.memory.strides.head;
            for numbers in [keys, values] {
                if let (0, Some(of_head)) =
                    (index, numbers.get(start..start + places * self.attention.d_k))
                {
                    prefetch_behind(of_head, numbers.len());
                }
            }
            return products::<S, _, _, V, Q>(simd, queries, of(keys), places, None, scores);
        }
        let next = (head + 1).min(self.heads.end - 1);
        let ahead = (index == 0).then(|| Ahead {
            keys: of(keys),
            values: of(values),
            next: self.of(keys, next),
        });
        products::<S, _, _, V, Q>(simd, queries, of(keys), places, ahead, scores);
    }

    /// The weighted sums of values for `Q` queries from a row on.
    #[inline(always)]
    fn sums<S: Simd, const V: usize, const W: usize, const Q: usize>(
        &self,
        simd: S,
        row: usize,
        scores: &[f32],
    ) {
        let (places, wide) = (self.memory.places, scores.len() / Q);
        let mut factors = [0.0; Q];
        // Not in a closure, which would be compiled without vector instructions.
        for (query, factor) in factors.iter_mut().enumerate() {
            let scores = &scores[query * wide..][..wide];
            *factor = 1.0 / sum(simd, scores);
            self.put(self.at(row + query), &scores[..places], *factor);
        }
        let queries = std::array::from_fn(|query| Weighed {
            weights: &scores[query * wide..][..places],
            factor: factors[query],
            // SAFETY: each thread has its own heads, and each query its own memory.
            out: unsafe {
                self.context.part(self.place_of(self.at(row + query)), self.attention.d_k)
            },
        });
        let values = self.of(self.memory.values, self.at(row)[0]);
        if const { Q == 1 } {
            for query in queries {
                weighed::<S, _, _, V, W>(simd, query, values);
            }
        } else {
            weighed_together::<S, _, _, V, W, Q>(simd, queries, values);
        }
    }

    /// The head and the query of a row of scores.
    #[inline(always)]
    fn at(&self, row: usize) -> [usize; 2] {
        [self.heads.start + row / self.n, row % self.n]
    }
}

/// Memory for rows of scores.
struct Room {
    few: [f32; FEW],
    many: Vec<f32>,
    wide: usize,
    /// Number of rows that are computed together.
    together: usize,
}

impl Room {
    /// For all rows of `wide` scores if these are few, otherwise for those of a head.
    #[inline(always)]
    fn new(wide: usize, rows: usize, of_head: usize) -> Self {
        let is_small = rows * wide <= FEW;
        let together = if is_small { rows } else { of_head };
        Self {
            few: [0.0; FEW],
            many: if is_small { Vec::new() } else { vec![0.0; together * wide] },
            wide,
            together,
        }
    }

    /// The memory for this number of rows.
    #[inline(always)]
    fn scores(&mut self, rows: usize) -> &mut [f32] {
        let all = if self.many.is_empty() { &mut self.few[..] } else { &mut self.many[..] };
        &mut all[..rows * self.wide]
    }
}

/// [`Attention::step`] with vector instructions.
pub(super) struct StepOfBeams<'a, 's> {
    pub(super) attention: &'a Attention,
    pub(super) step: &'a Step<'s>,
    pub(super) keys: &'a mut [f32],
    pub(super) values: &'a mut [f32],
    pub(super) capacity: usize,
    pub(super) out: &'a mut [f32],
}

impl WithSimd for StepOfBeams<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let d_k = self.attention.d_k;
        by_registers!(simd, d_k, self);
    }
}

/// The positions of a hypothesis in the caches of a sentence, from the first that is read.
#[derive(Clone, Copy)]
struct CachedPlaces<'h> {
    /// The start of each position in the first head.
    starts: &'h [usize],
    /// The start of the head.
    head: usize,
}

impl Places for CachedPlaces<'_> {
    #[inline(always)]
    fn start(self, place: usize) -> usize {
        self.starts[place] + self.head
    }
}

impl StepOfBeams<'_, '_> {
    #[inline(always)]
    fn run<S: Simd, const V: usize, const W: usize>(self, simd: S) {
        let Self { attention, step, keys, values, capacity, out } = self;
        let &Attention { heads, key_heads, d_k, .. } = attention;
        let (width, past, first, longest) = (heads * d_k, step.past, step.first, step.longest);
        for (cache, new, stride) in
            [(&mut *keys, step.key, step.strides[1]), (&mut *values, step.value, step.strides[2])]
        {
            for (index, places) in cache.chunks_exact_mut(capacity * d_k).enumerate() {
                let start = index / key_heads * stride + index % key_heads * d_k;
                copy::<S, V>(&new[start..][..d_k], &mut places[past * d_k..][..d_k]);
            }
        }
        let (n, beams) = (past + 1 - first, out.len() / width);
        let (wide, rows) = (n.next_multiple_of(S::F32_LANES), heads * beams);
        let (keys, values) = (&*keys, &*values);
        let (mut few, mut many) = ([0; FEW], Vec::new());
        let starts = match few.get_mut(..beams * n) {
            Some(few) => few,
            None => {
                many.resize(beams * n, 0);
                &mut many[..]
            }
        };
        for (beam, starts) in starts.chunks_exact_mut(n).enumerate() {
            let holders = &step.holders[beam * longest..][..past][first..];
            for (place, start) in starts.iter_mut().enumerate() {
                let holder = holders.get(place).map_or(beam, |&holder| holder as usize);
                *start = (holder * key_heads * capacity + first + place) * d_k;
            }
        }
        let places_of = |[head, beam]: [usize; 2]| CachedPlaces {
            starts: &starts[beam * n..][..n],
            head: attention.key_head(head) * capacity * d_k,
        };
        let mut room = Room::new(wide, rows, beams);
        let mut start = 0;
        while start < rows {
            let together = room.together.min(rows - start);
            for (row, scores) in room.scores(together).chunks_exact_mut(wide).enumerate() {
                let (head, beam) = ((start + row) / beams, (start + row) % beams);
                let query = &step.query[beam * step.strides[0] + head * d_k..][..d_k];
                let places = places_of([head, beam]);
                let of = |numbers, places| Vectors { numbers, places, d_k };
                if n <= FAR {
                    let head = beam * key_heads + attention.key_head(head);
                    let own = (head * capacity + first) * d_k..(head * capacity + first + n) * d_k;
                    prefetch_behind(&keys[own.clone()], keys.len());
                    prefetch_behind(&values[own], values.len());
                    products::<S, _, _, V, 1>(simd, [query], of(keys, places), n, None, scores);
                    continue;
                }
                let next = places_of([(head + 1).min(heads - 1), beam]);
                let ahead = Ahead {
                    keys: of(keys, places),
                    values: of(values, places),
                    next: of(keys, next),
                };
                products::<S, _, _, V, 1>(simd, [query], of(keys, places), n, Some(ahead), scores);
            }
            for (row, scores) in room.scores(together).chunks_exact_mut(wide).enumerate() {
                let head = (start + row) / beams;
                let (real, filled) = scores.split_at_mut(n);
                attention.score(real);
                if let Some(bias) = step.bias {
                    let bias = &bias[head * (longest + 1) + longest - past + first..];
                    real.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
                }
                filled.fill(f32::NEG_INFINITY);
                distances(simd, scores);
            }
            exponentials(room.scores(together));
            for (row, scores) in room.scores(together).chunks_exact(wide).enumerate() {
                let (head, beam) = ((start + row) / beams, (start + row) % beams);
                let factor = 1.0 / sum(simd, scores);
                let values = Vectors { numbers: values, places: places_of([head, beam]), d_k };
                let out = &mut out[beam * width + head * d_k..][..d_k];
                weighed::<S, _, _, V, W>(
                    simd,
                    Weighed { weights: &scores[..n], factor, out },
                    values,
                );
            }
            start += together;
        }
    }
}

/// Copies a vector, in registers if it consists of whole ones.
#[inline(always)]
fn copy<S: Simd, const V: usize>(from: &[f32], to: &mut [f32]) {
    if V == 0 {
        return to.copy_from_slice(from);
    }
    for (from, to) in S::as_simd_f32s(from).0.iter().zip(S::as_mut_simd_f32s(to).0).take(V) {
        *to = *from;
    }
}
