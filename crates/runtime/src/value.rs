//! Tensors between sessions: ndarray arrays on the host, or tensors in an engine's memory.

use crate::Result;
use cognate_graph::f16;
use ndarray::{ArrayD, ArrayViewMutD};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A tensor in an engine's memory, on the host or on a device.
pub trait EngineTensor: fmt::Debug + Any + Send + Sync {
    /// The shape.
    fn shape(&self) -> &[usize];

    /// Copies the tensor to the host; never returns [`Value::Engine`].
    ///
    /// # Errors
    /// If the engine cannot copy it.
    fn to_host(&self) -> Result<Value>;

    /// The elements, if they are f32 in the host's memory and can be written.
    fn as_f32_mut(&mut self) -> Option<ArrayViewMutD<'_, f32>> {
        None
    }

    /// Keeps only the given rows of the first axis, in that order, in the engine's memory; returns
    /// whether it could.
    fn keep_rows(&mut self, rows: &[usize]) -> bool {
        let _ = rows;
        false
    }

    /// Allows the engine to use its own tensors without a copy.
    fn as_any(&self) -> &dyn Any;
}

/// A tensor passed to or returned by a session. Cloning copies host arrays and shares
/// tensors of engines.
///
/// A graph that requires f16 gets f32 rounded.
#[derive(Clone, Debug)]
pub enum Value {
    /// Single precision.
    F32(ArrayD<f32>),
    /// Half precision.
    F16(ArrayD<f16>),
    /// Double precision, for the reference evaluator.
    F64(ArrayD<f64>),
    /// Integers.
    I64(ArrayD<i64>),
    /// In the memory of the engine that created it.
    Engine(Arc<dyn EngineTensor>),
}

impl Value {
    /// The shape.
    pub fn shape(&self) -> &[usize] {
        match self {
            Value::F32(array) => array.shape(),
            Value::F16(array) => array.shape(),
            Value::F64(array) => array.shape(),
            Value::I64(array) => array.shape(),
            Value::Engine(held) => held.shape(),
        }
    }

    /// The elements in the host's memory, if they are f32 and not shared.
    pub fn as_f32_mut(&mut self) -> Option<ArrayViewMutD<'_, f32>> {
        match self {
            Value::F32(array) => Some(array.view_mut()),
            Value::Engine(held) => Arc::get_mut(held)?.as_f32_mut(),
            Value::F16(_) | Value::F64(_) | Value::I64(_) => None,
        }
    }

    /// Keeps only the given rows of the first axis, in that order, if this is an engine's tensor
    /// that is not shared and can do so in its memory; returns whether it did. Rows only move to
    /// the front.
    pub fn keep_rows(&mut self, rows: &[usize]) -> bool {
        let Value::Engine(held) = self else { return false };
        Arc::get_mut(held).is_some_and(|held| held.keep_rows(rows))
    }

    /// Converts to a host array; an engine's tensor is copied.
    ///
    /// # Errors
    /// If the engine cannot copy it.
    pub fn into_host(self) -> Result<Value> {
        match self {
            Value::Engine(held) => held.to_host(),
            host => Ok(host),
        }
    }

    /// The elements in single precision.
    ///
    /// # Errors
    /// If the engine cannot copy them.
    pub fn to_f32(&self) -> Result<ArrayD<f32>> {
        Ok(match self {
            Value::F32(array) => array.clone(),
            Value::F16(array) => array.mapv(f16::to_f32),
            Value::F64(array) => array.mapv(|value| value as f32),
            Value::I64(array) => array.mapv(|value| value as f32),
            Value::Engine(held) => return held.to_host()?.to_f32(),
        })
    }

    /// The elements in double precision.
    ///
    /// # Errors
    /// If the engine cannot copy them.
    pub fn to_f64(&self) -> Result<ArrayD<f64>> {
        Ok(match self {
            Value::F32(array) => array.mapv(f64::from),
            Value::F16(array) => array.mapv(f64::from),
            Value::F64(array) => array.clone(),
            Value::I64(array) => array.mapv(|value| value as f64),
            Value::Engine(held) => return held.to_host()?.to_f64(),
        })
    }
}

impl From<ArrayD<f32>> for Value {
    fn from(array: ArrayD<f32>) -> Self {
        Value::F32(array)
    }
}

impl From<ArrayD<f16>> for Value {
    fn from(array: ArrayD<f16>) -> Self {
        Value::F16(array)
    }
}

impl From<ArrayD<f64>> for Value {
    fn from(array: ArrayD<f64>) -> Self {
        Value::F64(array)
    }
}

impl From<ArrayD<i64>> for Value {
    fn from(array: ArrayD<i64>) -> Self {
        Value::I64(array)
    }
}

/// Values by name.
#[derive(Clone, Debug, Default)]
pub struct Values {
    named: Vec<(String, Value)>,
}

impl Values {
    /// An empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value with this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.named.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Adds or replaces a value.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        let (name, value) = (name.into(), value.into());
        match self.named.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.named.push((name, value)),
        }
    }

    /// Removes the value with this name and returns it.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let index = self.named.iter().position(|(known, _)| known == name)?;
        Some(self.named.swap_remove(index).1)
    }

    /// Names and values, in the order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.named.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl<N: Into<String>, V: Into<Value>> Extend<(N, V)> for Values {
    fn extend<I: IntoIterator<Item = (N, V)>>(&mut self, named: I) {
        named.into_iter().for_each(|(name, value)| self.insert(name, value));
    }
}

impl IntoIterator for Values {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.named.into_iter()
    }
}

impl<N: Into<String>, V: Into<Value>> FromIterator<(N, V)> for Values {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(named: I) -> Self {
        let mut values = Self::new();
        values.extend(named);
        values
    }
}
