//! Convolutions over time, the first layers of encoders of speech.

use super::embedding::Table;
use super::operation::ConvolutionSizes;
use super::rows::Work;
use super::{Call, Result, by_parts, expected, parts_of_rows};
use cognate_kernels::{Activation, Parallel, Place, Rows, Weights};

/// Frames `[batch, channels, n]` after convolutions as rows `[batch · n, width]`, plus those of their
/// positions.
pub(super) struct Convolutions {
    /// The input of frames.
    pub(super) frames: usize,
    pub(super) layers: Vec<Convolution>,
    pub(super) positions: Option<Table>,
    pub(super) out: usize,
}

/// A convolution: the product of its weights with the frames below the kernel, which are side by
/// side in memory.
pub(super) struct Convolution {
    weights: Weights,
    sizes: ConvolutionSizes,
    activation: Activation,
}

impl ConvolutionSizes {
    /// The number of frames after the convolution of `n`.
    fn after(self, n: usize) -> usize {
        (n + 2 * self.padding).checked_sub(self.kernel).map_or(0, |rest| rest / self.stride + 1)
    }

    /// Zeros for frames and their padding.
    fn padded(self, n: usize) -> Vec<f32> {
        vec![0.0; (n + 2 * self.padding) * self.channels]
    }

    /// The place of frames among their padding.
    fn inside(self, padded: &mut [f32]) -> &mut [f32] {
        let (end, padding) = (padded.len(), self.padding * self.channels);
        &mut padded[padding..end - padding]
    }
}

impl Convolution {
    /// `weights: [outputs, channels, kernel]`
    pub(super) fn new(
        sizes: ConvolutionSizes,
        weights: &[f32],
        bias: &[f32],
        activation: Activation,
    ) -> Self {
        let ConvolutionSizes { channels, kernel, .. } = sizes;
        let inputs = channels * kernel;
        let fill = |output: usize, row: &mut [f32]| {
            let of_output = &weights[output * inputs..][..inputs];
            for (place, frame) in row.chunks_exact_mut(channels).enumerate() {
                let numbers = of_output.iter().skip(place).step_by(kernel);
                frame.iter_mut().zip(numbers).for_each(|(to, number)| *to = *number);
            }
        };
        let weights = Weights::pack(inputs, weights.len() / inputs.max(1), fill, Some(bias));
        Self { weights, sizes, activation }
    }

    /// Convolves padded frames.
    fn run(&self, padded: &[f32], out: &mut [f32], threads: &dyn Parallel) {
        /// Number of rows per task.
        const TOGETHER: usize = 8;
        let (inputs, width) = (self.weights.inputs(), self.weights.outputs());
        let step = self.sizes.stride * self.sizes.channels;
        let rows = Rows { activation: self.activation, ..Rows::default() };
        let work = Work { rows, width, threads };
        let mut below = Vec::new();
        for part in parts_of_rows(out.len() / width.max(1)) {
            below.resize(part.len() * inputs, 0.0);
            let some = below.chunks_mut((TOGETHER * inputs).max(1));
            by_parts(threads, some, |index, some| {
                for (row, to) in some.chunks_exact_mut(inputs).enumerate() {
                    let start = (part.start + index * TOGETHER + row) * step;
                    to.copy_from_slice(&padded[start..][..inputs]);
                }
            });
            let out = &mut out[part.start * width..part.end * width];
            self.weights.multiply(&below, out, threads);
            work.apply(0, Place::Over(out), None);
        }
    }
}

impl Convolutions {
    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let (shape, frames) = call.tensors.floats(self.frames)?;
        let (Some((last, others)), [batch, channels, n]) = (self.layers.split_last(), &shape[..])
        else {
            return Err(expected("frames", "[batch, channels, n]", format!("{shape:?}")));
        };
        let first = self.layers[0].sizes;
        if *channels != first.channels {
            return Err(expected("channels of frames", first.channels, channels));
        }
        let n_rows = self.layers.iter().fold(*n, |n, layer| layer.sizes.after(n));
        if let Some(most) = self.positions.as_ref().map(Table::rows).filter(|most| *most < n_rows) {
            return Err(expected("frames", format!("at most {most}"), n_rows));
        }
        let mut made = call.take_floats(self.out, batch * n_rows)?;
        let width = last.weights.outputs();
        let windows = frames.chunks_exact((channels * n).max(1));
        for (frames, out) in
            windows.zip(made.floats_mut().chunks_exact_mut((n_rows * width).max(1)))
        {
            let mut padded = first.padded(*n);
            let places = first.inside(&mut padded).chunks_exact_mut((*channels).max(1));
            for (time, place) in places.enumerate() {
                let numbers = frames.iter().skip(time).step_by(*n);
                place.iter_mut().zip(numbers).for_each(|(to, number)| *to = *number);
            }
            let mut n = *n;
            for (layer, next) in others.iter().zip(&self.layers[1..]) {
                n = layer.sizes.after(n);
                let mut after = next.sizes.padded(n);
                layer.run(&padded, next.sizes.inside(&mut after), call.tensors);
                padded = after;
            }
            last.run(&padded, out, call.tensors);
            if let Some(table) = &self.positions {
                for (position, row) in out.chunks_exact_mut(width).enumerate() {
                    table.read(position, row, |to, number| *to += number);
                }
            }
        }
        call.put(self.out, made);
        Ok(())
    }
}
