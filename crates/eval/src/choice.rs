//! Elements of the last axis by their positions, and the positions of the largest.

use crate::ops::{INFERRED, float, int};
use crate::{Float, Value};
use cognate_graph::Ranked;
use ndarray::{ArcArray, Array, Axis, IxDyn};
use std::cmp::Ordering;

/// `x: [..., n]`, `ids: [..., m]` -> `[..., m]`. The error is the first id outside of a row, with
/// its length.
pub(crate) fn gather_elements<F: Float>(
    x: &Value<F>,
    ids: &Value<F>,
) -> Result<Value<F>, (i64, usize)> {
    fn taken<T: Copy>(
        x: &ArcArray<T, IxDyn>,
        ids: &ArcArray<i64, IxDyn>,
    ) -> Result<ArcArray<T, IxDyn>, (i64, usize)> {
        let mut found = Vec::with_capacity(ids.len());
        for (row, ids) in x.rows().into_iter().zip(ids.rows()) {
            for &id in ids {
                found.push(row[position(id, row.len())?]);
            }
        }
        Ok(ArcArray::from_shape_vec(ids.raw_dim(), found).expect(INFERRED))
    }
    let ids = int(ids);
    Ok(match x {
        Value::Float(x) => Value::Float(taken(x, ids)?),
        Value::Int(x) => Value::Int(taken(x, ids)?),
        Value::Bool(x) => Value::Bool(taken(x, ids)?),
    })
}

/// `x: [..., n]`, `ids, updates: [..., m]` -> `[..., n]`. The error is as above.
pub(crate) fn scatter_elements<F: Float>(
    x: &Value<F>,
    ids: &Value<F>,
    updates: &Value<F>,
) -> Result<Value<F>, (i64, usize)> {
    let mut x = float(x).to_owned();
    for ((mut row, ids), updates) in
        x.rows_mut().into_iter().zip(int(ids).rows()).zip(float(updates).rows())
    {
        let width = row.len();
        for (&id, &update) in ids.iter().zip(updates) {
            row[position(id, width)?] += update;
        }
    }
    Ok(Value::Float(x.into_shared()))
}

fn position(id: i64, width: usize) -> Result<usize, (i64, usize)> {
    usize::try_from(id).ok().filter(|&id| id < width).ok_or((id, width))
}

/// `[..., n]` -> `[..., count]`
pub(crate) fn top_k<F: Float>(count: usize, result: Ranked, x: &Value<F>) -> Value<F> {
    let ids = match x {
        Value::Float(x) => positions(count, x, |a, b| b.partial_cmp(a).unwrap_or(Ordering::Equal)),
        Value::Int(x) => positions(count, x, |a, b| b.cmp(a)),
        Value::Bool(_) => unreachable!("{INFERRED}"),
    };
    match result {
        Ranked::Positions => Value::Int(ids),
        Ranked::Values => gather_elements(x, &Value::Int(ids)).expect("they are positions"),
    }
}

/// The positions of the first `count` elements of each row in this order; equal elements keep
/// theirs.
fn positions<T: Copy>(
    count: usize,
    x: &ArcArray<T, IxDyn>,
    order: impl Fn(&T, &T) -> Ordering,
) -> ArcArray<i64, IxDyn> {
    let mut shape = x.raw_dim();
    shape[x.ndim() - 1] = count;
    let mut found = Vec::new();
    for row in x.lanes(Axis(x.ndim() - 1)) {
        let mut ids: Vec<usize> = (0..row.len()).collect();
        let in_order = |a: &usize, b: &usize| order(&row[*a], &row[*b]).then(a.cmp(b));
        if count < ids.len() {
            ids.select_nth_unstable_by(count, in_order);
            ids.truncate(count);
        }
        ids.sort_unstable_by(in_order);
        found.extend(ids.into_iter().map(|id| id as i64));
    }
    Array::from_shape_vec(shape, found).expect(INFERRED).into_shared()
}
