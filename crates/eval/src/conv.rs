//! Convolutions.

use crate::ops::{INFERRED, float};
use crate::{Float, Value};
use cognate_graph::Conv;
use ndarray::{Array, Array3, Axis, Dimension, IxDyn, Slice, indices};

/// `x: [batch, in, ...]`, `weight: [out, in, ...]` -> `[batch, out, sizes]`: for each position of
/// the kernel, the product of its weights with the elements under them.
pub(crate) fn conv<F: Float>(conv: &Conv, sizes: &[usize], inputs: &[&Value<F>]) -> Value<F> {
    let (x, weight) = (float(inputs[0]), float(inputs[1]));
    let padded: Vec<_> =
        x.shape()[2..].iter().zip(&conv.pads).map(|(size, pad)| size + 2 * pad).collect();
    let mut framed = Array::zeros(IxDyn(&[&x.shape()[..2], &padded].concat()));
    framed.slice_each_axis_mut(|axis| inside(conv, axis.axis, x.shape())).assign(x);
    let (n_batch, n_in, n_out) = (x.shape()[0], x.shape()[1], weight.shape()[0]);
    let mut out = Array3::zeros((n_batch, n_out, sizes.iter().product()));
    for position in indices(&weight.shape()[2..]) {
        let position = position.as_array_view();
        let step = |axis: Axis| match axis.index().checked_sub(2) {
            None => Slice::from(..),
            Some(axis) => {
                let (start, stride) = (position[axis] as isize, conv.strides[axis] as isize);
                Slice::new(start, Some(start + stride * (sizes[axis] as isize - 1) + 1), stride)
            }
        };
        let met = framed.slice_each_axis(|axis| step(axis.axis)).as_standard_layout().into_owned();
        let met = met
            .into_shape_with_order((n_batch, n_in, sizes.iter().product::<usize>()))
            .expect(INFERRED);
        let at = |axis: Axis| {
            axis.index()
                .checked_sub(2)
                .map_or(Slice::from(..), |axis| Slice::from(position[axis]..=position[axis]))
        };
        let weights =
            weight.slice_each_axis(|axis| at(axis.axis)).as_standard_layout().into_owned();
        let weights = weights.into_shape_with_order((n_out, n_in)).expect(INFERRED);
        for (mut out, met) in out.outer_iter_mut().zip(met.outer_iter()) {
            out += &weights.dot(&met);
        }
    }
    if let Some(bias) = inputs.get(2) {
        let bias = float(bias).view().into_shape_with_order((n_out, 1)).expect(INFERRED);
        out += &bias;
    }
    let shape = [&[n_batch, n_out], sizes].concat();
    Value::Float(out.into_shape_with_order(shape).expect(INFERRED).into_shared())
}

/// The range of elements inside the padding.
fn inside(conv: &Conv, axis: Axis, shape: &[usize]) -> Slice {
    match axis.index().checked_sub(2) {
        None => Slice::from(..),
        Some(spatial) => Slice::from(conv.pads[spatial]..conv.pads[spatial] + shape[axis.index()]),
    }
}
