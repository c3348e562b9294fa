//! Elements of the last axis by their positions, and the positions of the largest.

use super::{expect_dtype, expect_type, last, number, with_last};
use crate::{DType, Dim, Ranked, Type};

pub(super) fn gather_elements([x, ids]: [&Type; 2]) -> Result<Type, String> {
    rows("ids", ids, x)?;
    Ok(with_last(x, last(ids)?))
}

pub(super) fn scatter_elements([x, ids, updates]: [&Type; 3]) -> Result<Type, String> {
    expect_dtype("input", x, DType::F32)?;
    rows("ids", ids, x)?;
    expect_type("updates", updates, &with_last(x, last(ids)?))?;
    Ok(x.clone())
}

pub(super) fn top_k(count: &Dim, result: Ranked, [x]: [&Type; 1]) -> Result<Type, String> {
    number(x)?;
    let width = last(x)?;
    if let (Some(count), Some(width)) = (count.as_constant(), width.as_constant())
        && !(0..=width).contains(&count)
    {
        return Err(format!("expected at most the {width} elements of a row, found {count}"));
    }
    let found = with_last(x, count);
    Ok(match result {
        Ranked::Values => found,
        Ranked::Positions => Type::new(DType::I64, found.shape),
    })
}

/// Checks that `ids` has the rows of `x`.
fn rows(name: &str, ids: &Type, x: &Type) -> Result<(), String> {
    last(x)?;
    expect_type(name, ids, &Type::new(DType::I64, with_last(x, last(ids)?).shape))
}
