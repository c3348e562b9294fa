//! Sums, expansions and products of matrices.

use super::{broadcast, expect_dtype, float, last, same_dtype, with_last};
use crate::{DType, Dim, Shape, Type};

pub(super) fn sum(axes: &[usize], [x]: [&Type; 1]) -> Result<Type, String> {
    if matches!(x.dtype, DType::Bool | DType::Bf16 | DType::I8) {
        return Err(format!("expected numbers, found {}", x.dtype));
    }
    let rank = x.shape.rank();
    if !axes.is_sorted_by(|left, right| left < right) || axes.iter().any(|&axis| axis >= rank) {
        return Err(format!("axes {axes:?} are not increasing axes of {}", x.shape));
    }
    let dim =
        |(axis, dim): (usize, &Dim)| if axes.contains(&axis) { Dim::from(1) } else { dim.clone() };
    Ok(Type::new(x.dtype, x.shape.dims().iter().enumerate().map(dim).collect::<Shape>()))
}

pub(super) fn expand(shape: &Shape, [x]: [&Type; 1]) -> Result<Type, String> {
    if broadcast(&x.shape, shape)? != *shape {
        return Err(format!("cannot expand {} to {shape}", x.shape));
    }
    Ok(Type::new(x.dtype, shape.clone()))
}

pub(super) fn scatter_add([table, ids, updates]: [&Type; 3]) -> Result<Type, String> {
    // ONNX Runtime's CPU implementation does not add rows in f16.
    expect_dtype("table", table, DType::F32)?;
    expect_dtype("ids", ids, DType::I64)?;
    same_dtype(table, updates)?;
    let [_, row @ ..] = table.shape.dims() else {
        return Err("table: expected at least one axis, found a scalar".into());
    };
    let expected: Shape = ids.shape.dims().iter().chain(row).collect();
    if updates.shape != expected {
        return Err(format!("updates: expected {expected}, found {}", updates.shape));
    }
    Ok(table.clone())
}

pub(super) fn gemm(
    [turn_left, turn_right]: [bool; 2],
    [left, right]: [&Type; 2],
) -> Result<Type, String> {
    float("left", left)?;
    expect_dtype("right", right, left.dtype)?;
    let ([a, b], [c, d]) = (left.shape.dims(), right.shape.dims()) else {
        return Err(format!("expected two matrices, found {} and {}", left.shape, right.shape));
    };
    let ((m, k), (right_k, n)) =
        (if turn_left { (b, a) } else { (a, b) }, if turn_right { (d, c) } else { (c, d) });
    if k != right_k {
        return Err(format!(
            "inner sizes differ: {} x {} ({k} against {right_k})",
            left.shape, right.shape
        ));
    }
    Ok(Type::new(left.dtype, [m, n]))
}

/// One number for each row.
pub(super) fn of_rows(x: &Type) -> Result<Type, String> {
    float("input", x)?;
    last(x)?;
    Ok(with_last(x, &Dim::from(1)))
}
