//! Products of integers of 8 or 4 bits.
//!
//! Values are rounded to their steps; the product itself is exact, as for integers.

use crate::ops::{self, INFERRED, float};
use crate::{Float, Value};
use cognate_graph::{Bits, Blocks, SMALLEST_MAGNITUDE, Steps};
use ndarray::{Array2, ArrayView1, Axis, Ix1, Ix2, Ix3, s};

/// The number of steps of a row on either side of zero.
const SIDE: f32 = 127.0;
/// The number of steps of a tensor from its smallest to its largest value.
const SPAN: f32 = 255.0;

fn number<F: Float>(value: f32) -> F {
    <F as From<f32>>::from(value)
}

/// `x: [..., in]`, `weight: [in, out]`, `scale, bias: [out]` -> `[..., out]`
pub(crate) fn linear<F: Float>(
    steps: Steps,
    x: &Value<F>,
    weight: &Value<F>,
    scale: &Value<F>,
    bias: Option<&Value<F>>,
) -> Value<F> {
    let mut counts = float(x).to_owned();
    let largest = largest_magnitude(x);
    let step = match steps {
        Steps::Row | Steps::RowUnscaled => {
            for (mut row, &largest) in counts.rows_mut().into_iter().zip(float(&largest).iter()) {
                row.mapv_inplace(|x| round_ties_even(x / largest * number(SIDE)));
            }
            F::one() / number(SIDE)
        }
        Steps::Tensor => {
            let (low, high) = counts
                .iter()
                .fold((F::zero(), F::zero()), |(low, high), &x| (low.min(x), high.max(x)));
            let step = if high > low { (high - low) / number(SPAN) } else { F::one() };
            let zero = round_ties_even(-low / step);
            let limit = |count: F| count.max(F::zero()).min(number(SPAN));
            counts.mapv_inplace(|x| limit(round_ties_even(x / step) + zero) - zero);
            step
        }
    };
    // Stored in ONNX's order; a linear layer expects `[out, in]`.
    let weight = float(weight).view().into_dimensionality::<Ix2>().expect(INFERRED).t().to_owned();
    let product = ops::linear(
        &Value::Float(counts.into_shared()),
        &Value::Float(weight.into_dyn().into_shared()),
        None,
    );
    let mut out = float(&product).to_owned();
    out *= &float(scale).view().into_dimensionality::<Ix1>().expect(INFERRED);
    out.mapv_inplace(|value| value * step);
    if steps == Steps::Row {
        out *= &float(&largest).view();
    }
    if let Some(bias) = bias {
        out += &float(bias).view();
    }
    Value::Float(out.into_shared())
}

/// `x: [..., in]`, `weight: [out, blocks, bytes]`, `scale: [out, blocks]`, `bias: [out]` ->
/// `[..., out]`
pub(crate) fn block_linear<F: Float>(
    blocks: Blocks,
    x: &Value<F>,
    weight: &Value<F>,
    scale: &Value<F>,
    bias: Option<&Value<F>>,
) -> Value<F> {
    let mut rounded = float(x).to_owned();
    for mut row in rounded.rows_mut() {
        for mut block in row.axis_chunks_iter_mut(Axis(0), blocks.size) {
            let largest = block
                .fold(number(SMALLEST_MAGNITUDE), |largest: F, &value| largest.max(value.abs()));
            block.mapv_inplace(|x| {
                round_ties_even(x / largest * number(SIDE)) / number(SIDE) * largest
            });
        }
    }
    let bytes = float(weight).view().into_dimensionality::<Ix3>().expect(INFERRED);
    let scale = float(scale).view().into_dimensionality::<Ix2>().expect(INFERRED);
    let inputs = rounded.shape()[rounded.ndim() - 1];
    let weight = Array2::from_shape_fn((bytes.shape()[0], inputs), |(output, input)| {
        let (block, place) = (input / blocks.size, input % blocks.size);
        integer(blocks.bits, bytes.slice(s![output, block, ..]), place) * scale[[output, block]]
    });
    ops::linear(
        &Value::Float(rounded.into_shared()),
        &Value::Float(weight.into_dyn().into_shared()),
        bias,
    )
}

/// The integer at this position of a block, relative to the zero point.
fn integer<F: Float>(bits: Bits, bytes: ArrayView1<'_, F>, place: usize) -> F {
    let stored = match bits {
        Bits::Eight => bytes[place],
        Bits::Four => {
            let (upper, lower) =
                ((bytes[place / 2] / number(16.0)).trunc(), bytes[place / 2] % number(16.0));
            if place.is_multiple_of(2) { lower } else { upper }
        }
    };
    stored - number(bits.zero().into())
}

/// `[..., n]` -> `[..., 1]`
pub(crate) fn largest_magnitude<F: Float>(x: &Value<F>) -> Value<F> {
    let x = float(x);
    let last = Axis(x.ndim() - 1);
    let largest = x.fold_axis(last, number(SMALLEST_MAGNITUDE), |&largest: &F, &value| {
        largest.max(value.abs())
    });
    Value::Float(largest.insert_axis(last).into_shared())
}

/// The nearest integer, ties to even.
fn round_ties_even<F: Float>(x: F) -> F {
    let rounded = x.round();
    let two = number(2.0);
    if (x - x.trunc()).abs() == number(0.5) { two * (x / two).round() } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_to_the_even_integer() {
        let cases = [
            (0.5, 0.0),
            (1.5, 2.0),
            (2.5, 2.0),
            (-0.5, 0.0),
            (-1.5, -2.0),
            (-2.5, -2.0),
            (2.4, 2.0),
            (-3.6, -4.0),
            (7.0, 7.0),
        ];
        for (x, expected) in cases {
            assert_eq!(round_ties_even::<f64>(x), expected, "{x}");
        }
    }
}
