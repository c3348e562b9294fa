//! Attention to caches that beams share, which also writes them: `DecoderMaskedMultiHeadAttention` of ONNX Runtime.

use super::{by_parts, elements, expected, given, sizes};
use ::ort::operator::{BoxedKernel, ComputeContext, KernelContext, Operator, OperatorInput, OperatorOutput};
use ::ort::value::TensorElementType::{Float32, Int32};
use ::ort::value::ValueRefMut;
use ::ort::{Error, Result};
use cognate_kernels::{Attention, Caches, Step};
use std::ops::RangeInclusive;

/// Inputs: `query, new key, new value: [rows, 1, heads · d_k]`, the caches of keys and of values `[rows, heads, capacity, d_k]`,
/// the number of places in use and that of beams `i32 [1]`, which beam holds each place `i32 [batch, beams, capacity]`, and
/// maybe a bias `[1, heads, 1, places]`. Outputs: the context `[rows, 1, heads · d_k]` and the caches with what is new, which
/// may lie where the inputs lie.
pub(super) struct CachedAttention;

impl CachedAttention {
    pub(super) const NAME: &str = "CachedAttention";
    pub(super) const BIAS: usize = 8;
}

impl Operator for CachedAttention {
    type Kernel<'attr> = BoxedKernel<'attr>;

    const INPLACES: &[(u32, u32)] = &[(3, 1), (4, 2)];

    fn name(&self) -> &str {
        Self::NAME
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        let tensor = || OperatorInput::required(Float32);
        let integers = || OperatorInput::required(Int32);
        let required = [tensor(), tensor(), tensor(), tensor(), tensor(), integers(), integers(), integers()];
        required.into_iter().chain([OperatorInput::optional(Float32)])
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [Float32; 3].map(OperatorOutput::required)
    }

    fn create_kernel<'attr>(&self, attributes: &KernelContext<'attr>) -> Result<BoxedKernel<'attr>> {
        let scale = attributes.get::<f32>("scale").ok_or_else(|| Error::new("no attribute scale"))?;
        Ok(Box::new(move |context: &ComputeContext| compute(context, scale)))
    }
}

fn compute(context: &ComputeContext, scale: f32) -> Result<()> {
    let [query, new_key, new_value, past, beams, places] =
        [given(context, 0)?, given(context, 1)?, given(context, 2)?, given(context, 5)?, given(context, 6)?, given(context, 7)?];
    let ((shape, query), (_, new_key), (_, new_value)) =
        (elements::<f32>(&query)?, elements::<f32>(&new_key)?, elements::<f32>(&new_value)?);
    let ((_, past), (_, beams), (_, places)) = (elements::<i32>(&past)?, elements::<i32>(&beams)?, elements::<i32>(&places)?);
    let [past, beams] = [past, beams].map(|count| count.first().and_then(|&count| usize::try_from(count).ok()));
    let (Some(past), Some(beams)) = (past, beams) else { return Err(Error::new("no number of places or beams")) };
    let bias = if context.num_inputs()? > CachedAttention::BIAS { context.input(CachedAttention::BIAS)? } else { None };
    let bias = bias.as_ref().map(elements::<f32>).transpose()?.map(|(_, bias)| bias);

    let [rows, heads, capacity, d_k] = sizes("cache", given(context, 3)?.shape())?;
    let [mut keys, mut values] = [written(context, 3, 1)?, written(context, 4, 2)?];
    let attention = Attention { heads, d_k, scale };
    let (keys, values) = (keys.try_extract_tensor_mut::<f32>()?.1, values.try_extract_tensor_mut::<f32>()?.1);
    if [query, new_key, new_value].iter().any(|tensor| tensor.len() != rows * attention.width()) {
        return Err(expected("query, key and value", format!("{rows} rows of {}", attention.width()), shape));
    }
    if keys.len() != values.len() {
        return Err(expected("values", format!("{} numbers, as keys", keys.len()), values.len()));
    }
    if past >= capacity || places.len() != rows * capacity || beams == 0 || rows % beams != 0 {
        let found = format!("place {past} of {capacity}, {} holders, {beams} beams", places.len());
        return Err(expected("places", format!("less than {capacity}, with holders for each of {rows} rows"), found));
    }
    if bias.is_some_and(|bias| bias.len() != heads * (past + 1)) {
        return Err(expected("bias", format!("[1, {heads}, 1, {}]", past + 1), "another"));
    }
    if let Some(beam) =
        places.chunks(capacity).flat_map(|places| &places[..past]).find(|&&beam| !usize::try_from(beam).is_ok_and(|beam| beam < beams))
    {
        return Err(expected("holders", format!("beams below {beams}"), beam));
    }
    let mut out = context.output(0, shape.to_vec())?.ok_or_else(|| Error::new("no output"))?;
    let out = out.try_extract_tensor_mut::<f32>()?.1;
    let (width, block) = (beams * attention.width(), beams * attention.width() * capacity);
    let sentences = out.chunks_mut(width.max(1)).zip(keys.chunks_mut(block.max(1)).zip(values.chunks_mut(block.max(1))));
    by_parts(context, sentences, |sentence, (out, (keys, values))| {
        let rows = sentence * width..(sentence + 1) * width;
        let holders = &places[sentence * beams * capacity..][..beams * capacity];
        let [query, key, value] = [query, new_key, new_value].map(|tensor| &tensor[rows.clone()]);
        attention.step(&Step { query, key, value, past, holders, bias }, Caches { keys, values, capacity }, out);
    })
}

/// The output as a cache with what the input holds; most often it lies where the input does.
fn written(context: &ComputeContext, input: usize, output: usize) -> Result<ValueRefMut<'_>> {
    let old = given(context, input)?;
    let (shape, from) = elements::<f32>(&old).map(|(shape, elements)| (shape.to_vec(), elements.as_ptr()))?;
    let mut new = context.output(output, shape)?.ok_or_else(|| Error::new("no output"))?;
    let elements_of_new = new.try_extract_tensor_mut::<f32>()?.1;
    if elements_of_new.as_ptr() != from {
        elements_of_new.copy_from_slice(elements::<f32>(&old)?.1);
    }
    Ok(new)
}
