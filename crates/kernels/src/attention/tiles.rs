//! Attention of many queries by tiles (AMX): as [`Blocks`](super::blocks::Blocks), with keys, values
//! and weights that are split into numbers of bfloat16.

use super::Attention;
use super::blocks::HeadPanels;
use super::one::Read;
use crate::panels::Lines;
use crate::product::tiles::{fit, split_rows, split_weights, sum};
use crate::split::{PARTS, TILE, WIDTH};
use crate::stored::Stored;
use crate::tiles::{BLOCK, Configured};
use pulp::{Simd, WithSimd};

/// [`Attention::read`] for some heads.
pub(super) struct TileBlocks<'a, 'm, N>(Read<'a, 'm, N>);

impl<'a, 'm, N: Stored> TileBlocks<'a, 'm, N> {
    /// `Err` with what is faster otherwise.
    pub(super) fn new(read: Read<'a, 'm, N>) -> Result<Self, Read<'a, 'm, N>> {
        let is_fit = fit(read.n, read.attention.d_k) && read.memory.places >= BLOCK;
        if is_fit { Ok(Self(read)) } else { Err(read) }
    }
}

/// Number of `u16` of rows or columns of a block with this many inputs.
fn length(inputs: usize) -> usize {
    inputs.div_ceil(WIDTH) * PARTS * WIDTH * BLOCK
}

impl<N: Stored> WithSimd for TileBlocks<'_, '_, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if const { S::F32_LANES < 16 } {
            unreachable!("processors with AMX have AVX-512");
        }
        let Self(read) = self;
        let (&Attention { d_k, .. }, memory) = (read.attention, read.memory);
        let places = memory.places;
        let mut head_panels = HeadPanels::new([places, d_k], BLOCK);
        let HeadPanels { wide, deep, .. } = head_panels;
        let [of_keys, of_values] = [length(d_k), length(places)];
        let mut keys = Lines::zeros(wide / BLOCK * of_keys);
        let mut values = Lines::zeros(deep / BLOCK * of_values);
        let (mut queries, mut weights) = (Lines::zeros(of_keys), Lines::zeros(of_values));
        let mut scores = vec![0.0; BLOCK * wide];
        let mut products: Lines<f32> = Lines::zeros(BLOCK * BLOCK);
        let halves = |rows: &Lines<u16>, inputs: usize| {
            [0, inputs.div_ceil(WIDTH) * PARTS * TILE].map(|start| rows.all()[start..].as_ptr())
        };
        for head in read.heads.clone() {
            head_panels.fill(memory, read.attention.key_head(head));
            // SAFETY: tiles are usable, which the constructor has checked; there are as many tiles
            // as are read.
            unsafe {
                for (panel, to) in keys.all_mut().chunks_exact_mut(of_keys).enumerate() {
                    split_weights(&head_panels.keys(), panel, 0..d_k.next_multiple_of(WIDTH), to);
                }
                for (panel, to) in values.all_mut().chunks_exact_mut(of_values).enumerate() {
                    let some = 0..places.next_multiple_of(WIDTH);
                    split_weights(&head_panels.values(), panel, some, to);
                }
                let configured = Configured::new();
                for first in (0..read.n).step_by(BLOCK) {
                    let n = (read.n - first).min(BLOCK);
                    let x = &read.queries[first * read.stride + head * d_k..];
                    split_rows((x, read.stride), [n, d_k], queries.all_mut());
                    for (panel, keys) in keys.all().chunks_exact(of_keys).enumerate() {
                        let count = d_k.div_ceil(WIDTH);
                        let x = halves(&queries, d_k);
                        sum::<f32>(x, keys.as_ptr(), count, products.all_mut(), true);
                        let rows = products.all().as_chunks::<BLOCK>().0;
                        for (to, row) in scores.chunks_exact_mut(wide).zip(rows).take(n) {
                            to[panel * BLOCK..][..BLOCK].copy_from_slice(row);
                        }
                    }
                    let mut sums = [0.0; BLOCK];
                    for ((index, sum), scores) in
                        sums[..n].iter_mut().enumerate().zip(scores.chunks_exact_mut(wide))
                    {
                        let place = [head, first + index];
                        *sum = memory.weights(simd, place, read.attention, scores);
                        read.put(place, &scores[..places], 1.0 / *sum);
                    }
                    split_rows((&scores, wide), [n, places], weights.all_mut());
                    for (panel, values) in values.all().chunks_exact(of_values).enumerate() {
                        let count = places.div_ceil(WIDTH);
                        let x = halves(&weights, places);
                        sum::<f32>(x, values.as_ptr(), count, products.all_mut(), true);
                        let (start, end) = (panel * BLOCK, d_k.min((panel + 1) * BLOCK));
                        let rows = products.all().as_chunks::<BLOCK>().0;
                        for ((index, row), sum) in rows.iter().enumerate().zip(&sums).take(n) {
                            let place = read.place_of([head, first + index]);
                            // Each thread has its own heads.
                            let out = read.context.part(place + start, end - start);
                            out.iter_mut()
                                .zip(row)
                                .for_each(|(out, number)| *out = number * (1.0 / sum));
                        }
                    }
                }
                drop(configured);
            }
        }
    }
}
