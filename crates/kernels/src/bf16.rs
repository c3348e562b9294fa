//! Products in bfloat16: `out = x Wᵀ + bias`, with rows and weights that are rounded to 8 bits of
//! precision, and sums in f32.
//!
//! The products of two such numbers are exact in f32. The result of a row is bit for bit the same
//! in every batch.

#[cfg(target_arch = "x86_64")]
mod avx512;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::instructions::Instructions;
use crate::parallel::Parallel;
use crate::product::Weights;
use crate::screen::dots;
use std::ops::Range;

/// Number of elements that one instruction multiplies in each lane.
const PAIR: usize = 2;

/// Weights of a layer in bfloat16, or in f32 if the processor has no instructions for bfloat16.
#[derive(Debug)]
pub struct Bf16Weights(Form);

#[derive(Debug)]
enum Form {
    #[cfg(target_arch = "x86_64")]
    Pairs(avx512::Pairs),
    Floats(Weights),
}

/// Whether the processor multiplies bfloat16, twice as many at a time as f32.
pub fn multiplies_bf16() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        Instructions::Avx512.are_allowed()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bf16")
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        false
    }
}

impl Bf16Weights {
    /// Packs weights that are bfloat16 numbers: `fill` writes the row `[inputs]` of an output.
    /// Without `bias`, zeros are added.
    ///
    /// # Panics
    /// If the bias has another length than `outputs`.
    pub fn pack(
        inputs: usize,
        outputs: usize,
        mut fill: impl FnMut(usize, &mut [f32]),
        bias: Option<&[f32]>,
    ) -> Self {
        #[cfg(target_arch = "x86_64")]
        if multiplies_bf16() {
            return Self(Form::Pairs(avx512::Pairs::pack([inputs, outputs], &mut fill, bias)));
        }
        Self(Form::Floats(Weights::pack(inputs, outputs, fill, bias)))
    }

    /// Width of the rows that are multiplied.
    pub fn inputs(&self) -> usize {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            Form::Pairs(pairs) => pairs.inputs(),
            Form::Floats(weights) => weights.inputs(),
        }
    }

    /// Width of the product's rows.
    pub fn outputs(&self) -> usize {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            Form::Pairs(pairs) => pairs.outputs(),
            Form::Floats(weights) => weights.outputs(),
        }
    }

    /// `out = round(x) Wᵀ + bias`
    ///
    /// # Panics
    /// If a length does not match its dimensions.
    pub fn multiply(&self, x: &[f32], out: &mut [f32], threads: &dyn Parallel) {
        self.multiply_columns(x, 0..self.outputs(), out, threads);
    }

    /// As [`Weights::multiply_columns`](crate::Weights::multiply_columns).
    ///
    /// # Panics
    /// As there.
    pub fn multiply_columns(
        &self,
        x: &[f32],
        columns: Range<usize>,
        out: &mut [f32],
        threads: &dyn Parallel,
    ) {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            Form::Pairs(pairs) => pairs.multiply_columns(x, columns, out, threads),
            Form::Floats(weights) => {
                let mut rounded = x.to_vec();
                round_to_bf16(&mut rounded);
                weights.multiply_columns(&rounded, columns, out, threads);
            }
        }
    }
}

/// Length of a row of [`dots_of_bf16`], which ends in a zero if the number of inputs is odd.
pub fn padded_bf16(inputs: usize) -> usize {
    inputs.next_multiple_of(PAIR)
}

/// `round(x) · row` of `rows: [n, padded_bf16(inputs)]`, bit for bit as with [`Bf16Weights`];
/// `out: [n]`.
///
/// # Panics
/// If a length does not match its dimensions.
pub fn dots_of_bf16(x: &[f32], rows: &[u16], out: &mut [f32]) {
    let width = padded_bf16(x.len());
    assert_eq!(rows.len(), out.len() * width, "[n, inputs]");
    #[cfg(target_arch = "x86_64")]
    if multiplies_bf16() {
        return avx512::dots(x, rows, out);
    }
    let (mut x, n) = (x.to_vec(), x.len());
    let floats = |row: &[u16]| row[..n].iter().map(|&bits| widened(bits)).collect::<Vec<_>>();
    let rows: Vec<f32> = rows.chunks_exact(width.max(1)).flat_map(floats).collect();
    round_to_bf16(&mut x);
    dots(&x, &rows, out);
}

/// Rounds numbers to bfloat16, ties to even.
pub fn round_to_bf16(numbers: &mut [f32]) {
    numbers.iter_mut().for_each(|number| *number = widened(nearest(*number)));
}

/// The bfloat16 number with these bits.
#[inline(always)]
fn widened(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bfloat16 number, ties to even.
#[inline(always)]
fn nearest(number: f32) -> u16 {
    let bits = number.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // NaN stays NaN.
    let kept = bits >> 16 | 0x40;
    (if number.is_nan() { kept } else { rounded }) as u16
}
