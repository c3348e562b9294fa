//! Convolutions.

use super::{expect_dtype, expect_type, float, take_with_option};
use crate::{Conv, Dim, Shape, Type};

pub(super) fn conv(conv: &Conv, inputs: &[&Type]) -> Result<Type, String> {
    let ([x, weight], bias) = take_with_option(inputs)?;
    float("input", x)?;
    expect_dtype("weight", weight, x.dtype)?;
    let n_axes = conv.strides.len();
    if n_axes == 0 || conv.pads.len() != n_axes || conv.strides.contains(&0) {
        return Err(format!(
            "expected a positive stride and a padding for each axis, found {:?} and {:?}",
            conv.strides, conv.pads
        ));
    }
    let ([batch, channels, sizes @ ..], [out, in_channels, kernel @ ..]) =
        (x.shape.dims(), weight.shape.dims())
    else {
        return Err(format!(
            "expected [batch, in, ...] and [out, in, ...], found {} and {}",
            x.shape, weight.shape
        ));
    };
    if sizes.len() != n_axes || kernel.len() != n_axes || channels != in_channels {
        return Err(format!(
            "weight {}: expected [out, {channels}] and {n_axes} sizes, input {}",
            weight.shape, x.shape
        ));
    }
    if let Some(bias) = bias {
        expect_type("bias", bias, &Type::new(x.dtype, [out]))?;
    }
    let size = |axis: usize| {
        let steps = &sizes[axis] + 2 * conv.pads[axis] as i64 - &kernel[axis];
        let size = steps.divided(conv.strides[axis] as i64).map(|steps| steps + 1);
        let size = size.filter(|size| size.as_constant().is_none_or(|size| size > 0));
        size.ok_or_else(|| {
            format!(
                "kernel {} with strides {:?} does not fit the input {}",
                weight.shape, conv.strides, x.shape
            )
        })
    };
    let spatial = (0..n_axes).map(size).collect::<Result<Vec<Dim>, _>>()?;
    Ok(Type::new(x.dtype, [batch, out].into_iter().chain(&spatial).collect::<Shape>()))
}
