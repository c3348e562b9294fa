//! Operations on weights that stay in their storage: a few rows at a time are read and converted to
//! the evaluator's precision, so that a model is not in memory twice.

use cognate_graph::Recipe;
use ndarray::linalg::general_mat_mul;
use ndarray::{ArcArray, Array2, ArrayView2, ArrayViewMut2, Axis};
use std::num::NonZeroUsize;
use std::thread;

use crate::ops::{INFERRED, float, int};
use crate::{Float, Value};

/// Number of converted elements of a weight; they fit into a processor's cache.
const HELD: usize = 1 << 15;

/// Minimum number of elements of a weight for which starting a thread is worthwhile.
const LEAST_OF_THREAD: usize = 1 << 16;

/// `x: [..., width]`, `weight: [outputs, width]` -> `[..., outputs]`; the outputs are divided among
/// `threads`.
pub(crate) fn linear<F: Float>(
    x: &Value<F>,
    weight: &Recipe,
    bias: Option<&Value<F>>,
    threads: NonZeroUsize,
) -> Value<F> {
    let x = float(x);
    let (outputs, width) = (weight.shape()[0], weight.shape()[1]);
    let leading = &x.shape()[..x.ndim() - 1];
    let x = x.to_shape((leading.iter().product(), width)).expect(INFERRED);
    let mut out = Array2::zeros((x.nrows(), outputs));
    let step = (HELD / width.max(1)).clamp(1, outputs.max(1));
    let compute = |(mut out, first): (ArrayViewMut2<'_, F>, usize)| {
        let mut rows = Rows::new();
        for (mut out, first) in out.axis_chunks_iter_mut(Axis(1), step).zip((first..).step_by(step))
        {
            let count = out.ncols();
            let rows = ArrayView2::from_shape((count, width), rows.read(weight, first, count))
                .expect(INFERRED);
            // The long side of a weight is the one that the product's kernel divides into larger
            // pieces.
            general_mat_mul(
                F::one(),
                &rows,
                &x.t(),
                F::zero(),
                &mut out.view_mut().reversed_axes(),
            );
        }
    };
    let n_parts = threads.get().min(outputs * width / LEAST_OF_THREAD).max(1);
    let part = outputs.div_ceil(n_parts).max(1);
    thread::scope(|scope| {
        let mut parts = out.axis_chunks_iter_mut(Axis(1), part).zip((0..).step_by(part));
        let own = parts.next();
        parts.for_each(|part| drop(scope.spawn(|| compute(part))));
        own.into_iter().for_each(compute);
    });
    if let Some(bias) = bias {
        out += &float(bias).view();
    }
    let shape = [leading, &[outputs]].concat();
    Value::Float(out.into_shape_with_order(shape).expect(INFERRED).into_shared())
}

/// `table: [rows, width]`, `ids: [...]` -> `[..., width]`. The error is the first id out of range,
/// with the number of rows.
pub(crate) fn gather<F: Float>(table: &Recipe, ids: &Value<F>) -> Result<Value<F>, (i64, usize)> {
    let (count, ids) = (table.shape()[0], int(ids));
    let (mut taken, mut rows) = (Vec::with_capacity(ids.len() * table.shape()[1]), Rows::new());
    for &id in ids {
        let row = usize::try_from(id).ok().filter(|&row| row < count).ok_or((id, count))?;
        taken.extend_from_slice(rows.read(table, row, 1));
    }
    let shape = [ids.shape(), &table.shape()[1..]].concat();
    Ok(Value::Float(ArcArray::from_shape_vec(shape, taken).expect(INFERRED)))
}

/// Rows of a weight, as stored and in the evaluator's precision.
struct Rows<F> {
    stored: Vec<f32>,
    converted: Vec<F>,
}

impl<F: Float> Rows<F> {
    fn new() -> Self {
        Self { stored: Vec::new(), converted: Vec::new() }
    }

    fn read(&mut self, weight: &Recipe, first: usize, count: usize) -> &[F] {
        let width = weight.shape()[1];
        self.stored.resize(count * width, 0.0);
        weight.read(first * width, &mut self.stored);
        self.converted.clear();
        self.converted.extend(self.stored.iter().map(|&value| <F as From<f32>>::from(value)));
        &self.converted
    }
}
