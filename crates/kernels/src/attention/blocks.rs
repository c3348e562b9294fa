//! Attention of many queries: products of blocks of queries with keys and values that are packed
//! once for each head.

use super::one::Read;
use super::{Attention, Memory};
use crate::panels::Lines;
use crate::parallel::Shared;
use crate::product::{Multiply, Packed, WIDE};
use crate::stored::Stored;
use pulp::{Simd, WithSimd};

/// Number of queries of a block: two tiles, whose scores for 1,500 positions fit into the
/// second-level cache with the packed keys and values.
const QUERIES: usize = 24;

/// [`Attention::read`](super::Attention::read) for some heads.
pub(super) struct Blocks<'a, 'm, N>(pub(super) Read<'a, 'm, N>);

impl<N: Stored> WithSimd for Blocks<'_, '_, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self(read) = self;
        let (&Attention { d_k, heads, .. }, memory) = (read.attention, read.memory);
        let columns = WIDE * S::F32_LANES;
        let mut head_panels = HeadPanels::new([memory.places, d_k], columns);
        let HeadPanels { wide, deep, .. } = head_panels;
        // Rows at distances of a power of 2 would share cache lines.
        let stride = wide + S::F32_LANES;
        let mut scores = vec![0.0; QUERIES.min(read.n) * stride];
        for head in read.heads.clone() {
            head_panels.fill(memory, read.attention.key_head(head));
            for first in (0..read.n).step_by(QUERIES) {
                let n = (read.n - first).min(QUERIES);
                let x = &read.queries[first * read.stride + head * d_k..];
                let made = &Shared::new(&mut scores);
                let panels = 0..wide / columns;
                let (weights, strides) = (head_panels.keys(), [read.stride, stride]);
                Multiply::new(weights, x, strides, made, n, panels).with_simd(simd);
                let mut sums = [0.0; QUERIES];
                for (index, sum) in sums[..n].iter_mut().enumerate() {
                    let scores = &mut scores[index * stride..][..wide];
                    *sum = memory.weights(simd, [head, first + index], read.attention, scores);
                    read.put([head, first + index], &scores[..memory.places], 1.0 / *sum);
                }
                let (out, start) = (read.context, read.place_of([head, first]));
                let (strides, panels) = ([stride, heads * d_k], 0..deep / columns);
                let weights = head_panels.values();
                Multiply { weights, x: &scores, strides, out, start, n, panels, adds: false }
                    .with_simd(simd);
                for (index, sum) in sums[..n].iter().enumerate() {
                    // SAFETY: each thread has its own heads.
                    let row = unsafe { out.part(read.place_of([head, first + index]), d_k) };
                    row.iter_mut().for_each(|number| *number *= 1.0 / sum);
                }
            }
        }
    }
}

/// Keys and values of a head in panels, as weights of products.
pub(super) struct HeadPanels {
    keys: Lines<f32>,
    values: Lines<f32>,
    zeros: Vec<f32>,
    /// Memory for a vector in f32.
    vector: Vec<f32>,
    places: usize,
    d_k: usize,
    columns: usize,
    /// `places` and `d_k`, rounded up to whole panels.
    pub(super) wide: usize,
    pub(super) deep: usize,
}

impl HeadPanels {
    #[inline(always)]
    pub(super) fn new([places, d_k]: [usize; 2], columns: usize) -> Self {
        let [wide, deep] = [places, d_k].map(|size| size.next_multiple_of(columns));
        let (keys, values) = (Lines::zeros(d_k * wide), Lines::zeros(places * deep));
        let (zeros, vector) = (vec![0.0; wide.max(deep)], vec![0.0; d_k]);
        Self { keys, values, zeros, vector, places, d_k, columns, wide, deep }
    }

    /// Packs those of a head.
    #[inline(always)]
    pub(super) fn fill<N: Stored>(&mut self, memory: &Memory<'_, N>, key_head: usize) {
        let Self { places, d_k, columns, .. } = *self;
        let (keys, values) = (self.keys.all_mut(), self.values.all_mut());
        for place in 0..places {
            let (panel, column) = (place / columns, place % columns);
            let into = keys[panel * d_k * columns + column..].iter_mut().step_by(columns);
            let key = memory.vector(memory.keys, [key_head, place], d_k);
            let key = N::floats(key, &mut self.vector);
            into.zip(key).for_each(|(to, &number)| *to = number);
            let value = memory.vector(memory.values, [key_head, place], d_k);
            let value = N::floats(value, &mut self.vector);
            for (panel, part) in value.chunks(columns).enumerate() {
                values[(panel * places + place) * columns..][..part.len()].copy_from_slice(part);
            }
        }
    }

    pub(super) fn keys(&self) -> Packed<'_> {
        let Self { wide, d_k, .. } = *self;
        Packed { panels: self.keys.all(), bias: &self.zeros[..wide], inputs: d_k, outputs: wide }
    }

    pub(super) fn values(&self) -> Packed<'_> {
        let Self { deep, d_k, places, .. } = *self;
        let bias = &self.zeros[..deep];
        Packed { panels: self.values.all(), bias, inputs: places, outputs: d_k }
    }
}
