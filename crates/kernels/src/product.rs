//! Products of rows with packed weights: `out = x Wᵀ + bias`.
//!
//! `x: [n, inputs]`, `W: [outputs, inputs]`, `out: [n, outputs]`. Weights are in panels of as many
//! columns as two vectors have, input after input, so that they are read once, in order. Every
//! number is one sum over the inputs in their order, so the result of a row is bit for bit the same
//! in every batch. Many rows are multiplied by tiles where the processor has them: with other bits,
//! which are the same in every batch of many rows.
//!
//! Weights that half precision represents exactly, as those of a checkpoint in half precision, are
//! kept in it: half the memory to read, and the same results.

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod tiles;

use crate::instructions::arch;
use crate::panels::{Lines, Tiles, panels_of, tiles};
use crate::parallel::{Parallel, Shared, by_columns};
use crate::prefetch::ask;
use crate::stored::{Stored, converts_halves, exact_halves};
use half::f16;
use pulp::{NullaryFnOnce, Simd, WithSimd};
use std::ops::Range;

/// Vectors of a panel.
pub(crate) const WIDE: usize = 2;

/// Weights of a layer.
#[derive(Debug)]
pub struct Weights {
    pub(crate) panels: Panels,
    /// The bias of every column of the panels.
    bias: Vec<f32>,
    inputs: usize,
    outputs: usize,
    /// Number of columns of a panel.
    pub(crate) columns: usize,
    /// The largest length of an output's weights; infinite or NaN if a weight is.
    pub(crate) longest: f32,
}

/// `[panels, inputs, columns of a panel]`
#[derive(Debug)]
pub(crate) enum Panels {
    Floats(Lines<f32>),
    Halves(Lines<f16>),
}

impl Weights {
    /// Packs weights: `fill` writes the row `[inputs]` of an output. Without `bias`, zeros are
    /// added.
    ///
    /// # Panics
    /// If the bias has another length than `outputs`.
    pub fn pack(
        inputs: usize,
        outputs: usize,
        mut fill: impl FnMut(usize, &mut [f32]),
        bias: Option<&[f32]>,
    ) -> Self {
        Self::packed([inputs, outputs], columns_of_panels(), &mut fill, bias)
    }

    fn packed(
        [inputs, outputs]: [usize; 2],
        columns: usize,
        fill: &mut dyn FnMut(usize, &mut [f32]),
        given: Option<&[f32]>,
    ) -> Self {
        let n_panels = outputs.div_ceil(columns);
        let len = n_panels * inputs * columns;
        let (mut bias, mut row) = (vec![0.0; n_panels * columns], vec![0.0; inputs]);
        let place = |output: usize| output / columns * inputs * columns + output % columns;
        let mut longest = 0.0_f32;
        let mut fill = |output: usize, row: &mut [f32]| {
            fill(output, row);
            let length = length(row);
            longest = if length > longest || length.is_nan() { length } else { longest };
        };
        let mut halves = converts_halves(columns / WIDE).then(|| Lines::<f16>::zeros(len));
        // The output whose row is filled, the first that half precision does not represent.
        let mut first = 0;
        if let Some(panels) = &mut halves {
            let (mut rounded, mut back) = (vec![f16::ZERO; inputs], vec![0.0; inputs]);
            while first < outputs {
                fill(first, &mut row);
                if !exact_halves(&row, &mut rounded, &mut back) {
                    break;
                }
                put(
                    &rounded,
                    panels.all_mut().get_mut(place(first)..).unwrap_or_default(),
                    columns,
                );
                first += 1;
            }
        }
        if let Some(given) = given {
            bias[..outputs].copy_from_slice(given);
        }
        let panels = match halves {
            Some(halves) if first == outputs => Panels::Halves(halves),
            halves => {
                let mut floats = Lines::zeros(len);
                let all = floats.all_mut();
                if let Some(halves) = halves {
                    all.iter_mut().zip(halves.all()).for_each(|(to, half)| *to = half.to_f32());
                }
                for output in first..outputs {
                    fill(output, &mut row);
                    put(&row, all.get_mut(place(output)..).unwrap_or_default(), columns);
                }
                Panels::Floats(floats)
            }
        };
        Self { panels, bias, inputs, outputs, columns, longest }
    }

    /// Width of the rows that are multiplied.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Width of the product's rows.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// `out = x Wᵀ + bias`
    ///
    /// # Panics
    /// If a length does not match its dimensions.
    pub fn multiply(&self, x: &[f32], out: &mut [f32], threads: &dyn Parallel) {
        self.multiply_columns(x, 0..self.outputs, out, threads);
    }

    /// Some columns of the product: `out: [n, columns]`, bit for bit as in the whole product.
    ///
    /// # Panics
    /// If a length does not match its dimensions, or the columns begin or end within a panel;
    /// panels have at most 64 columns.
    pub fn multiply_columns(
        &self,
        x: &[f32],
        columns: Range<usize>,
        out: &mut [f32],
        threads: &dyn Parallel,
    ) {
        let (inputs, panels) = (self.inputs, panels_of(&columns, self.outputs, self.columns));
        let n = out.len() / columns.len().max(1);
        assert_eq!(
            [x.len(), out.len()],
            [n * inputs, n * columns.len()],
            "[n, inputs] and [n, columns]"
        );
        let out = Shared::new(out);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if tiles::fit(n, inputs) && self.columns == crate::tiles::BLOCK {
            return by_columns(threads, [n, inputs, panels.len()], |panels| {
                // SAFETY: tiles are usable.
                unsafe {
                    match &self.panels {
                        Panels::Floats(all) => {
                            tiles::multiply(self.view(all.all(), &columns), (x, n), &out, panels);
                        }
                        Panels::Halves(all) => {
                            tiles::multiply(self.view(all.all(), &columns), (x, n), &out, panels);
                        }
                    }
                }
            });
        }
        let strides = [inputs, columns.len()];
        by_columns(threads, [n, inputs, panels.len()], |panels| match &self.panels {
            Panels::Floats(all) => {
                let weights = self.view(all.all(), &columns);
                f32::dispatch(Multiply::new(weights, x, strides, &out, n, panels));
            }
            Panels::Halves(all) => {
                let weights = self.view(all.all(), &columns);
                f16::dispatch(Multiply::new(weights, x, strides, &out, n, panels));
            }
        });
    }

    pub(crate) fn view<'a, N>(&'a self, all: &'a [N], columns: &Range<usize>) -> Packed<'a, N> {
        let Range { start, end } = panels_of(columns, self.outputs, self.columns);
        Packed {
            panels: &all[start * self.inputs * self.columns..end * self.inputs * self.columns],
            bias: &self.bias[start * self.columns..end * self.columns],
            inputs: self.inputs,
            outputs: columns.len(),
        }
    }
}

/// The columns of a panel on this processor.
pub(crate) fn columns_of_panels() -> usize {
    arch().dispatch(Columns)
}

/// The length of a vector.
pub(crate) fn length(row: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut squares = [0.0; LANES];
    for some in row.chunks(LANES) {
        squares.iter_mut().zip(some).for_each(|(square, number)| *square += number * number);
    }
    squares.iter().sum::<f32>().sqrt()
}

/// Writes the weights of an output to its column of a panel.
fn put<N: Copy>(row: &[N], panel: &mut [N], columns: usize) {
    panel.iter_mut().step_by(columns).zip(row).for_each(|(place, &weight)| *place = weight);
}

/// The columns of a panel on this processor.
struct Columns;

impl WithSimd for Columns {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        WIDE * S::F32_LANES
    }
}

/// Panels of [`WIDE`] vectors, as in [`Weights`].
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a, N = f32> {
    /// `[panels, inputs, columns of a panel]`
    pub(crate) panels: &'a [N],
    /// The bias of every column of the panels.
    pub(crate) bias: &'a [f32],
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
}

/// Some panels of a product.
pub(crate) struct Multiply<'a, N = f32> {
    pub(crate) weights: Packed<'a, N>,
    pub(crate) x: &'a [f32],
    /// The distances between rows of `x` and of `out`.
    pub(crate) strides: [usize; 2],
    pub(crate) out: &'a Shared<'a, f32>,
    /// The start of the first row in `out`.
    pub(crate) start: usize,
    pub(crate) n: usize,
    pub(crate) panels: Range<usize>,
    /// Whether the product is added to what `out` contains.
    pub(crate) adds: bool,
}

impl<'a, N> Multiply<'a, N> {
    /// Some panels of a product that is all of `out`.
    pub(crate) fn new(
        weights: Packed<'a, N>,
        x: &'a [f32],
        strides: [usize; 2],
        out: &'a Shared<'a, f32>,
        n: usize,
        panels: Range<usize>,
    ) -> Self {
        Self { weights, x, strides, out, start: 0, n, panels, adds: false }
    }
}

impl<N: Stored> WithSimd for Multiply<'_, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Packed { panels, bias, inputs, .. } = self.weights;
        assert_eq!(panels.len(), bias.len() * inputs, "whole panels");
        assert_eq!(bias.len() % (WIDE * S::F32_LANES), 0, "packed for this processor");
        N::vectorize(simd, Block { work: &self, simd });
    }
}

struct Block<'w, 'a, S, N> {
    work: &'w Multiply<'a, N>,
    simd: S,
}

/// Compiled once for an instruction set, not in each caller.
impl<S: Simd, N: Stored> NullaryFnOnce for Block<'_, '_, S, N> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let &Multiply { n, weights, ref panels, .. } = self.work;
        tiles(n, weights.inputs * size_of::<f32>(), panels.clone(), self);
    }
}

impl<S: Simd, N: Stored> Tiles for Block<'_, '_, S, N> {
    /// Registers for sums, in addition to weights and a number of the row.
    const MOST: usize = match S::F32_LANES {
        1 => 4,
        8 => 6,
        _ => 12,
    };

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.work.weights.inputs * WIDE * S::F32_LANES * size_of::<N>()
    }

    #[allow(clippy::needless_range_loop, reason = "constant places keep sums in registers")]
    #[inline(always)]
    fn tile<const ROWS: usize, const PANELS: usize>(&self, row: usize, panel: usize, ahead: usize) {
        let (
            simd,
            &Multiply {
                weights, x, strides: [x_stride, out_stride], out, start: begin, adds, ..
            },
        ) = (self.simd, self.work);
        let (Packed { panels, bias, inputs, outputs }, columns) = (weights, WIDE * S::F32_LANES);
        let x = &x[row * x_stride..][..(ROWS - 1) * x_stride + inputs];
        let packed = &panels[panel * inputs * columns..][..PANELS * inputs * columns];
        let bias = S::as_simd_f32s(&bias[panel * columns..][..PANELS * columns]).0;
        let mut sums = [[[simd.splat_f32s(0.0); WIDE]; PANELS]; ROWS];
        // The place of a vector of sums in `out`, and how many of its numbers exist.
        let place = |row_of_tile: usize, vector: usize| {
            let start = panel * columns + vector * S::F32_LANES;
            let n = outputs.saturating_sub(start).min(S::F32_LANES);
            (begin + (row + row_of_tile) * out_stride + start.min(outputs), n)
        };
        for input in 0..inputs {
            let mut here = [[simd.splat_f32s(0.0); WIDE]; PANELS];
            if PANELS == 1 {
                for half in 0..WIDE {
                    let at = (input * WIDE + half) * S::F32_LANES;
                    ask(packed.as_ptr().wrapping_add(at).wrapping_byte_add(ahead));
                }
            }
            for panel in 0..PANELS {
                for half in 0..WIDE {
                    let at = ((panel * inputs + input) * WIDE + half) * S::F32_LANES;
                    // SAFETY: there are `inputs` times `WIDE` vectors in each of the `PANELS`
                    // panels.
                    here[panel][half] = unsafe { N::load(simd, packed.as_ptr().add(at)) };
                }
            }
            for row in 0..ROWS {
                // SAFETY: there are `ROWS` rows of `inputs` numbers.
                let number = simd.splat_f32s(unsafe { *x.get_unchecked(row * x_stride + input) });
                for place in 0..PANELS {
                    for half in 0..WIDE {
                        sums[row][place][half] =
                            simd.mul_add_e_f32s(number, here[place][half], sums[row][place][half]);
                    }
                }
            }
        }
        // With constant indices, so that sums stay in registers until here.
        let mut done = sums;
        for row in 0..ROWS {
            for place in 0..PANELS {
                for half in 0..WIDE {
                    done[row][place][half] =
                        simd.add_f32s(sums[row][place][half], bias[place * WIDE + half]);
                }
            }
        }
        for (index, done) in done.iter().enumerate() {
            for (vector, &numbers) in done.as_flattened().iter().enumerate() {
                let (start, n) = place(index, vector);
                // SAFETY: each thread has its own columns.
                let to = unsafe { out.part(start, n) };
                // Here, because sums that begin with loaded numbers do not stay in registers.
                if n == S::F32_LANES {
                    let to = &mut S::as_mut_simd_f32s(to).0[0];
                    *to = if adds { simd.add_f32s(*to, numbers) } else { numbers };
                } else {
                    let numbers = match adds {
                        true => simd.add_f32s(simd.partial_load_f32s(to), numbers),
                        false => numbers,
                    };
                    simd.partial_store_f32s(to, numbers);
                }
            }
        }
    }
}
