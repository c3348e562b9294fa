//! Columns of rows as heads: the keys and values that an encoder outputs.

use super::rows::BetweenProducts;
use super::sizes::{Size, values};
use super::{Call, Result, Step, Tensors, View, by_parts, expected};
use cognate_kernels::{Activation, IntegerWeights, Place, Rows, round_to_f16};

/// Columns of rows `[batch · n, heads · d_k]` as an output `[batch, heads, n, d_k]`.
pub(super) struct Heads {
    pub(super) x: View,
    /// `[batch, n, heads, d_k]`; a batch of -1 is inferred from the number of rows.
    pub(super) sizes: Vec<Size>,
    pub(super) output: usize,
    /// Whether the output has half precision.
    pub(super) half: bool,
}

/// A product of which all columns become heads. It is computed for the columns of one output at a
/// time: all columns of a window of speech would take 37 MB in Whisper's base shape.
pub(super) struct Divided {
    pub(super) x: usize,
    weights: IntegerWeights,
    /// The factor of each row.
    pub(super) scale: usize,
    bias: Vec<f32>,
    heads: Vec<Heads>,
}

impl Heads {
    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let (n_rows, stride) =
            (call.rows(self.x.buffer)?, call.program.buffers[self.x.buffer].width);
        let rows = &call.floats(self.x.buffer)[self.x.offset.min(n_rows * stride)..];
        self.write(call.tensors, (rows, stride), n_rows)
    }

    /// Writes the output from rows that are a stride apart.
    fn write<'c>(
        &self,
        tensors: &dyn Tensors<'c>,
        (rows, stride): (&[f32], usize),
        n_rows: usize,
    ) -> Result<()> {
        let is_open = matches!(self.sizes.first(), Some(Size::Number(-1)));
        let mut sizes = values(&self.sizes[usize::from(is_open)..], tensors)?;
        if is_open {
            sizes.insert(0, n_rows / sizes.first().copied().unwrap_or(0).max(1));
        }
        let [batch, n, heads, d_k] = sizes[..] else {
            return Err(expected("sizes", "batch, n, heads and d_k", format!("{sizes:?}")));
        };
        if batch * n != n_rows || heads * d_k != self.x.width {
            return Err(expected(
                "sizes",
                format!("those of {n_rows} rows of {}", self.x.width),
                format!("{sizes:?}"),
            ));
        }
        let row = |index: usize| {
            let (place, head, sentence) = (index % n, index / n % heads, index / n / heads);
            &rows[(sentence * n + place) * stride + head * d_k..][..d_k]
        };
        let shape = [batch, heads, n, d_k];
        if self.half {
            let out = tensors.new_halves(self.output, &shape)?;
            let out = out.chunks_exact_mut(d_k.max(1)).enumerate();
            out.for_each(|(index, to)| round_to_f16(row(index), to));
        } else {
            let out = tensors.new_floats(self.output, &shape)?;
            let out = out.chunks_exact_mut(d_k.max(1)).enumerate();
            out.for_each(|(index, to)| to.copy_from_slice(row(index)));
        }
        Ok(())
    }
}

impl Divided {
    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        call.load(self.x, true)?;
        let (tensors, x, scale_rows) = (call.tensors, self.x, call.rows(self.scale)?);
        let x = call.elements[x].bytes();
        let n = x.len() / self.weights.inputs().max(1);
        if scale_rows != n {
            return Err(expected("scale", format!("{n} numbers"), scale_rows));
        }
        let scale = Some(call.floats(self.scale));
        let widest = self.heads.iter().map(|heads| heads.x.width).max().unwrap_or(0);
        let mut all = vec![0.0; n * widest];
        for heads in &self.heads {
            let View { offset, width, .. } = heads.x;
            let (columns, rows) = (offset..offset + width, &mut all[..n * width]);
            self.weights.multiply_columns(x, columns.clone(), rows, tensors);
            let (bias, activation) = (Some(&self.bias[columns]), Activation::Identity);
            let end = Rows { scale, bias, residual: None, norm: None, activation };
            let parts = rows.chunks_mut((BetweenProducts::TOGETHER * width).max(1));
            by_parts(tensors, parts, |index, part| {
                end.apply(index * BetweenProducts::TOGETHER, Place::Over(part), width, None);
            });
            heads.write(tensors, (rows, width), n)?;
        }
        Ok(())
    }
}

/// Number of columns of which every panel of weights has a part or all.
const ALIGNED: usize = 64;

/// Joins a quantised product, its end and the heads of its columns where nothing else reads them.
pub(super) fn divide(mut steps: Vec<Step>) -> Vec<Step> {
    let is_end = |product: &Step, end: &Step| {
        let (Step::IntegerProduct { out, .. }, Step::Rows(rows)) = (product, end) else {
            return false;
        };
        let is_linear = rows.residual.is_none()
            && rows.norm.is_none()
            && rows.activation == Activation::Identity
            && rows.quantised.is_none();
        rows.x == *out
            && rows.out == Some(*out)
            && is_linear
            && rows.scale.is_some()
            && rows.bias.is_some()
    };
    let places = 0..steps.len().saturating_sub(1);
    for first in places.rev() {
        if !is_end(&steps[first], &steps[first + 1]) {
            continue;
        }
        let Step::IntegerProduct { out, .. } = steps[first] else { continue };
        let reads = |step: &Step| step.buffers().0.contains(&out);
        let is_aligned = |step: &Step| match step {
            Step::Heads(Heads { x, .. }) => x.offset % ALIGNED == 0 && x.width % ALIGNED == 0,
            _ => false,
        };
        let mut readers = steps[first + 2..].iter().filter(|step| reads(step)).peekable();
        if readers.peek().is_none() || !readers.all(is_aligned) {
            continue;
        }
        let mut after = steps.split_off(first);
        let heads = after.extract_if(2.., |step| reads(step));
        let heads =
            heads.filter_map(|step| if let Step::Heads(heads) = step { Some(heads) } else { None });
        let heads: Vec<_> = heads.collect();
        let mut after = after.into_iter();
        let (Some(Step::IntegerProduct { x, weights, .. }), Some(Step::Rows(end))) =
            (after.next(), after.next())
        else {
            unreachable!("is_end: a product and its end")
        };
        let (Some(scale), Some(bias)) = (end.scale, end.bias) else {
            unreachable!("is_end: with factors and bias")
        };
        steps.push(Step::Divided(Divided { x, weights, scale, bias, heads }));
        steps.extend(after);
    }
    steps
}
