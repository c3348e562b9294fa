//! Columns of rows as heads: the keys and values that an encoder outputs.

use super::linear::Linear;
use super::rows::{BetweenProducts, Work};
use super::sizes::{Size, values};
use super::{Buffer, Call, Result, Step, Tensors, View, expected};
use cognate_kernels::{Activation, Place, Rows, round_to_f16};
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
    weights: Linear,
    /// Of a quantised product: the factor of each row, and the bias.
    end: Option<(usize, Vec<f32>)>,
    /// Outputs whose columns follow each other.
    groups: Vec<Vec<Heads>>,
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
        let n = self.weights.rows(call, self.x)?;
        if let Some((scale, _)) = self.end {
            let scale_rows = call.rows(scale)?;
            if scale_rows != n {
                return Err(expected("scale", format!("{n} numbers"), scale_rows));
            }
        }
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
        let x = (&call.elements[self.x], 0..n);
        self.weights.multiply(x, columns.clone(), out, call.tensors);
        if let Some((scale, bias)) = &self.end {
            let (scale, bias) = (Some(call.floats(*scale)), Some(&bias[columns.clone()]));
            let work = Work {
                rows: Rows { scale, bias, ..Rows::default() },
                width: columns.len(),
                threads: call.tensors,
            };
            work.apply(0, Place::Over(out), None);
        }
    }

    /// The buffers that it reads.
    pub(super) fn reads(&self) -> Vec<usize> {
        let scale = self.end.as_ref().map(|(scale, _)| *scale);
        [self.x].into_iter().chain(scale).collect()
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
        let [Step::Product { weights, out, .. }, ..] = &steps[first..] else { continue };
        let (out, after) = match (weights, steps.get(first + 1)) {
            (Linear::Floats(_), _) => (*out, first + 1),
            (Linear::Integers(_), Some(Step::Rows(rows))) if is_end(*out, rows) => {
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
        let Some(Step::Product { x, weights, .. }) = joined.next() else {
            unreachable!("matched above");
        };
        let end = joined.next().and_then(|step| match step {
            Step::Rows(BetweenProducts { scale, bias, .. }) => scale.zip(bias),
            _ => None,
        });
        drop(joined);
        steps.insert(first, Step::Divided(Divided { x, weights, end, groups }));
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
