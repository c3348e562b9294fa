//! Values that engines give, and values of weights in memory.

use std::path::Path;
use std::sync::Arc;

use cognate_graph::{Recipe, Storage};
use cognate_runtime::Values;

use crate::error::{Cause, Result};

pub(super) fn number(outputs: &Values, name: &str) -> Result<f64> {
    let value = outputs.get(name).ok_or_else(|| missing(name))?.to_f64()?;
    Ok(value.first().copied().ok_or_else(|| missing(name))?)
}

pub(super) fn missing(name: &str) -> Cause {
    Cause::Engine(format!("the engine lost {name}"))
}

/// A recipe with these values.
pub(super) fn stored(values: &[f32], shape: &[usize]) -> Result<Recipe> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let (length, storage) = (bytes.len(), Arc::new(Bytes(bytes)));
    Ok(Recipe::stored(storage, 0..length, shape)?)
}

/// Values of a weight in memory.
struct Bytes(Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes", self.0.len())
    }
}

impl Storage for Bytes {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn file(&self) -> Option<&Path> {
        None
    }
}
