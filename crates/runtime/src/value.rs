//! Tensors between sessions: on the host as ndarray, or held by the engine that made them.

use crate::Result;
use ndarray::{ArrayD, ArrayViewMutD};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A tensor that an engine keeps in its own memory, on the host or on a device.
pub trait EngineTensor: fmt::Debug + Any + Send + Sync {
    /// The shape.
    fn shape(&self) -> &[usize];

    /// A copy on the host: never [`Value::Engine`].
    ///
    /// # Errors
    /// If the engine cannot bring it.
    fn to_host(&self) -> Result<Value>;

    /// The elements, if they can be written in the host's memory in single precision.
    fn as_f32_mut(&mut self) -> Option<ArrayViewMutD<'_, f32>> {
        None
    }

    /// For the engine that made it, to take it back without a copy.
    fn as_any(&self) -> &dyn Any;
}

/// A tensor given to or returned by a session. Cloning copies host arrays and shares held ones.
///
/// Half precision has no form of its own on the host: an engine's f16 comes as f32, which holds it exactly, and f32 is rounded
/// where a graph takes f16.
#[derive(Clone, Debug)]
pub enum Value {
    /// Single precision.
    F32(ArrayD<f32>),
    /// Double precision, of the reference evaluator.
    F64(ArrayD<f64>),
    /// Integers.
    I64(ArrayD<i64>),
    /// Kept by the engine that made it.
    Engine(Arc<dyn EngineTensor>),
}

impl Value {
    /// The shape.
    pub fn shape(&self) -> &[usize] {
        match self {
            Value::F32(array) => array.shape(),
            Value::F64(array) => array.shape(),
            Value::I64(array) => array.shape(),
            Value::Engine(held) => held.shape(),
        }
    }

    /// The elements as they lie in the host's memory, if they are in single precision and nobody else holds them.
    pub fn as_f32_mut(&mut self) -> Option<ArrayViewMutD<'_, f32>> {
        match self {
            Value::F32(array) => Some(array.view_mut()),
            Value::Engine(held) => Arc::get_mut(held)?.as_f32_mut(),
            Value::F64(_) | Value::I64(_) => None,
        }
    }

    /// The value as a host array: a held one is copied.
    ///
    /// # Errors
    /// If the engine cannot bring it.
    pub fn into_host(self) -> Result<Value> {
        match self {
            Value::Engine(held) => held.to_host(),
            host => Ok(host),
        }
    }

    /// The elements in single precision.
    ///
    /// # Errors
    /// If the engine cannot bring it.
    pub fn to_f32(&self) -> Result<ArrayD<f32>> {
        Ok(match self {
            Value::F32(array) => array.clone(),
            Value::F64(array) => array.mapv(|value| value as f32),
            Value::I64(array) => array.mapv(|value| value as f32),
            Value::Engine(held) => return held.to_host()?.to_f32(),
        })
    }

    /// The elements in double precision.
    ///
    /// # Errors
    /// If the engine cannot bring it.
    pub fn to_f64(&self) -> Result<ArrayD<f64>> {
        Ok(match self {
            Value::F32(array) => array.mapv(f64::from),
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
    /// No values.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value called `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.named.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Adds a value, or replaces the one of that name.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        let (name, value) = (name.into(), value.into());
        match self.named.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.named.push((name, value)),
        }
    }

    /// Takes the value called `name` out.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let index = self.named.iter().position(|(known, _)| known == name)?;
        Some(self.named.swap_remove(index).1)
    }

    /// Names with values, in the order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.named.iter().map(|(name, value)| (name.as_str(), value))
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
        named.into_iter().for_each(|(name, value)| values.insert(name, value));
        values
    }
}
