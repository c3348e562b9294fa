//! Attention to keys and values of whole sentences: those of the encoder, or the sentence's own.

use super::{by_parts, elements, expected, given, sizes};
use ::ort::operator::{BoxedKernel, ComputeContext, KernelContext, Operator, OperatorInput, OperatorOutput};
use ::ort::value::Shape;
use ::ort::value::TensorElementType::Float32;
use ::ort::{Error, Result};
use cognate_kernels::{Attention, Layout, MANY, Mask, Memory};
use std::ops::RangeInclusive;

/// Inputs: queries `[batch · n, heads · d_k]`, keys and values `[batch, heads, src, d_k]`, a mask that is added to scores,
/// `[batch, heads, n, src]` but for 1 where it is the same for all. Output: `[batch · n, heads · d_k]`.
pub(super) struct MemoryAttention;

/// Inputs: queries, keys and values side by side, `[batch · n, 3 · heads · d_k]`, and a mask as above. Output: `[batch · n, heads · d_k]`.
pub(super) struct SelfAttention;

impl MemoryAttention {
    pub(super) const NAME: &str = "MemoryAttention";
}

impl SelfAttention {
    pub(super) const NAME: &str = "SelfAttention";
}

impl Operator for MemoryAttention {
    type Kernel<'attr> = BoxedKernel<'attr>;

    fn name(&self) -> &str {
        Self::NAME
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        [Float32; 4].map(OperatorInput::required)
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [OperatorOutput::required(Float32)]
    }

    fn create_kernel<'attr>(&self, attributes: &KernelContext<'attr>) -> Result<BoxedKernel<'attr>> {
        let scale = attributes.get::<f32>("scale").ok_or_else(|| Error::new("no attribute scale"))?;
        Ok(Box::new(move |context: &ComputeContext| {
            let [queries, keys, values, mask] = [given(context, 0)?, given(context, 1)?, given(context, 2)?, given(context, 3)?];
            let ((rows, queries), (shape, keys)) = (elements::<f32>(&queries)?, elements::<f32>(&keys)?);
            let ((values_shape, values), (mask_shape, mask)) = (elements::<f32>(&values)?, elements::<f32>(&mask)?);
            let ([batch, heads, places, d_k], [n_rows, width]) = (sizes("keys", shape)?, sizes("queries", rows)?);
            if width != heads * d_k || batch == 0 || n_rows % batch != 0 || values_shape != shape {
                return Err(expected("queries and values", format!("what fits keys {shape}"), format!("{rows} and {values_shape}")));
            }
            let (attention, n) = (Attention { heads, d_k, scale }, n_rows / batch);
            let masks = Masks::new(mask, mask_shape, [batch, heads, n, places])?;
            let (layout, size) = (Layout { head: places * d_k, place: d_k }, width * places);
            let work = |sentence: usize, out: &mut [f32]| {
                let (keys, values) = (&keys[sentence * size..][..size], &values[sentence * size..][..size]);
                let memory = Memory { keys, values, layout, places, mask: masks.of(sentence), turned: n >= MANY };
                attention.read(&queries[sentence * n * width..][..n * width], width, &memory, out);
            };
            by_sentences(context, [n_rows, width], n, work)
        }))
    }
}

impl Operator for SelfAttention {
    type Kernel<'attr> = BoxedKernel<'attr>;

    fn name(&self) -> &str {
        Self::NAME
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        [Float32; 2].map(OperatorInput::required)
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [OperatorOutput::required(Float32)]
    }

    fn create_kernel<'attr>(&self, attributes: &KernelContext<'attr>) -> Result<BoxedKernel<'attr>> {
        let scale = attributes.get::<f32>("scale").ok_or_else(|| Error::new("no attribute scale"))?;
        let heads = attributes.get::<i64>("heads").and_then(|heads| usize::try_from(heads).ok()).filter(|&heads| heads > 0);
        let heads = heads.ok_or_else(|| Error::new("no attribute heads"))?;
        Ok(Box::new(move |context: &ComputeContext| {
            let [rows, mask] = [given(context, 0)?, given(context, 1)?];
            let ((shape, rows), (mask_shape, mask)) = (elements::<f32>(&rows)?, elements::<f32>(&mask)?);
            let ([n_rows, stride], [_, _, _, n]) = (sizes("rows", shape)?, sizes("mask", mask_shape)?);
            if stride % (3 * heads) != 0 || (n == 0) != (n_rows == 0) || n_rows % n.max(1) != 0 {
                return Err(expected("rows", format!("queries, keys and values of {heads} heads in sentences of {n}"), shape));
            }
            let (attention, width) = (Attention { heads, d_k: stride / 3 / heads, scale }, stride / 3);
            let masks = Masks::new(mask, mask_shape, [n_rows / n.max(1), heads, n, n])?;
            let layout = Layout { head: attention.d_k, place: stride };
            let work = |sentence: usize, out: &mut [f32]| {
                let rows = &rows[sentence * n * stride..][..n * stride];
                let memory =
                    Memory { keys: &rows[width..], values: &rows[2 * width..], layout, places: n, mask: masks.of(sentence), turned: true };
                attention.read(rows, stride, &memory, out);
            };
            by_sentences(context, [n_rows, width], n, work)
        }))
    }
}

/// Calls `work` with the `n` rows of each sentence of the output.
fn by_sentences(context: &ComputeContext, shape: [usize; 2], n: usize, work: impl Fn(usize, &mut [f32]) + Sync + Send) -> Result<()> {
    let mut out = context.output(0, shape)?.ok_or_else(|| Error::new("no output"))?;
    let out = out.try_extract_tensor_mut::<f32>()?.1;
    by_parts(context, out.chunks_mut((n * shape[1]).max(1)), work)
}

/// The masks of a batch.
struct Masks<'m> {
    numbers: &'m [f32],
    /// How far apart those of two sentences, heads and queries begin.
    strides: [usize; 3],
}

impl<'m> Masks<'m> {
    fn new(numbers: &'m [f32], shape: &Shape, full: [usize; 4]) -> Result<Self> {
        let found: [usize; 4] = sizes("mask", shape)?;
        if found[3] != full[3] || found.iter().zip(full).any(|(&found, full)| found != full && found != 1) {
            return Err(expected("mask", format!("{full:?}, or 1 for the same"), shape));
        }
        let stride = |axis: usize| if found[axis] == 1 { 0 } else { found[axis + 1..].iter().product() };
        Ok(Self { numbers, strides: [stride(0), stride(1), stride(2)] })
    }

    fn of(&self, sentence: usize) -> Mask<'m> {
        let [start, head, query] = self.strides;
        Mask { numbers: &self.numbers[sentence * start..], head, query }
    }
}
