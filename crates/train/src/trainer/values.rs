//! Values that engines give.

use cognate_runtime::Values;

use crate::error::{Cause, Result};

pub(super) fn number(outputs: &Values, name: &str) -> Result<f64> {
    let value = outputs.get(name).ok_or_else(|| missing(name))?.to_f64()?;
    Ok(value.first().copied().ok_or_else(|| missing(name))?)
}

pub(super) fn missing(name: &str) -> Cause {
    Cause::Engine(format!("the engine lost {name}"))
}
