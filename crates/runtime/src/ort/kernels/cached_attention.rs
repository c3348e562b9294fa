//! Attention to caches that beams share, which also writes them: a replacement of ONNX Runtime's
//! `DecoderMaskedMultiHeadAttention`.

use super::context::{Context, Over};
use super::operator::{Attributes, Operator, Parameter};
use super::{expected, sizes};
use ::ort::sys::ONNXTensorElementDataType::{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT as F32, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 as I32};
use ::ort::{Error, Result};
use cognate_kernels::{Attention, Caches, Step};
use std::ffi::{CStr, c_int};

/// Inputs: `query, new key, new value: [rows, 1, heads · d_k]`, the caches of keys and of values
/// `[rows, heads, capacity, d_k]`, the number of used positions and of beams `i32 [1]`, the beam of
/// each position `i32 [batch, beams, capacity]`, and optionally a bias `[1, heads, 1, positions]`.
/// Outputs: the context `[rows, 1, heads · d_k]` and the updated caches, which may be in the
/// inputs' memory.
pub(super) struct CachedAttention {
    scale: f32,
}

impl Operator for CachedAttention {
    const NAME: &'static CStr = c"CachedAttention";
    const INPUTS: &'static [Parameter] = {
        let (tensor, integers) = (Parameter::required(F32), Parameter::required(I32));
        &[tensor, tensor, tensor, tensor, tensor, integers, integers, integers, Parameter::optional(F32)]
    };
    const OUTPUTS: &'static [Parameter] = &[Parameter::required(F32); 3];
    const IN_PLACE: [&'static [c_int]; 2] = [&[3, 4], &[1, 2]];

    fn new(attributes: &Attributes<'_>) -> Result<Self> {
        Ok(Self { scale: attributes.float(c"scale").ok_or_else(|| Error::new("missing attribute scale"))? })
    }

    fn compute(&self, context: &Context<'_>) -> Result<()> {
        let [query, new_key, new_value] = [context.given::<f32>(0)?, context.given::<f32>(1)?, context.given::<f32>(2)?];
        let shape = query.shape;
        let [query, new_key, new_value] = [query.elements, new_key.elements, new_value.elements];
        let [past, beams, places] =
            [context.given::<i32>(5)?.elements, context.given::<i32>(6)?.elements, context.given::<i32>(7)?.elements];
        let [past, beams] = [past, beams].map(|count| count.first().and_then(|&count| usize::try_from(count).ok()));
        let (Some(past), Some(beams)) = (past, beams) else { return Err(Error::new("missing number of positions or beams")) };
        let bias = context.input::<f32>(8)?.map(|bias| bias.elements);

        let [(cache, keys), (_, values)] = [context.over::<f32>(3, 1)?, context.over::<f32>(4, 2)?];
        let ([rows, heads, capacity, d_k], keys, values) = (sizes("cache", &cache)?, written(keys)?, written(values)?);
        let attention = Attention { heads, d_k, scale: self.scale };
        if [query, new_key, new_value].iter().any(|tensor| tensor.len() != rows * attention.width()) {
            return Err(expected("query, key and value", format!("{rows} rows of {}", attention.width()), format!("{shape:?}")));
        }
        if keys.len() != values.len() {
            return Err(expected("values", format!("{} numbers, as keys", keys.len()), values.len()));
        }
        if past >= capacity || places.len() != rows * capacity || beams == 0 || rows % beams != 0 {
            let found = format!("position {past} of {capacity}, beams of {} positions, {beams} beams", places.len());
            return Err(expected("positions", format!("less than {capacity}, with a beam for each position of {rows} rows"), found));
        }
        if bias.is_some_and(|bias| bias.len() != heads * (past + 1)) {
            return Err(expected("bias", format!("[1, {heads}, 1, {}]", past + 1), "another"));
        }
        if let Some(beam) =
            places.chunks(capacity).flat_map(|places| &places[..past]).find(|&&beam| !usize::try_from(beam).is_ok_and(|beam| beam < beams))
        {
            return Err(expected("beams of positions", format!("less than {beams}"), beam));
        }
        let out = context.output::<f32>(0, &shape)?.ok_or_else(|| Error::new("missing output"))?;
        let (width, block) = (beams * attention.width(), beams * attention.width() * capacity);
        let sentences = out.chunks_mut(width.max(1)).zip(keys.chunks_mut(block.max(1)).zip(values.chunks_mut(block.max(1))));
        context.by_parts(sentences, |sentence, (out, (keys, values))| {
            let rows = sentence * width..(sentence + 1) * width;
            let holders = &places[sentence * beams * capacity..][..beams * capacity];
            let [query, key, value] = [query, new_key, new_value].map(|tensor| &tensor[rows.clone()]);
            attention.step(&Step { query, key, value, past, holders, bias }, Caches { keys, values, capacity }, out);
        })
    }
}

/// A cache to be written, with the contents of the input; usually both are the same memory.
fn written(cache: Over<'_, f32>) -> Result<&mut [f32]> {
    match cache {
        Over::Same(cache) => Ok(cache),
        Over::Apart(old, new) => {
            new.copy_from_slice(old);
            Ok(new)
        }
        Over::Unasked(_) => Err(Error::new("missing output for a cache")),
    }
}
