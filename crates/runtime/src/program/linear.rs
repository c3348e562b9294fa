//! The products of linear layers.

use super::product::Packed;
use super::{Call, Elements, Result};
use cognate_kernels::{IntegerWeights, Parallel};
use std::ops::Range;

/// The weights of a product.
pub(super) enum Linear {
    Floats(Packed),
    /// Rows are in 8-bit integers.
    Integers(IntegerWeights),
}

impl Linear {
    pub(super) fn inputs(&self) -> usize {
        match self {
            Linear::Floats(weights) => weights.inputs(),
            Linear::Integers(weights) => weights.inputs(),
        }
    }

    pub(super) fn outputs(&self) -> usize {
        match self {
            Linear::Floats(weights) => weights.outputs(),
            Linear::Integers(weights) => weights.outputs(),
        }
    }

    /// The number of rows in a buffer of those that it multiplies, which is loaded on first use.
    pub(super) fn rows(&self, call: &mut Call<'_, '_>, x: usize) -> Result<usize> {
        match self {
            Linear::Floats(_) => call.rows(x),
            Linear::Integers(weights) => {
                call.load(x, true)?;
                Ok(call.elements[x].bytes().len() / weights.inputs().max(1))
            }
        }
    }

    /// Some columns of the product of some rows.
    pub(super) fn multiply(
        &self,
        (x, rows): (&Elements<'_>, Range<usize>),
        columns: Range<usize>,
        out: &mut [f32],
        threads: &dyn Parallel,
    ) {
        let x_of_rows = rows.start * self.inputs()..rows.end * self.inputs();
        match self {
            Linear::Floats(weights) => {
                weights.multiply_columns(&x.floats()[x_of_rows], columns, out, threads);
            }
            Linear::Integers(weights) => {
                weights.multiply_columns(&x.bytes()[x_of_rows], columns, out, threads);
            }
        }
    }
}
