//! Attention to keys and values of whole sentences: cross-attention, or self-attention
//! of the encoder.

use super::context::{Context, Input};
use super::operator::{Attributes, Operator, Parameter};
use super::{expected, sizes};
use ::ort::sys::ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT as F32;
use ::ort::{Error, Result};
use cognate_kernels::{Attention, MANY, Mask, Memory, Strides};
use std::ffi::CStr;

/// Inputs: queries `[batch · n, heads · d_k]`, keys and values `[batch, heads, src, d_k]`, a mask
/// added to the scores, which is broadcast to `[batch, heads, n, src]`. Output:
/// `[batch · n, heads · d_k]`.
pub(super) struct MemoryAttention {
    scale: f32,
}

/// Inputs: queries, keys and values in one tensor, `[batch · n, 3 · heads · d_k]`, and a mask as
/// above. Output: `[batch · n, heads · d_k]`.
pub(super) struct SelfAttention {
    scale: f32,
    heads: usize,
}

impl Operator for MemoryAttention {
    const NAME: &'static CStr = c"MemoryAttention";
    const INPUTS: &'static [Parameter] = &[Parameter::required(F32); 4];
    const OUTPUTS: &'static [Parameter] = &[Parameter::required(F32)];

    fn new(attributes: &Attributes<'_>) -> Result<Self> {
        Ok(Self { scale: scale(attributes)? })
    }

    fn compute(&self, context: &Context<'_>) -> Result<()> {
        let [queries, keys] = [context.given::<f32>(0)?, context.given::<f32>(1)?];
        let [values, mask] = [context.given::<f32>(2)?, context.given::<f32>(3)?];
        let ([batch, heads, places, d_k], [n_rows, width]) = (sizes("keys", &keys.shape)?, sizes("queries", &queries.shape)?);
        if width != heads * d_k || batch == 0 || n_rows % batch != 0 || values.shape != keys.shape {
            let found = format!("{:?} and {:?}", queries.shape, values.shape);
            return Err(expected("queries and values", format!("shapes that match keys {:?}", keys.shape), found));
        }
        let (attention, n) = (Attention { heads, d_k, scale: self.scale }, n_rows / batch);
        let masks = Masks::new(&mask, [batch, heads, n, places])?;
        let (strides, size) = (Strides { head: places * d_k, place: d_k }, width * places);
        let (queries, keys, values) = (queries.elements, keys.elements, values.elements);
        let work = |sentence: usize, out: &mut [f32]| {
            let (keys, values) = (&keys[sentence * size..][..size], &values[sentence * size..][..size]);
            let memory = Memory { keys, values, strides, places, mask: masks.of(sentence), turned: n >= MANY };
            attention.read(&queries[sentence * n * width..][..n * width], width, &memory, out);
        };
        by_sentences(context, [n_rows, width], n, work)
    }
}

impl Operator for SelfAttention {
    const NAME: &'static CStr = c"SelfAttention";
    const INPUTS: &'static [Parameter] = &[Parameter::required(F32); 2];
    const OUTPUTS: &'static [Parameter] = &[Parameter::required(F32)];

    fn new(attributes: &Attributes<'_>) -> Result<Self> {
        let heads = attributes.integer(c"heads").and_then(|heads| usize::try_from(heads).ok()).filter(|&heads| heads > 0);
        Ok(Self { scale: scale(attributes)?, heads: heads.ok_or_else(|| Error::new("missing attribute heads"))? })
    }

    fn compute(&self, context: &Context<'_>) -> Result<()> {
        let ([rows, mask], heads) = ([context.given::<f32>(0)?, context.given::<f32>(1)?], self.heads);
        let ([n_rows, stride], [_, _, _, n]) = (sizes("rows", &rows.shape)?, sizes("mask", &mask.shape)?);
        if stride % (3 * heads) != 0 || (n == 0) != (n_rows == 0) || n_rows % n.max(1) != 0 {
            let wanted = format!("queries, keys and values of {heads} heads in sentences of {n}");
            return Err(expected("rows", wanted, format!("{:?}", rows.shape)));
        }
        let (attention, width) = (Attention { heads, d_k: stride / 3 / heads, scale: self.scale }, stride / 3);
        let masks = Masks::new(&mask, [n_rows / n.max(1), heads, n, n])?;
        let strides = Strides { head: attention.d_k, place: stride };
        let work = |sentence: usize, out: &mut [f32]| {
            let rows = &rows.elements[sentence * n * stride..][..n * stride];
            let memory =
                Memory { keys: &rows[width..], values: &rows[2 * width..], strides, places: n, mask: masks.of(sentence), turned: true };
            attention.read(rows, stride, &memory, out);
        };
        by_sentences(context, [n_rows, width], n, work)
    }
}

fn scale(attributes: &Attributes<'_>) -> Result<f32> {
    attributes.float(c"scale").ok_or_else(|| Error::new("missing attribute scale"))
}

/// Calls `work` with the `n` rows of each sentence of the output.
fn by_sentences(context: &Context<'_>, shape: [usize; 2], n: usize, work: impl Fn(usize, &mut [f32]) + Sync) -> Result<()> {
    let out = context.output::<f32>(0, &shape)?.ok_or_else(|| Error::new("missing output"))?;
    context.by_parts(out.chunks_mut((n * shape[1]).max(1)), work)
}

/// The masks of a batch.
struct Masks<'m> {
    numbers: &'m [f32],
    /// The strides of sentences, heads and queries.
    strides: [usize; 3],
}

impl<'m> Masks<'m> {
    fn new(mask: &Input<'m, f32>, full: [usize; 4]) -> Result<Self> {
        let found: [usize; 4] = sizes("mask", &mask.shape)?;
        if found[3] != full[3] || found.iter().zip(full).any(|(&found, full)| found != full && found != 1) {
            return Err(expected("mask", format!("{full:?}, or 1 for the same"), format!("{found:?}")));
        }
        let stride = |axis: usize| if found[axis] == 1 { 0 } else { found[axis + 1..].iter().product() };
        Ok(Self { numbers: mask.elements, strides: [stride(0), stride(1), stride(2)] })
    }

    fn of(&self, sentence: usize) -> Mask<'m> {
        let [start, head, query] = self.strides;
        Mask { numbers: &self.numbers[sentence * start..], head, query }
    }
}
