//! Weights of 4 or 8 bits with a step size for each block of a layer's inputs.
//!
//! `W[j, i] ≈ (q[j, i] - zero) · s[j, i / size]`
//!
//! In 8 bits the largest magnitude of a block is 127 steps. In 4 bits, where it is about seven
//! steps, the step size with the least squared error is searched; it may be negative, because there
//! are eight steps on one side and seven on the other.
//!
//! `W: [out, in]` as in PyTorch, `q: u8 [out, blocks, bytes]`, `s: [out, blocks]`; see [`Blocks`].

use super::{Element, Generator, Recipe};
use crate::{Bits, Blocks};
use std::sync::{Arc, OnceLock};

/// A layer's weight in blocks: recipes of its integers and of their steps.
#[derive(Clone, Debug)]
pub struct QuantizedBlocks {
    /// `q: u8 [out, blocks, bytes]`
    pub values: Recipe,
    /// `s: [out, blocks]`
    pub scales: Recipe,
}

impl QuantizedBlocks {
    /// Quantises `weight: [out, in]`; the weight is read only when one of the recipes is.
    ///
    /// # Panics
    /// If the weight is not a matrix.
    pub fn new(weight: &Recipe, blocks: Blocks) -> Self {
        let &[outputs, inputs] = weight.shape() else {
            panic!("a layer's weight is a matrix, found {:?}", weight.shape())
        };
        let scales = Arc::new(Scales {
            weight: weight.to(Element::F32),
            blocks,
            outputs,
            inputs,
            values: OnceLock::new(),
        });
        let count = blocks.count(inputs);
        Self {
            values: Recipe::generated(
                Arc::new(Values { scales: scales.clone() }),
                &[outputs, count, blocks.bytes()],
            )
            .to(Element::U8),
            scales: Recipe::generated(scales, &[outputs, count]),
        }
    }
}

#[derive(Debug)]
struct Scales {
    weight: Recipe,
    blocks: Blocks,
    outputs: usize,
    inputs: usize,
    values: OnceLock<Vec<f32>>,
}

impl Scales {
    fn get(&self) -> &[f32] {
        self.values.get_or_init(|| {
            let mut row = vec![0f32; self.inputs];
            let mut scales = Vec::with_capacity(self.outputs * self.blocks.count(self.inputs));
            for output in 0..self.outputs {
                self.weight.read(output * self.inputs, &mut row);
                scales.extend(
                    row.chunks(self.blocks.size).map(|block| scale(self.blocks.bits, block)),
                );
            }
            scales
        })
    }
}

impl Generator for Scales {
    fn fill(&self, first: usize, values: &mut [f32]) {
        values.copy_from_slice(&self.get()[first..first + values.len()]);
    }
}

#[derive(Debug)]
struct Values {
    scales: Arc<Scales>,
}

impl Generator for Values {
    fn fill(&self, first: usize, values: &mut [f32]) {
        let Scales { weight, blocks, inputs, .. } = &*self.scales;
        let row_bytes = blocks.count(*inputs) * blocks.bytes();
        let (mut row, mut bytes) = (vec![0f32; *inputs], vec![0u8; row_bytes]);
        let mut done = 0;
        while done < values.len() {
            let (output, skip) = ((first + done) / row_bytes, (first + done) % row_bytes);
            weight.read(output * inputs, &mut row);
            let scales = &self.scales.get()[output * blocks.count(*inputs)..];
            for ((block, scale), bytes) in
                row.chunks(blocks.size).zip(scales).zip(bytes.chunks_mut(blocks.bytes()))
            {
                pack(blocks.bits, block, *scale, bytes);
            }
            let count = (row_bytes - skip).min(values.len() - done);
            values[done..done + count]
                .iter_mut()
                .zip(&bytes[skip..])
                .for_each(|(value, byte)| *value = (*byte).into());
            done += count;
        }
    }
}

/// Packs numbers of steps; the rest of the block is padded with zeros.
fn pack(bits: Bits, block: &[f32], scale: f32, bytes: &mut [u8]) {
    let zero = f32::from(bits.zero());
    let integer = |index: usize| {
        block.get(index).map_or(bits.zero(), |value| (count(bits, value / scale) + zero) as u8)
    };
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = match bits {
            Bits::Four => integer(2 * index) | integer(2 * index + 1) << 4,
            Bits::Eight => integer(index),
        };
    }
}

/// The nearest representable number of steps, ties to even.
fn count(bits: Bits, steps: f32) -> f32 {
    // Numbers of this size have no fraction, so the addition itself rounds the sum, without a call
    // for each weight.
    const WHOLE: f32 = (3 << 22) as f32;
    let zero = f32::from(bits.zero());
    (steps + WHOLE - WHOLE).clamp(-zero, zero - 1.0)
}

/// Candidate step sizes in 4 bits, as parts of the one for which the block's extreme is the last
/// step of its side.
const PARTS: [f32; 12] = [0.66, 0.7, 0.74, 0.78, 0.82, 0.86, 0.9, 0.94, 0.97, 1.0, 1.03, 1.06];

/// The step size of a block; 1 for zeros.
fn scale(bits: Bits, block: &[f32]) -> f32 {
    let extreme = block
        .iter()
        .fold(0f32, |extreme, &value| if value.abs() > extreme.abs() { value } else { extreme });
    if extreme == 0.0 {
        return 1.0;
    }
    let zero = f32::from(bits.zero());
    match bits {
        Bits::Eight => extreme.abs() / (zero - 1.0),
        Bits::Four => {
            let steps = [extreme / -zero, extreme / (zero - 1.0)]
                .into_iter()
                .flat_map(|step| PARTS.map(|part| step * part));
            let fitted = steps.map(|step| fitted(bits, block, step));
            fitted.max_by(|(one, _), (other, _)| one.total_cmp(other)).map_or(1.0, |(_, step)| step)
        }
    }
}

/// The step size `s = Σ q w / Σ q²` that fits the numbers of steps `q` found with `step` best, by
/// least squares, and the reduction of the squared error: `Σ (q s - w)² = Σ w² - (Σ q w)² / Σ q²`.
fn fitted(bits: Bits, block: &[f32], step: f32) -> (f32, f32) {
    // Independent sums, because consecutive additions to one sum would wait for each other.
    const LANES: usize = 8;
    let (mut products, mut squares) = ([0f32; LANES], [0f32; LANES]);
    let mut add = |lane: usize, value: f32| {
        let count = count(bits, value / step);
        products[lane] += count * value;
        squares[lane] += count * count;
    };
    let (chunks, rest) = block.as_chunks::<LANES>();
    for chunk in chunks {
        (0..LANES).for_each(|lane| add(lane, chunk[lane]));
    }
    rest.iter().enumerate().for_each(|(lane, &value)| add(lane, value));
    let (product, square) = (products.iter().sum::<f32>(), squares.iter().sum::<f32>());
    let fitted = product / square;
    // Values whose squares underflow keep their step size.
    if fitted.is_normal() { (product * fitted, fitted) } else { (0.0, step) }
}
