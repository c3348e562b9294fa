//! Sums, expansions and statistics of rows.

use crate::ops::{INFERRED, binary, float, int};
use crate::{Float, Value};
use cognate_graph::{Binary, Statistic};
use ndarray::{ArcArray, Axis, Ix2, IxDyn, LinalgScalar};

/// Sums along `axes`, each of which keeps size 1.
pub(crate) fn sum<F: Float>(axes: &[usize], x: &Value<F>) -> Value<F> {
    fn along<T: LinalgScalar>(axes: &[usize], x: &ArcArray<T, IxDyn>) -> ArcArray<T, IxDyn> {
        let summed = axes
            .iter()
            .fold(x.to_owned(), |x, &axis| x.sum_axis(Axis(axis)).insert_axis(Axis(axis)));
        summed.as_standard_layout().into_owned().into_shared()
    }
    match x {
        Value::Float(x) => Value::Float(along(axes, x)),
        Value::Int(x) => Value::Int(along(axes, x)),
        Value::Bool(_) => unreachable!("{INFERRED}"),
    }
}

/// Broadcast to `shape`; `None` if the sizes do not fit at run time.
pub(crate) fn expand<F: Float>(x: &Value<F>, shape: &[usize]) -> Option<Value<F>> {
    fn to<T: Clone>(x: &ArcArray<T, IxDyn>, shape: &[usize]) -> Option<ArcArray<T, IxDyn>> {
        Some(x.broadcast(shape)?.as_standard_layout().into_owned().into_shared())
    }
    Some(match x {
        Value::Float(x) => Value::Float(to(x, shape)?),
        Value::Int(x) => Value::Int(to(x, shape)?),
        Value::Bool(x) => Value::Bool(to(x, shape)?),
    })
}

/// `table: [rows, ...]`, `ids: [a, b]`, `updates: [a, b, ...]`. The error is the first id outside
/// the table, with the number of rows.
pub(crate) fn scatter_add<F: Float>(
    table: &Value<F>,
    ids: &Value<F>,
    updates: &Value<F>,
) -> Result<Value<F>, (i64, usize)> {
    let (mut table, ids) = (float(table).to_owned(), int(ids));
    let rows = table.len_of(Axis(0));
    let row_shape = table.shape()[1..].to_vec();
    let updates =
        float(updates).to_shape([&[ids.len()], row_shape.as_slice()].concat()).expect(INFERRED);
    for (&id, update) in ids.iter().zip(updates.outer_iter()) {
        let row = usize::try_from(id).ok().filter(|&row| row < rows).ok_or((id, rows))?;
        let mut row = table.index_axis_mut(Axis(0), row);
        row += &update;
    }
    Ok(Value::Float(table.into_shared()))
}

/// Product of two matrices, each optionally transposed.
pub(crate) fn gemm<F: Float>(transposed: [bool; 2], left: &Value<F>, right: &Value<F>) -> Value<F> {
    let matrix = |value, turn| {
        let matrix = float(value).view().into_dimensionality::<Ix2>().expect(INFERRED);
        if turn { matrix.reversed_axes() } else { matrix }
    };
    let product = matrix(left, transposed[0]).dot(&matrix(right, transposed[1]));
    Value::Float(product.as_standard_layout().into_owned().into_dyn().into_shared())
}

/// `ln Σ exp(x)` along the last axis: `[..., n]` -> `[..., 1]`
pub(crate) fn log_sum_exp<F: Float>(x: &Value<F>) -> Value<F> {
    of_rows(x, |row| {
        let largest = row.iter().fold(F::neg_infinity(), |largest, &x| largest.max(x));
        let sum = row.iter().fold(F::zero(), |sum, &x| sum + (x - largest).exp());
        largest + sum.ln()
    })
}

/// `exp(x - max(x))` along the last axis.
pub(crate) fn shifted_exp<F: Float>(x: &Value<F>) -> Value<F> {
    let mut out = float(x).to_owned();
    for mut row in out.rows_mut() {
        let largest = row.fold(F::neg_infinity(), |largest, &x| largest.max(x));
        row.mapv_inplace(|x| (x - largest).exp());
    }
    Value::Float(out.into_shared())
}

/// The mean of each row, or `1 / sqrt(variance + epsilon)`: `[..., n]` -> `[..., 1]`
pub(crate) fn layer_norm_statistic<F: Float>(
    statistic: Statistic,
    x: &Value<F>,
    epsilon: f32,
) -> Value<F> {
    of_rows(x, |row| {
        let width = F::from_int(row.len() as i64);
        let mean = row.iter().fold(F::zero(), |sum, &x| sum + x) / width;
        match statistic {
            Statistic::Mean => mean,
            Statistic::InverseDeviation => {
                let variance =
                    row.iter().fold(F::zero(), |sum, &x| sum + (x - mean) * (x - mean)) / width;
                F::one() / (variance + <F as From<f32>>::from(epsilon)).sqrt()
            }
        }
    })
}

fn of_rows<F: Float>(x: &Value<F>, number: impl Fn(&[F]) -> F) -> Value<F> {
    let x = float(x).as_standard_layout();
    let last = Axis(x.ndim() - 1);
    let numbers = x.map_axis(last, |row| {
        number(row.as_slice().expect("rows of the standard layout are contiguous"))
    });
    Value::Float(numbers.insert_axis(last).into_shared())
}

pub(crate) fn log_softmax<F: Float>(x: &Value<F>) -> Value<F> {
    binary(Binary::Sub, x, &log_sum_exp(x))
}
