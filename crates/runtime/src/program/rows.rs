//! The operations between two products of rows, in one pass: the end of a quantised linear layer,
//! residual, normalisation, activation, and the quantisation for the next.

use super::sizes::{Size, values};
use super::{Call, Result, by_parts, expected};
use cognate_kernels::{Activation, Norm, Place, Quantised, Rows};

/// Rows of `x` with the operations of [`Rows`]; numbers are indices of buffers.
pub(super) struct BetweenProducts {
    pub(super) x: usize,
    pub(super) scale: Option<usize>,
    pub(super) bias: Option<Vec<f32>>,
    pub(super) residual: Option<usize>,
    pub(super) norm: Option<RowNorm>,
    pub(super) activation: Activation,
    /// The destination of the rows, possibly `x`; `None` if only bytes are read.
    pub(super) out: Option<usize>,
    /// The rows in 8-bit integers, and their largest magnitudes.
    pub(super) quantised: Option<[usize; 2]>,
}

/// See [`Norm`].
pub(super) struct RowNorm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Option<Vec<f32>>,
    pub(super) epsilon: f32,
}

/// The values of rows `[rows, 1]`, at least `least`, as an output of another shape.
pub(super) struct Largest {
    pub(super) x: usize,
    pub(super) least: f32,
    pub(super) sizes: Vec<Size>,
    pub(super) output: usize,
}

impl Largest {
    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let (rows, sizes) = (call.rows(self.x)?, values(&self.sizes, call.tensors)?);
        if sizes.iter().product::<usize>() != rows {
            return Err(expected("sizes", format!("{rows} numbers"), format!("{sizes:?}")));
        }
        let out = call.tensors.new_floats(self.output, &sizes)?;
        // NaN stays NaN.
        out.iter_mut()
            .zip(call.floats(self.x))
            .for_each(|(out, &x)| *out = if x < self.least { self.least } else { x });
        Ok(())
    }
}

impl BetweenProducts {
    /// Number of rows per task.
    pub(super) const TOGETHER: usize = 8;

    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let (rows, width) = (call.rows(self.x)?, call.program.buffers[self.x].width);
        for (buffer, size) in self
            .scale
            .map(|scale| (scale, rows))
            .into_iter()
            .chain(self.residual.map(|residual| (residual, rows * width)))
        {
            call.load(buffer, false)?;
            let found = call.floats(buffer).len();
            if found != size {
                return Err(expected(
                    "scale or residual",
                    format!("{size} numbers for {rows} rows of {width}"),
                    found,
                ));
            }
        }
        let mut out = match self.out {
            Some(out) if out == self.x => Some(std::mem::take(&mut call.elements[out])),
            Some(out) => Some(call.take_floats(out, rows)?),
            None => None,
        };
        let mut quantised = match self.quantised {
            Some([bytes, largest]) => {
                Some((call.take_bytes(bytes, rows)?, call.take_floats(largest, rows)?))
            }
            None => None,
        };
        let norm = self.norm.as_ref().map(|norm| Norm {
            weight: &norm.weight,
            bias: norm.bias.as_deref(),
            epsilon: norm.epsilon,
        });
        let work = Rows {
            scale: self.scale.map(|scale| call.floats(scale)),
            bias: self.bias.as_deref(),
            residual: self.residual.map(|residual| call.floats(residual)),
            norm,
            activation: self.activation,
        };
        let n = if call.tensors.threads() > 1 { Self::TOGETHER } else { rows.max(1) };
        let part = (n * width).max(1);
        let places: Vec<Place<'_>> = match &mut out {
            Some(out) if self.out == Some(self.x) => {
                out.floats_mut().chunks_mut(part).map(Place::Over).collect()
            }
            Some(out) => call
                .floats(self.x)
                .chunks(part)
                .zip(out.floats_mut().chunks_mut(part))
                .map(|(x, out)| Place::To(x, out))
                .collect(),
            None => call.floats(self.x).chunks(part).map(Place::Nowhere).collect(),
        };
        let mut parts = quantised.as_mut().map(|(bytes, largest)| {
            bytes.bytes_mut().chunks_mut(part).zip(largest.floats_mut().chunks_mut(n))
        });
        let next = || parts.as_mut()?.next().map(|(bytes, largest)| Quantised { bytes, largest });
        let parts = places.into_iter().zip(std::iter::repeat_with(next));
        by_parts(call.tensors, parts, |index, (place, quantised)| {
            work.apply(index * n, place, width, quantised)
        });
        if let (Some(buffer), Some(out)) = (self.out, out) {
            call.put(buffer, out);
        }
        if let (Some([bytes, largest]), Some(made)) = (self.quantised, quantised) {
            call.put(bytes, made.0);
            call.put(largest, made.1);
        }
        Ok(())
    }
}
