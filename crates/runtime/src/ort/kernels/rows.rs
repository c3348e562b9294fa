//! What stands between two products of rows, in one pass: the end of a layer of integers, residual, normalisation, activation, and
//! the beginning of the next layer of integers.

use super::{by_parts, elements, expected, given, sizes};
use ::ort::operator::{BoxedKernel, ComputeContext, KernelContext, Operator, OperatorInput, OperatorOutput};
use ::ort::value::TensorElementType::{Float32, Uint8};
use ::ort::value::ValueRef;
use ::ort::{Error, Result};
use cognate_kernels::{Activation, Norm, Place, Quantised, Rows};
use std::ops::RangeInclusive;

/// Inputs: `[rows, width]`, and if they are there, a factor of each row `[rows, 1]`, a bias `[width]`, a residual `[rows, width]`,
/// weight and bias of a layer normalisation `[width]`. Outputs: the rows, the rows in 8-bit integers, and their largest magnitudes
/// `[rows, 1]`.
pub(super) struct BetweenProducts;

impl BetweenProducts {
    pub(super) const NAME: &str = "BetweenProducts";
    pub(super) const N_INPUTS: usize = 6;
    /// The values of the attribute `activation`.
    pub(super) const ACTIVATIONS: [Activation; 3] = [Activation::Identity, Activation::Relu, Activation::Swish];
    /// Rows that are worth a call.
    const TOGETHER: usize = 8;
}

impl Operator for BetweenProducts {
    type Kernel<'attr> = BoxedKernel<'attr>;

    const INPLACES: &[(u32, u32)] = &[(0, 0)];

    fn name(&self) -> &str {
        Self::NAME
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        (0..Self::N_INPUTS).map(|index| if index == 0 { OperatorInput::required(Float32) } else { OperatorInput::optional(Float32) })
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [OperatorOutput::optional(Float32), OperatorOutput::optional(Uint8), OperatorOutput::optional(Float32)]
    }

    fn create_kernel<'attr>(&self, attributes: &KernelContext<'attr>) -> Result<BoxedKernel<'attr>> {
        let epsilon = attributes.get::<f32>("epsilon").unwrap_or_default();
        let activation = attributes.get::<i64>("activation").and_then(|index| Self::ACTIVATIONS.get(usize::try_from(index).ok()?).copied());
        let activation = activation.ok_or_else(|| Error::new("no attribute activation"))?;
        Ok(Box::new(move |context: &ComputeContext| compute(context, epsilon, activation)))
    }
}

fn compute(context: &ComputeContext, epsilon: f32, activation: Activation) -> Result<()> {
    let x = given(context, 0)?;
    let (shape, x) = elements::<f32>(&x)?;
    let [rows, width] = sizes("rows", shape)?;
    let n_inputs = context.num_inputs()?;
    let optional = |index| if index < n_inputs { context.input(index) } else { Ok(None) };
    let given = (1..BetweenProducts::N_INPUTS).map(optional).collect::<Result<Vec<Option<ValueRef<'_>>>>>()?;
    let given =
        given.iter().map(|value| value.as_ref().map(|value| Ok(elements::<f32>(value)?.1)).transpose()).collect::<Result<Vec<_>>>()?;
    let &[scale, bias, residual, weight, norm_bias] = given.as_slice() else { unreachable!("as many as are asked for") };
    for (what, tensor, size) in [
        ("scale", scale, rows),
        ("bias", bias, width),
        ("residual", residual, x.len()),
        ("weight", weight, width),
        ("norm bias", norm_bias, width),
    ] {
        if let Some(tensor) = tensor.filter(|tensor| tensor.len() != size) {
            return Err(expected(what, format!("{size} numbers for rows {shape}"), tensor.len()));
        }
    }
    let norm = weight.zip(norm_bias).map(|(weight, bias)| Norm { weight, bias, epsilon });
    let work = Rows { scale, bias, residual, norm, activation };

    let mut out = context.output(0, [rows, width])?;
    let (mut bytes, mut largest) = (context.output(1, [rows, width])?, context.output(2, [rows, 1])?);
    let (n, part) = (BetweenProducts::TOGETHER, BetweenProducts::TOGETHER * width.max(1));
    let out = out.as_mut().map(|out| Ok::<_, Error>(out.try_extract_tensor_mut::<f32>()?.1)).transpose()?;
    let bytes = bytes.as_mut().map(|bytes| Ok::<_, Error>(bytes.try_extract_tensor_mut::<u8>()?.1)).transpose()?;
    let largest = largest.as_mut().map(|largest| Ok::<_, Error>(largest.try_extract_tensor_mut::<f32>()?.1)).transpose()?;
    let places: Vec<Place<'_>> = match out {
        Some(out) if out.as_ptr() == x.as_ptr() => out.chunks_mut(part).map(Place::Over).collect(),
        Some(out) => x.chunks(part).zip(out.chunks_mut(part)).map(|(x, out)| Place::To(x, out)).collect(),
        None => x.chunks(part).map(Place::Nowhere).collect(),
    };
    let mut quantised = bytes.zip(largest).map(|(bytes, largest)| bytes.chunks_mut(part).zip(largest.chunks_mut(n)));
    let quantised = || quantised.as_mut()?.next().map(|(bytes, largest)| Quantised { bytes, largest });
    let parts: Vec<_> = places.into_iter().zip(std::iter::repeat_with(quantised)).collect();
    by_parts(context, parts.into_iter(), |index, (place, quantised)| work.apply(index * n, place, width, quantised))
}
