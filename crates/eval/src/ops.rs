//! One function per operation. Shapes and types are inferred before, so a mismatch is a bug of this
//! crate.

use crate::{Float, Value};
use cognate_graph::{Binary, DType, Scalar, Unary};
use std::ops::{Add, Range};

use ndarray::{ArcArray, Array, ArrayD, ArrayView, ArrayView2, Axis, Ix1, Ix2, IxDyn, Zip};

pub(crate) const INFERRED: &str = "shape inference has checked this";

pub(crate) fn float<F>(value: &Value<F>) -> &ArcArray<F, IxDyn> {
    value.as_float().expect(INFERRED)
}

pub(crate) fn int<F>(value: &Value<F>) -> &ArcArray<i64, IxDyn> {
    value.as_int().expect(INFERRED)
}

pub(crate) fn scalar<F: Float>(value: Scalar) -> Value<F> {
    let shape = IxDyn(&[]);
    match value {
        Scalar::F32(value) => {
            Value::Float(ArcArray::from_elem(shape, <F as From<f32>>::from(value)))
        }
        Scalar::F16(value) => {
            Value::Float(ArcArray::from_elem(shape, <F as From<f32>>::from(value.to_f32())))
        }
        Scalar::I64(value) => Value::Int(ArcArray::from_elem(shape, value)),
    }
}

pub(crate) fn integers<F>(values: &[i64]) -> Value<F> {
    Value::Int(ArcArray::from_vec(values.to_vec()).into_dyn())
}

pub(crate) fn range<F>(start: usize, end: usize) -> Value<F> {
    let values: Vec<_> = (start as i64..end as i64).collect();
    Value::Int(ArcArray::from_vec(values).into_dyn())
}

/// The integers `0..n`.
pub(crate) fn indices<F>(n: &Value<F>) -> Value<F> {
    range(0, int(n).first().map_or(0, |&n| usize::try_from(n).unwrap_or(0)))
}

pub(crate) fn unary<F: Float>(function: Unary, x: &Value<F>) -> Value<F> {
    if let Value::Bool(x) = x {
        return Value::Bool(x.mapv(|x| !x).into_shared());
    }
    let (zero, one) = (F::zero(), F::one());
    let function = |x: F| match function {
        // Not `max`, which would turn NaN into 0.
        Unary::Relu => {
            if x < zero {
                zero
            } else {
                x
            }
        }
        Unary::Sigmoid => one / (one + (-x).exp()),
        Unary::Tanh => x.tanh(),
        Unary::Erf => x.erf(),
        Unary::Exp => x.exp(),
        Unary::Sqrt => x.sqrt(),
        Unary::Floor => x.floor(),
        Unary::Log => x.ln(),
        Unary::Not => unreachable!("{INFERRED}"),
    };
    Value::Float(float(x).mapv(function).into_shared())
}

pub(crate) fn binary<F: Float>(function: Binary, left: &Value<F>, right: &Value<F>) -> Value<F> {
    match (left, right) {
        (Value::Float(left), Value::Float(right)) => Value::Float(match function {
            Binary::Add => zip(left, right, |x, y| x + y),
            Binary::Sub => zip(left, right, |x, y| x - y),
            Binary::Mul => zip(left, right, |x, y| x * y),
            Binary::Div => zip(left, right, |x, y| x / y),
            Binary::Min => zip(left, right, F::min),
            Binary::Max => zip(left, right, F::max),
            Binary::Pow => zip(left, right, F::powf),
            Binary::Rem | Binary::And | Binary::Or => unreachable!("{INFERRED}"),
        }),
        (Value::Int(left), Value::Int(right)) => Value::Int(match function {
            Binary::Add => zip(left, right, i64::wrapping_add),
            Binary::Sub => zip(left, right, i64::wrapping_sub),
            Binary::Mul => zip(left, right, i64::wrapping_mul),
            Binary::Div => zip(left, right, |x, y| x.checked_div(y).unwrap_or(0)),
            Binary::Rem => zip(left, right, |x, y| {
                let rest = x.checked_rem(y).unwrap_or(0);
                if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest }
            }),
            Binary::Min => zip(left, right, i64::min),
            Binary::Max => zip(left, right, i64::max),
            Binary::Pow | Binary::And | Binary::Or => unreachable!("{INFERRED}"),
        }),
        (Value::Bool(left), Value::Bool(right)) => {
            Value::Bool(zip(
                left,
                right,
                |x, y| if function == Binary::And { x && y } else { x || y },
            ))
        }
        _ => unreachable!("{INFERRED}"),
    }
}

pub(crate) fn less_or_equal<F: Float>(left: &Value<F>, right: &Value<F>) -> Value<F> {
    Value::Bool(match (left, right) {
        (Value::Float(left), Value::Float(right)) => zip(left, right, |x, y| x <= y),
        (Value::Int(left), Value::Int(right)) => zip(left, right, |x, y| x <= y),
        (Value::Bool(left), Value::Bool(right)) => zip(left, right, |x, y| x <= y),
        _ => unreachable!("{INFERRED}"),
    })
}

pub(crate) fn equal<F: Float>(left: &Value<F>, right: &Value<F>) -> Value<F> {
    Value::Bool(match (left, right) {
        (Value::Float(left), Value::Float(right)) => zip(left, right, |x, y| x == y),
        (Value::Int(left), Value::Int(right)) => zip(left, right, |x, y| x == y),
        (Value::Bool(left), Value::Bool(right)) => zip(left, right, |x, y| x == y),
        _ => unreachable!("{INFERRED}"),
    })
}

pub(crate) fn select<F: Float>(
    condition: &Value<F>,
    left: &Value<F>,
    right: &Value<F>,
) -> Value<F> {
    let Value::Bool(condition) = condition else { unreachable!("{INFERRED}") };
    fn choose<T: Copy>(
        condition: &ArcArray<bool, IxDyn>,
        left: &ArcArray<T, IxDyn>,
        right: &ArcArray<T, IxDyn>,
    ) -> ArcArray<T, IxDyn> {
        let pairs = zip(left, right, |x, y| (x, y));
        zip(condition, &pairs, |condition, (x, y)| if condition { x } else { y })
    }
    match (left, right) {
        (Value::Float(left), Value::Float(right)) => Value::Float(choose(condition, left, right)),
        (Value::Int(left), Value::Int(right)) => Value::Int(choose(condition, left, right)),
        (Value::Bool(left), Value::Bool(right)) => Value::Bool(choose(condition, left, right)),
        _ => unreachable!("{INFERRED}"),
    }
}

pub(crate) fn cast<F: Float>(dtype: DType, x: &Value<F>) -> Value<F> {
    match (x, dtype) {
        (_, DType::I8 | DType::U8) => unreachable!("{INFERRED}: only weights are bytes"),
        (Value::Float(_), DType::F32 | DType::F16 | DType::Bf16)
        | (Value::Int(_), DType::I64)
        | (Value::Bool(_), DType::Bool) => x.clone(),
        (Value::Float(x), DType::I64) => {
            Value::Int(x.mapv(|x| x.to_i64().unwrap_or(0)).into_shared())
        }
        (Value::Float(x), DType::Bool) => Value::Bool(x.mapv(|x| x != F::zero()).into_shared()),
        (Value::Int(x), DType::F32 | DType::F16 | DType::Bf16) => {
            Value::Float(x.mapv(F::from_int).into_shared())
        }
        (Value::Int(x), DType::Bool) => Value::Bool(x.mapv(|x| x != 0).into_shared()),
        (Value::Bool(x), DType::F32 | DType::F16 | DType::Bf16) => {
            Value::Float(x.mapv(|x| F::from_int(x.into())).into_shared())
        }
        (Value::Bool(x), DType::I64) => Value::Int(x.mapv(i64::from).into_shared()),
    }
}

/// Rounds a value of type f16 or bf16; returns others unchanged.
pub(crate) fn rounded<F: Float>(dtype: DType, value: Value<F>) -> Value<F> {
    match value {
        Value::Float(mut x) if dtype == DType::F16 => {
            x.mapv_inplace(F::round_to_half);
            Value::Float(x)
        }
        Value::Float(mut x) if dtype == DType::Bf16 => {
            x.mapv_inplace(F::round_to_bf16);
            Value::Float(x)
        }
        Value::Float(_) | Value::Int(_) | Value::Bool(_) => value,
    }
}

/// The error is the first id outside the table, with the table's number of rows.
pub(crate) fn gather<F: Float>(table: &Value<F>, ids: &Value<F>) -> Result<Value<F>, (i64, usize)> {
    fn rows<T: Clone>(
        table: &ArcArray<T, IxDyn>,
        ids: &ArcArray<i64, IxDyn>,
    ) -> Result<ArcArray<T, IxDyn>, (i64, usize)> {
        let count = table.len_of(Axis(0));
        let position =
            |&id: &i64| usize::try_from(id).ok().filter(|&id| id < count).ok_or((id, count));
        let positions = ids.iter().map(position).collect::<Result<Vec<_>, _>>()?;
        let shape = [ids.shape(), &table.shape()[1..]].concat();
        let taken = table.select(Axis(0), &positions);
        Ok(taken.into_shape_with_order(shape).expect(INFERRED).into_shared())
    }
    let ids = int(ids);
    Ok(match table {
        Value::Float(table) => Value::Float(rows(table, ids)?),
        Value::Int(table) => Value::Int(rows(table, ids)?),
        Value::Bool(table) => Value::Bool(rows(table, ids)?),
    })
}

pub(crate) fn matmul<F: Float>(left: &Value<F>, right: &Value<F>) -> Value<F> {
    let (left, right) = (float(left), float(right));
    let split = |shape: &[usize]| {
        (shape[..shape.len() - 2].to_vec(), [shape[shape.len() - 2], shape[shape.len() - 1]])
    };
    let ((left_batch, [m, k]), (right_batch, [_, n])) = (split(left.shape()), split(right.shape()));
    let batch = broadcast_shape(&left_batch, &right_batch);
    let matrices = |array: &ArcArray<F, IxDyn>, matrix: [usize; 2]| {
        let full = [batch.as_slice(), &matrix].concat();
        let count = batch.iter().product();
        let array = array.broadcast(full).expect(INFERRED).as_standard_layout().into_owned();
        array.into_shape_with_order((count, matrix[0], matrix[1])).expect(INFERRED)
    };
    let (left, right) = (matrices(left, [m, k]), matrices(right, [k, n]));
    let mut out = Array::zeros((left.len_of(Axis(0)), m, n));
    for ((mut out, left), right) in
        out.outer_iter_mut().zip(left.outer_iter()).zip(right.outer_iter())
    {
        out.assign(&left.dot(&right));
    }
    let shape = [batch.as_slice(), &[m, n]].concat();
    Value::Float(out.into_shape_with_order(shape).expect(INFERRED).into_shared())
}

pub(crate) fn linear<F: Float>(
    x: &Value<F>,
    weight: &Value<F>,
    bias: Option<&Value<F>>,
) -> Value<F> {
    let x = float(x);
    let weight: ArrayView2<'_, F> =
        float(weight).view().into_dimensionality::<Ix2>().expect(INFERRED);
    let (leading, width) = (&x.shape()[..x.ndim() - 1], x.shape()[x.ndim() - 1]);
    let rows: usize = leading.iter().product();
    let flat =
        x.as_standard_layout().into_owned().into_shape_with_order((rows, width)).expect(INFERRED);
    let mut out = flat.dot(&weight.t());
    if let Some(bias) = bias {
        out += &float(bias).view();
    }
    let shape = [leading, &[weight.nrows()]].concat();
    Value::Float(
        out.as_standard_layout()
            .into_owned()
            .into_shape_with_order(shape)
            .expect(INFERRED)
            .into_shared(),
    )
}

/// Applies the same rearrangement to elements of any type.
macro_rules! rearrange {
    ($value:expr, $with:expr) => {
        match $value {
            Value::Float(x) => Value::Float($with(x)),
            Value::Int(x) => Value::Int($with(x)),
            Value::Bool(x) => Value::Bool($with(x)),
        }
    };
}

pub(crate) fn reshape<F: Float>(x: &Value<F>, shape: &[usize]) -> Value<F> {
    fn to<T: Clone>(x: &ArcArray<T, IxDyn>, shape: &[usize]) -> ArcArray<T, IxDyn> {
        x.to_shape(shape).expect(INFERRED).into_owned().into_shared()
    }
    rearrange!(x, |x| to(x, shape))
}

pub(crate) fn transpose<F: Float>(x: &Value<F>, order: &[usize]) -> Value<F> {
    fn to<T: Clone>(x: &ArcArray<T, IxDyn>, order: &[usize]) -> ArcArray<T, IxDyn> {
        x.view().permuted_axes(order).as_standard_layout().into_owned().into_shared()
    }
    rearrange!(x, |x| to(x, order))
}

pub(crate) fn concat<F: Float>(axis: usize, inputs: &[&Value<F>]) -> Value<F> {
    fn join<'a, T: Clone + 'a>(
        axis: usize,
        parts: impl Iterator<Item = &'a ArcArray<T, IxDyn>>,
    ) -> ArcArray<T, IxDyn> {
        let views: Vec<ArrayView<'_, T, IxDyn>> = parts.map(|part| part.view()).collect();
        ndarray::concatenate(Axis(axis), &views)
            .expect(INFERRED)
            .as_standard_layout()
            .into_owned()
            .into_shared()
    }
    match inputs[0] {
        Value::Float(_) => Value::Float(join(axis, inputs.iter().map(|part| float(part)))),
        Value::Int(_) => Value::Int(join(axis, inputs.iter().map(|part| int(part)))),
        Value::Bool(_) => Value::Bool(join(
            axis,
            inputs.iter().map(|part| match part {
                Value::Bool(part) => part,
                Value::Float(_) | Value::Int(_) => unreachable!("{INFERRED}"),
            }),
        )),
    }
}

pub(crate) fn slice<F: Float>(x: &Value<F>, axis: usize, start: usize, end: usize) -> Value<F> {
    fn part<T: Clone>(
        x: &ArcArray<T, IxDyn>,
        axis: usize,
        range: Range<usize>,
    ) -> ArcArray<T, IxDyn> {
        x.slice_axis(Axis(axis), range.into()).as_standard_layout().into_owned().into_shared()
    }
    rearrange!(x, |x| part(x, axis, start..end))
}

pub(crate) fn cumulative_sum<F: Float>(x: &Value<F>) -> Value<F> {
    fn sums<T: Copy + Add<Output = T>>(x: &ArcArray<T, IxDyn>) -> ArcArray<T, IxDyn> {
        let mut out = x.to_owned();
        let along = Axis(out.ndim() - 1);
        out.accumulate_axis_inplace(along, |&before, here| *here = before + *here);
        out.into_shared()
    }
    match x {
        Value::Float(x) => Value::Float(sums(x)),
        Value::Int(x) => Value::Int(sums(x)),
        Value::Bool(_) => unreachable!("{INFERRED}"),
    }
}

pub(crate) fn softmax<F: Float>(x: &Value<F>) -> Value<F> {
    let mut out = float(x).to_owned();
    for mut row in out.rows_mut() {
        let largest = row.fold(F::neg_infinity(), |largest, &x| largest.max(x));
        row.mapv_inplace(|x| (x - largest).exp());
        let sum = row.sum();
        row.mapv_inplace(|x| x / sum);
    }
    Value::Float(out.into_shared())
}

pub(crate) fn layer_norm<F: Float>(
    x: &Value<F>,
    scale: &Value<F>,
    bias: &Value<F>,
    epsilon: f32,
) -> Value<F> {
    let vector = |value| float(value).view().into_dimensionality::<Ix1>().expect(INFERRED);
    let (scale, bias) = (vector(scale), vector(bias));
    let mut out = float(x).to_owned();
    let width = F::from_int(out.shape()[out.ndim() - 1] as i64);
    for mut row in out.rows_mut() {
        let mean = row.sum() / width;
        row.mapv_inplace(|x| x - mean);
        let variance = row.fold(F::zero(), |sum, &x| sum + x * x) / width;
        let deviation = (variance + <F as From<f32>>::from(epsilon)).sqrt();
        Zip::from(&mut row)
            .and(&scale)
            .and(&bias)
            .for_each(|x, &scale, &bias| *x = *x / deviation * scale + bias);
    }
    Value::Float(out.into_shared())
}

pub(crate) fn rms_norm<F: Float>(x: &Value<F>, scale: &Value<F>, epsilon: f32) -> Value<F> {
    let scale = float(scale).view().into_dimensionality::<Ix1>().expect(INFERRED);
    let mut out = float(x).to_owned();
    let width = F::from_int(out.shape()[out.ndim() - 1] as i64);
    for mut row in out.rows_mut() {
        let mean_square = row.fold(F::zero(), |sum, &x| sum + x * x) / width;
        let root = (mean_square + <F as From<f32>>::from(epsilon)).sqrt();
        Zip::from(&mut row).and(&scale).for_each(|x, &scale| *x = *x / root * scale);
    }
    Value::Float(out.into_shared())
}

fn broadcast_shape(left: &[usize], right: &[usize]) -> Vec<usize> {
    let rank = left.len().max(right.len());
    let size = |shape: &[usize], axis: usize| {
        (axis + shape.len()).checked_sub(rank).map_or(1, |index| shape[index])
    };
    (0..rank)
        .map(|axis| if size(left, axis) == 1 { size(right, axis) } else { size(left, axis) })
        .collect()
}

/// Applies `function` to each pair of elements; both sides are broadcast.
fn zip<X: Copy, Y: Copy, Z: Clone>(
    left: &ArcArray<X, IxDyn>,
    right: &ArcArray<Y, IxDyn>,
    function: impl Fn(X, Y) -> Z,
) -> ArcArray<Z, IxDyn> {
    let shape = broadcast_shape(left.shape(), right.shape());
    let (left, right) = (
        left.broadcast(shape.as_slice()).expect(INFERRED),
        right.broadcast(shape.as_slice()).expect(INFERRED),
    );
    let out: ArrayD<Z> = Zip::from(left).and(right).map_collect(|&x, &y| function(x, y));
    out.into_shared()
}
