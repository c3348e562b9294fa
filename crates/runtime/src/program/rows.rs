//! The operations between two products of rows, in one pass: the end of a quantised linear layer,
//! residual, normalisation, activation, and the quantisation for the next.

use super::sizes::{Size, values};
use super::{Call, Elements, Result, by_parts, expected};
use cognate_kernels::{Activation, Norm, Parallel, Place, Quantised, Rows};

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
    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let (rows, width) = (call.rows(self.x)?, call.program.buffers[self.x].width);
        self.load(call, rows, width)?;
        let mut out = match self.out {
            Some(out) if out == self.x => Some(std::mem::take(&mut call.elements[out])),
            Some(out) => Some(call.take_floats(out, rows)?),
            None => None,
        };
        let mut quantised = self.take_quantised(call, rows, rows)?;
        let place = match &mut out {
            Some(out) if self.out == Some(self.x) => Place::Over(out.floats_mut()),
            Some(out) => Place::To(call.floats(self.x), out.floats_mut()),
            None => Place::Nowhere(call.floats(self.x)),
        };
        let bytes = quantised.as_mut().map(|[bytes, largest]| Quantised {
            bytes: bytes.bytes_mut(),
            largest: largest.floats_mut(),
        });
        self.work(call, width).apply(0, place, bytes);
        if let (Some(buffer), Some(out)) = (self.out, out) {
            call.put(buffer, out);
        }
        self.put_quantised(call, quantised);
        Ok(())
    }

    /// Loads what is read beside the rows, and checks its size.
    pub(super) fn load(&self, call: &mut Call<'_, '_>, rows: usize, width: usize) -> Result<()> {
        let scale = self.scale.map(|scale| (scale, rows));
        let residual = self.residual.map(|residual| (residual, rows * width));
        for (buffer, size) in scale.into_iter().chain(residual) {
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
        Ok(())
    }

    /// Memory for the integers of some rows, and for the largest magnitudes of all.
    pub(super) fn take_quantised<'c>(
        &self,
        call: &mut Call<'_, 'c>,
        some: usize,
        all: usize,
    ) -> Result<Option<[Elements<'c>; 2]>> {
        let Some([bytes, largest]) = self.quantised else { return Ok(None) };
        Ok(Some([call.take_bytes(bytes, some)?, call.take_floats(largest, all)?]))
    }

    pub(super) fn put_quantised<'c>(
        &self,
        call: &mut Call<'_, 'c>,
        quantised: Option<[Elements<'c>; 2]>,
    ) {
        let buffers = self.quantised.into_iter().flatten();
        buffers.zip(quantised.into_iter().flatten()).for_each(|(at, made)| call.put(at, made));
    }

    /// The operations, on rows of this width.
    pub(super) fn work<'w>(&'w self, call: &'w Call<'_, '_>, width: usize) -> Work<'w> {
        let norm = self.norm.as_ref().map(|norm| Norm {
            weight: &norm.weight,
            bias: norm.bias.as_deref(),
            epsilon: norm.epsilon,
        });
        let rows = Rows {
            scale: self.scale.map(|scale| call.floats(scale)),
            bias: self.bias.as_deref(),
            residual: self.residual.map(|residual| call.floats(residual)),
            norm,
            activation: self.activation,
        };
        Work { rows, width, threads: call.tensors }
    }
}

/// Operations on rows, on all threads.
pub(super) struct Work<'w> {
    pub(super) rows: Rows<'w>,
    pub(super) width: usize,
    pub(super) threads: &'w dyn Parallel,
}

impl Work<'_> {
    /// Number of rows per task.
    const TOGETHER: usize = 8;

    /// Processes the rows `first..` of all rows.
    pub(super) fn apply(&self, first: usize, place: Place<'_>, quantised: Option<Quantised<'_>>) {
        let Self { rows, width, threads } = self;
        if threads.threads() <= 1 {
            return rows.apply(first, place, *width, quantised);
        }
        let size = (Self::TOGETHER * width).max(1);
        let places: Vec<_> = match place {
            Place::Over(rows) => rows.chunks_mut(size).map(Place::Over).collect(),
            Place::To(x, out) => {
                let out = out.chunks_mut(size);
                x.chunks(size).zip(out).map(|(x, out)| Place::To(x, out)).collect()
            }
            Place::Nowhere(x) => x.chunks(size).map(Place::Nowhere).collect(),
        };
        let mut parts = quantised.map(|Quantised { bytes, largest }| {
            bytes.chunks_mut(size).zip(largest.chunks_mut(Self::TOGETHER))
        });
        let next = || parts.as_mut()?.next().map(|(bytes, largest)| Quantised { bytes, largest });
        let parts = places.into_iter().zip(std::iter::repeat_with(next));
        by_parts(*threads, parts, |index, (place, quantised)| {
            rows.apply(first + index * Self::TOGETHER, place, *width, quantised);
        });
    }
}
