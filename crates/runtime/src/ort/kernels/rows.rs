//! The operators between two products of rows, in one pass: the end of a quantised linear layer,
//! residual, normalisation, activation, and the quantisation for the next.

use super::context::{Context, Over};
use super::operator::{Attributes, Operator, Parameter};
use super::{expected, sizes};
use ::ort::sys::ONNXTensorElementDataType::{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT as F32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 as U8};
use ::ort::{Error, Result};
use cognate_kernels::{Activation, Norm, Place, Quantised, Rows};
use std::ffi::{CStr, c_int};

/// Inputs: `[rows, width]`, and optionally a factor of each row `[rows, 1]`, a bias `[width]`, a
/// residual `[rows, width]`, weight and bias of a layer normalisation `[width]`. Outputs: the rows,
/// the rows in 8-bit integers, and their maximum magnitudes `[rows, 1]`.
pub(super) struct BetweenProducts {
    epsilon: f32,
    activation: Activation,
}

impl BetweenProducts {
    pub(super) const N_INPUTS: usize = Self::INPUTS.len();
    /// The values of the attribute `activation`.
    pub(super) const ACTIVATIONS: [Activation; 3] = [Activation::Identity, Activation::Relu, Activation::Swish];
    /// Number of rows per task.
    const TOGETHER: usize = 8;
}

impl Operator for BetweenProducts {
    const NAME: &'static CStr = c"BetweenProducts";
    const INPUTS: &'static [Parameter] = {
        let optional = Parameter::optional(F32);
        &[Parameter::required(F32), optional, optional, optional, optional, optional]
    };
    const OUTPUTS: &'static [Parameter] = &[Parameter::optional(F32), Parameter::optional(U8), Parameter::optional(F32)];
    const IN_PLACE: [&'static [c_int]; 2] = [&[0], &[0]];

    fn new(attributes: &Attributes<'_>) -> Result<Self> {
        let activation = attributes.integer(c"activation").and_then(|index| Self::ACTIVATIONS.get(usize::try_from(index).ok()?).copied());
        let activation = activation.ok_or_else(|| Error::new("missing attribute activation"))?;
        Ok(Self { epsilon: attributes.float(c"epsilon").unwrap_or_default(), activation })
    }

    fn compute(&self, context: &Context<'_>) -> Result<()> {
        let given = |index| Ok::<_, Error>(context.input::<f32>(index)?.map(|input| input.elements));
        let [scale, bias, residual, weight, norm_bias] = [given(1)?, given(2)?, given(3)?, given(4)?, given(5)?];
        let (shape, x) = context.over::<f32>(0, 0)?;
        let [rows, width] = sizes("rows", &shape)?;
        for (what, tensor, size) in [
            ("scale", scale, rows),
            ("bias", bias, width),
            ("residual", residual, rows * width),
            ("weight", weight, width),
            ("norm bias", norm_bias, width),
        ] {
            if let Some(tensor) = tensor.filter(|tensor| tensor.len() != size) {
                return Err(expected(what, format!("{size} numbers for rows {shape:?}"), tensor.len()));
            }
        }
        let norm = weight.zip(norm_bias).map(|(weight, bias)| Norm { weight, bias, epsilon: self.epsilon });
        let work = Rows { scale, bias, residual, norm, activation: self.activation };

        let (bytes, largest) = (context.output::<u8>(1, &[rows, width])?, context.output::<f32>(2, &[rows, 1])?);
        let (n, part) = (Self::TOGETHER, Self::TOGETHER * width.max(1));
        let places: Vec<Place<'_>> = match x {
            Over::Same(x) => x.chunks_mut(part).map(Place::Over).collect(),
            Over::Apart(x, out) => x.chunks(part).zip(out.chunks_mut(part)).map(|(x, out)| Place::To(x, out)).collect(),
            Over::Unasked(x) => x.chunks(part).map(Place::Nowhere).collect(),
        };
        let mut quantised = bytes.zip(largest).map(|(bytes, largest)| bytes.chunks_mut(part).zip(largest.chunks_mut(n)));
        let quantised = || quantised.as_mut()?.next().map(|(bytes, largest)| Quantised { bytes, largest });
        let parts: Vec<_> = places.into_iter().zip(std::iter::repeat_with(quantised)).collect();
        context.by_parts(parts.into_iter(), |index, (place, quantised)| work.apply(index * n, place, width, quantised))
    }
}
