//! Products with weights from a file, in f32, f16 or bfloat16.

use super::constants::{Bytes, Precision};
use cognate_kernels::{Bf16Weights, Parallel, Weights, dots, dots_of_bf16, padded_bf16};
use std::ops::Range;

/// Weights `[outputs, inputs]` and a bias in a file.
pub(super) struct Source {
    pub(super) bytes: Bytes,
    /// To bfloat16 the rows that are multiplied are rounded, too.
    pub(super) precision: Precision,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) bias: Option<Vec<f32>>,
}

/// Memory for columns, reused for the next ones.
#[derive(Default)]
pub(super) struct Columns {
    floats: Vec<f32>,
    bf16: Vec<u16>,
}

/// Weights in panels.
pub(super) enum Packed {
    Floats(Weights),
    Bf16(Bf16Weights),
}

impl Source {
    /// The weights `[inputs]` of an output.
    fn bytes_of(&self, output: usize) -> &[u8] {
        &self.bytes.all()[output * self.size()..][..self.size()]
    }

    pub(super) fn is_bf16(&self) -> bool {
        self.precision == Precision::Bf16
    }

    /// Bytes of the weights of an output.
    fn size(&self) -> usize {
        self.inputs * self.precision.size()
    }

    /// Writes the weights `[inputs]` of an output.
    pub(super) fn fill(&self, output: usize, row: &mut [f32]) {
        self.precision.read(self.bytes_of(output), row, |place, number| *place = number);
    }

    /// The weights in panels.
    pub(super) fn pack(&self) -> Packed {
        self.read_by(|_, outputs, fill, bias| self.packed(outputs, fill, bias))
    }

    /// Reads all weights: numbers of inputs and outputs, the row of an output, the bias. Bytes that
    /// were read are released at once, so that a large layer is not in memory twice.
    pub(super) fn read_by<T>(
        &self,
        read: impl FnOnce(usize, usize, &mut dyn FnMut(usize, &mut [f32]), Option<&[f32]>) -> T,
    ) -> T {
        const PART: usize = 1 << 22;
        let mut released = 0;
        let mut fill = |output: usize, row: &mut [f32]| {
            let start = output * self.size();
            if start >= released + PART {
                self.bytes.release_part(released..start);
                released = start;
            }
            self.fill(output, row);
        };
        let found = read(self.inputs, self.outputs, &mut fill, self.bias.as_deref());
        self.bytes.release();
        found
    }

    /// The columns of some outputs.
    pub(super) fn select(&self, outputs: &[usize]) -> Packed {
        let bias: Vec<f32> = outputs.iter().map(|&output| self.bias_of(output)).collect();
        self.packed(outputs.len(), |place, row| self.fill(outputs[place], row), Some(&bias))
    }

    /// The products of some outputs with a row, bit for bit equal to those computed with all
    /// outputs.
    pub(super) fn some(
        &self,
        x: &[f32],
        outputs: impl ExactSizeIterator<Item = usize> + Clone,
        room: &mut Columns,
    ) -> Vec<f32> {
        let (n, Columns { floats, bf16 }) = (outputs.len(), room);
        let mut sums = vec![0.0; n];
        if self.is_bf16() {
            let width = padded_bf16(self.inputs);
            bf16.resize(n * width, 0);
            for (output, place) in outputs.clone().zip(bf16.chunks_exact_mut(width.max(1))) {
                let bytes = self.bytes_of(output).as_chunks().0;
                place
                    .iter_mut()
                    .zip(bytes)
                    .for_each(|(bits, bytes)| *bits = u16::from_le_bytes(*bytes));
            }
            dots_of_bf16(x, bf16, &mut sums);
        } else {
            floats.resize(n * self.inputs, 0.0);
            let places = floats.chunks_exact_mut(self.inputs.max(1));
            outputs.clone().zip(places).for_each(|(output, place)| self.fill(output, place));
            dots(x, floats, &mut sums);
        }
        sums.iter_mut().zip(outputs).for_each(|(sum, output)| *sum += self.bias_of(output));
        sums
    }

    fn bias_of(&self, output: usize) -> f32 {
        self.bias.as_ref().map_or(0.0, |bias| bias[output])
    }

    fn packed(
        &self,
        outputs: usize,
        fill: impl FnMut(usize, &mut [f32]),
        bias: Option<&[f32]>,
    ) -> Packed {
        match self.is_bf16() {
            true => Packed::Bf16(Bf16Weights::pack(self.inputs, outputs, fill, bias)),
            false => Packed::Floats(Weights::pack(self.inputs, outputs, fill, bias)),
        }
    }
}

impl Packed {
    pub(super) fn inputs(&self) -> usize {
        match self {
            Packed::Floats(weights) => weights.inputs(),
            Packed::Bf16(weights) => weights.inputs(),
        }
    }

    pub(super) fn outputs(&self) -> usize {
        match self {
            Packed::Floats(weights) => weights.outputs(),
            Packed::Bf16(weights) => weights.outputs(),
        }
    }

    pub(super) fn multiply(&self, x: &[f32], out: &mut [f32], threads: &dyn Parallel) {
        match self {
            Packed::Floats(weights) => weights.multiply(x, out, threads),
            Packed::Bf16(weights) => weights.multiply(x, out, threads),
        }
    }

    pub(super) fn multiply_columns(
        &self,
        x: &[f32],
        columns: Range<usize>,
        out: &mut [f32],
        threads: &dyn Parallel,
    ) {
        match self {
            Packed::Floats(weights) => weights.multiply_columns(x, columns, out, threads),
            Packed::Bf16(weights) => weights.multiply_columns(x, columns, out, threads),
        }
    }
}
