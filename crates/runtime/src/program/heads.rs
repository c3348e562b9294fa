//! Columns of rows as heads: the keys and values that an encoder outputs.

use super::product::Packed;
use super::rows::BetweenProducts;
use super::sizes::{Size, values};
use super::{Buffer, Call, Result, Step, Tensors, View, by_parts, expected};
use cognate_kernels::{Activation, IntegerWeights, Place, Rows, round_to_f16};
use std::ops::Range;

/// Columns of rows `[batch · n, heads · d_k]` as an output `[batch, heads, n, d_k]`.
pub(super) struct Heads {
    pub(super) x: View,
    /// `[batch, n, heads, d_k]`; a batch of -1 is inferred from the number of rows.
    pub(super) sizes: Vec<Size>,
    pub(super) output: usize,
    /// Whether the output has half precision.
    pub(super) half: bool,
}

/// A product of which all columns become heads. It is computed for the columns of a few outputs at a
/// time: all columns of a window of speech would take 37 MB in Whisper's base shape.
pub(super) struct Divided {
    x: usize,
    product: Joined,
    /// Outputs whose columns follow each other.
    groups: Vec<Vec<Heads>>,
}

/// The weights of a product, and what follows it.
enum Joined {
    Floats(Packed),
    Integers {
        weights: IntegerWeights,
        /// The factor of each row.
        scale: usize,
        bias: Vec<f32>,
    },
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
        let n = match &self.product {
            Joined::Floats(_) => call.rows(self.x)?,
            Joined::Integers { weights, scale, .. } => {
                call.load(self.x, true)?;
                let n = call.elements[self.x].bytes().len() / weights.inputs().max(1);
                let scale_rows = call.rows(*scale)?;
                if scale_rows != n {
                    return Err(expected("scale", format!("{n} numbers"), scale_rows));
                }
                n
            }
        };
        let widest = self.groups.iter().map(|group| columns_of(group).len()).max();
        let mut all = vec![0.0; n * widest.unwrap_or(0)];
        for group in &self.groups {
            let columns = columns_of(group);
            let (start, width) = (columns.start, columns.len());
            let rows = &mut all[..n * width];
            self.multiply(call, n, columns, rows);
            for heads in group {
                heads.write(call.tensors, (&rows[heads.x.offset - start..], width), n)?;
            }
        }
        Ok(())
    }

    /// Some columns of the product of `n` rows.
    fn multiply(&self, call: &Call<'_, '_>, n: usize, columns: Range<usize>, out: &mut [f32]) {
        match &self.product {
            Joined::Floats(weights) => {
                let x = &call.floats(self.x)[..n * weights.inputs()];
                weights.multiply_columns(x, columns, out, call.tensors);
            }
            Joined::Integers { weights, scale, bias } => {
                let (x, width) = (call.elements[self.x].bytes(), columns.len());
                weights.multiply_columns(x, columns.clone(), out, call.tensors);
                let (scale, bias) = (Some(call.floats(*scale)), Some(&bias[columns]));
                let activation = Activation::Identity;
                let end = Rows { scale, bias, residual: None, norm: None, activation };
                let parts = out.chunks_mut((BetweenProducts::TOGETHER * width).max(1));
                by_parts(call.tensors, parts, |index, part| {
                    end.apply(index * BetweenProducts::TOGETHER, Place::Over(part), width, None);
                });
            }
        }
    }

    /// The buffers that it reads.
    pub(super) fn reads(&self) -> Vec<usize> {
        match self.product {
            Joined::Floats(_) => vec![self.x],
            Joined::Integers { scale, .. } => vec![self.x, scale],
        }
    }
}

/// The columns of outputs that follow each other.
fn columns_of(group: &[Heads]) -> Range<usize> {
    let end = |heads: &Heads| heads.x.offset + heads.x.width;
    group.first().map_or(0, |heads| heads.x.offset)..group.last().map_or(0, end)
}

/// Number of columns of which every panel of weights has a part or all.
const ALIGNED: usize = 64;

/// The largest number of columns of several outputs that are multiplied at once.
const AT_ONCE: usize = 512;

/// Joins a product and the heads of its columns where nothing else reads them; a quantised product
/// with what follows it.
pub(super) fn divide(mut steps: Vec<Step>, buffers: &[Buffer]) -> Vec<Step> {
    for first in (0..steps.len()).rev() {
        let (out, after) = match &steps[first..] {
            [Step::Product { out, .. }, ..] => (*out, first + 1),
            [Step::IntegerProduct { out, .. }, Step::Rows(rows), ..] if is_end(*out, rows) => {
                (*out, first + 2)
            }
            _ => continue,
        };
        let reads = |step: &Step| step.buffers().0.contains(&out);
        let is_aligned = |step: &Step| match step {
            Step::Heads(Heads { x, .. }) => x.offset % ALIGNED == 0 && x.width % ALIGNED == 0,
            _ => false,
        };
        let mut readers = steps[after..].iter().filter(|step| reads(step)).peekable();
        if buffers[out].is_output() || readers.peek().is_none() || !readers.all(is_aligned) {
            continue;
        }
        let mut groups: Vec<Vec<Heads>> = Vec::new();
        for step in steps.extract_if(after.., |step| reads(step)) {
            let Step::Heads(heads) = step else { unreachable!("all readers are heads") };
            match groups.last_mut() {
                Some(group) if follows(group, &heads) => group.push(heads),
                _ => groups.push(vec![heads]),
            }
        }
        let mut joined = steps.drain(first..after);
        let (x, product) = match (joined.next(), joined.next()) {
            (Some(Step::Product { x, weights, .. }), None) => (x, Joined::Floats(weights)),
            (
                Some(Step::IntegerProduct { x, weights, .. }),
                Some(Step::Rows(BetweenProducts { scale: Some(scale), bias: Some(bias), .. })),
            ) => (x, Joined::Integers { weights, scale, bias }),
            _ => unreachable!("a product, or a quantised one and its end"),
        };
        drop(joined);
        steps.insert(first, Step::Divided(Divided { x, product, groups }));
    }
    steps
}

/// Whether a step only multiplies the quantised product `out` by factors and adds a bias.
fn is_end(out: usize, rows: &BetweenProducts) -> bool {
    rows.x == out
        && rows.out == Some(out)
        && rows.residual.is_none()
        && rows.norm.is_none()
        && rows.activation == Activation::Identity
        && rows.quantised.is_none()
        && rows.scale.is_some()
        && rows.bias.is_some()
}

/// Whether the columns of an output can be multiplied with those before.
fn follows(group: &[Heads], heads: &Heads) -> bool {
    let before = columns_of(group);
    before.end == heads.x.offset && before.len() + heads.x.width <= AT_ONCE
}
