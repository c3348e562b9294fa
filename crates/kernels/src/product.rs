//! Products of rows with packed weights: `out = x Wᵀ + bias`.
//!
//! `x: [n, inputs]`, `W: [outputs, inputs]`, `out: [n, outputs]`. Weights are in panels of as many
//! columns as two vectors have, input after input, so that they are read once, in order. Every
//! number is one sum over the inputs in their order, so the result of a row is bit for bit the same
//! in every batch.

use crate::panels::{Lines, Tiles, panels_of, tiles};
use crate::parallel::{Parallel, Shared, by_columns};
use crate::prefetch::ask;
use pulp::{Arch, Simd, WithSimd};
use std::ops::Range;

/// Vectors of a panel.
pub(crate) const WIDE: usize = 2;

/// Weights of a layer.
#[derive(Debug)]
pub struct Weights {
    /// `[panels, inputs, columns of a panel]`
    panels: Lines<f32>,
    /// The bias of every column of the panels.
    bias: Vec<f32>,
    inputs: usize,
    outputs: usize,
    /// Number of columns of a panel.
    columns: usize,
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
        fill: impl FnMut(usize, &mut [f32]),
        bias: Option<&[f32]>,
    ) -> Self {
        Self::packed([inputs, outputs], Arch::new().dispatch(Columns), fill, bias)
    }

    fn packed(
        [inputs, outputs]: [usize; 2],
        columns: usize,
        mut fill: impl FnMut(usize, &mut [f32]),
        given: Option<&[f32]>,
    ) -> Self {
        let n_panels = outputs.div_ceil(columns);
        let (mut panels, mut bias) =
            (Lines::zeros(n_panels * inputs * columns), vec![0.0; n_panels * columns]);
        let (all, mut row) = (panels.all_mut(), vec![0.0; inputs]);
        for output in 0..outputs {
            fill(output, &mut row);
            let panel = all[output / columns * inputs * columns..].chunks_exact_mut(columns);
            panel.zip(&row).for_each(|(places, &weight)| places[output % columns] = weight);
        }
        if let Some(given) = given {
            bias[..outputs].copy_from_slice(given);
        }
        Self { panels, bias, inputs, outputs, columns }
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
        let (inputs, panels, weights) =
            (self.inputs, panels_of(&columns, self.outputs, self.columns), self.view(&columns));
        let n = out.len() / columns.len().max(1);
        assert_eq!(
            [x.len(), out.len()],
            [n * inputs, n * columns.len()],
            "[n, inputs] and [n, columns]"
        );
        let (out, strides) = (Shared::new(out), [inputs, columns.len()]);
        by_columns(threads, [n, inputs, panels.len()], |panels| {
            Arch::new().dispatch(Multiply { weights, x, strides, out: &out, start: 0, n, panels });
        });
    }

    fn view(&self, columns: &Range<usize>) -> Packed<'_> {
        let Range { start, end } = panels_of(columns, self.outputs, self.columns);
        let panels = &self.panels.all()
            [start * self.inputs * self.columns..end * self.inputs * self.columns];
        Packed {
            panels,
            bias: &self.bias[start * self.columns..end * self.columns],
            inputs: self.inputs,
            outputs: columns.len(),
        }
    }
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
pub(crate) struct Packed<'a> {
    /// `[panels, inputs, columns of a panel]`
    pub(crate) panels: &'a [f32],
    /// The bias of every column of the panels.
    pub(crate) bias: &'a [f32],
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
}

/// Some panels of a product.
pub(crate) struct Multiply<'a> {
    pub(crate) weights: Packed<'a>,
    pub(crate) x: &'a [f32],
    /// The distances between rows of `x` and of `out`.
    pub(crate) strides: [usize; 2],
    pub(crate) out: &'a Shared<'a, f32>,
    /// The start of the first row in `out`.
    pub(crate) start: usize,
    pub(crate) n: usize,
    pub(crate) panels: Range<usize>,
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Packed { panels, bias, inputs, .. } = self.weights;
        assert_eq!(panels.len(), bias.len() * inputs, "whole panels");
        assert_eq!(bias.len() % (WIDE * S::F32_LANES), 0, "packed for this processor");
        // Registers for sums, in addition to weights and a number of the row.
        let most = if S::F32_LANES == 8 { 6 } else { 12 };
        let panels = self.panels.clone();
        tiles(self.n, inputs * size_of::<f32>(), most, panels, Block { work: &self, simd });
    }
}

struct Block<'w, 'a, S> {
    work: &'w Multiply<'a>,
    simd: S,
}

impl<S: Simd> Tiles for Block<'_, '_, S> {
    #[inline(always)]
    fn bytes(&self) -> usize {
        self.work.weights.inputs * WIDE * size_of::<S::f32s>()
    }

    #[allow(clippy::needless_range_loop, reason = "constant places keep sums in registers")]
    #[inline(always)]
    fn tile<const ROWS: usize, const PANELS: usize>(&self, row: usize, panel: usize, ahead: usize) {
        let (
            simd,
            &Multiply { weights, x, strides: [x_stride, out_stride], out, start: begin, .. },
        ) = (self.simd, self.work);
        let (Packed { panels, bias, inputs, outputs }, columns) = (weights, WIDE * S::F32_LANES);
        let x = &x[row * x_stride..][..(ROWS - 1) * x_stride + inputs];
        let packed =
            S::as_simd_f32s(&panels[panel * inputs * columns..][..PANELS * inputs * columns]).0;
        let bias = S::as_simd_f32s(&bias[panel * columns..][..PANELS * columns]).0;
        let mut sums = [[[simd.splat_f32s(0.0); WIDE]; PANELS]; ROWS];
        for input in 0..inputs {
            let mut here = [[simd.splat_f32s(0.0); WIDE]; PANELS];
            if PANELS == 1 {
                for half in 0..WIDE {
                    ask(packed.as_ptr().wrapping_add(input * WIDE + half).wrapping_byte_add(ahead));
                }
            }
            for place in 0..PANELS {
                for half in 0..WIDE {
                    // SAFETY: there are `inputs` times `WIDE` vectors in each of the `PANELS`
                    // panels.
                    here[place][half] =
                        unsafe { *packed.get_unchecked((place * inputs + input) * WIDE + half) };
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
                let start = panel * columns + vector * S::F32_LANES;
                let n = outputs.saturating_sub(start).min(S::F32_LANES);
                // SAFETY: each thread has its own columns.
                let to =
                    unsafe { out.part(begin + (row + index) * out_stride + start.min(outputs), n) };
                if n == S::F32_LANES {
                    S::as_mut_simd_f32s(to).0[0] = numbers;
                } else {
                    simd.partial_store_f32s(to, numbers);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::Serial;
    use crate::testing::numbers;
    use pulp::Scalar;

    /// Sizes that fill tiles and panels and sizes that do not, compared with f64 and with the same
    /// loops without vectors.
    #[test]
    fn products_are_as_in_f64_and_as_without_vectors() {
        for (n, inputs, outputs) in [
            (1, 64, 256),
            (1, 7, 3),
            (2, 16, 200),
            (5, 31, 33),
            (13, 8, 64),
            (29, 100, 130),
            (0, 4, 4),
            (3, 0, 5),
        ] {
            let (x, weights, bias) =
                (numbers(n * inputs, 1), numbers(inputs * outputs, 2), numbers(outputs, 3));
            let row = |output: usize| &weights[output * inputs..][..inputs];
            let fill = |output: usize, to: &mut [f32]| to.copy_from_slice(row(output));
            for bias in [Some(&*bias), None] {
                let (mut out, mut plain) =
                    (vec![f32::NAN; n * outputs], vec![f32::NAN; n * outputs]);
                Weights::pack(inputs, outputs, fill, bias).multiply(&x, &mut out, &Serial);
                let scalar = Weights::packed([inputs, outputs], WIDE, fill, bias);
                let panels = 0..scalar.bias.len() / WIDE;
                let (weights, strides) = (scalar.view(&(0..outputs)), [inputs, outputs]);
                Multiply {
                    weights,
                    x: &x,
                    strides,
                    out: &Shared::new(&mut plain),
                    start: 0,
                    n,
                    panels,
                }
                .with_simd(Scalar);
                for index in 0..n {
                    for output in 0..outputs {
                        let pairs = x[index * inputs..][..inputs].iter().zip(row(output));
                        let products = pairs.map(|(&x, &weight)| f64::from(x) * f64::from(weight));
                        let (sum, sizes) =
                            products.fold((0.0, 1.0), |(sum, sizes), x| (sum + x, sizes + x.abs()));
                        let expected = sum + bias.map_or(0.0, |bias| f64::from(bias[output]));
                        for found in
                            [out[index * outputs + output], plain[index * outputs + output]]
                        {
                            assert!(
                                (f64::from(found) - expected).abs() < 1e-6 * sizes,
                                "{n} {inputs} {outputs}: {found} {expected}"
                            );
                        }
                    }
                }
            }
        }
    }

    /// Each row separately, and all at once: the same bits.
    #[test]
    fn a_row_is_the_same_in_every_batch() {
        let (n, inputs, outputs) = (31, 40, 77);
        let (x, weights) = (numbers(n * inputs, 1), numbers(inputs * outputs, 2));
        let packed = Weights::pack(
            inputs,
            outputs,
            |output, to| to.copy_from_slice(&weights[output * inputs..][..inputs]),
            None,
        );
        let mut all = vec![0.0; n * outputs];
        packed.multiply(&x, &mut all, &Serial);
        for index in 0..n {
            let mut one = vec![0.0; outputs];
            packed.multiply(&x[index * inputs..][..inputs], &mut one, &Serial);
            assert_eq!(one, all[index * outputs..][..outputs], "row {index}");
        }
    }
}
