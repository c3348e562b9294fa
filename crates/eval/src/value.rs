//! Values of the evaluator.

use cognate_graph::{DType, bf16, f16};
use ndarray::{ArcArray, ArrayD, IxDyn, NdFloat};

/// The numbers of a [`Precision`](crate::Precision).
pub trait Float: NdFloat + From<f32> {
    /// The error function.
    fn erf(self) -> Self;

    /// The nearest number.
    fn from_int(value: i64) -> Self;

    /// Rounded to the nearest number of half precision, ties to even; values out of range become
    /// infinite.
    fn round_to_half(self) -> Self;

    /// Rounded to bfloat16 in the same way.
    fn round_to_bf16(self) -> Self;
}

impl Float for f32 {
    fn erf(self) -> Self {
        libm::erff(self)
    }

    fn from_int(value: i64) -> Self {
        value as f32
    }

    fn round_to_half(self) -> Self {
        f16::from_f32(self).to_f32()
    }

    fn round_to_bf16(self) -> Self {
        bf16::from_f32(self).to_f32()
    }
}

impl Float for f64 {
    fn erf(self) -> Self {
        libm::erf(self)
    }

    fn from_int(value: i64) -> Self {
        value as f64
    }

    fn round_to_half(self) -> Self {
        f16::from_f64(self).to_f64()
    }

    fn round_to_bf16(self) -> Self {
        bf16::from_f64(self).to_f64()
    }
}

/// A tensor; clones share its elements.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<F> {
    /// Floating point numbers, in the evaluator's precision; f16 and bf16 values are rounded.
    Float(ArcArray<F, IxDyn>),
    /// Integers.
    Int(ArcArray<i64, IxDyn>),
    /// Truth values.
    Bool(ArcArray<bool, IxDyn>),
}

impl<F> Value<F> {
    /// The shape.
    pub fn shape(&self) -> &[usize] {
        match self {
            Value::Float(array) => array.shape(),
            Value::Int(array) => array.shape(),
            Value::Bool(array) => array.shape(),
        }
    }

    /// Whether the elements can have this type in a graph.
    pub fn is(&self, dtype: DType) -> bool {
        match self {
            Value::Float(_) => dtype.is_float() || dtype == DType::Bf16,
            Value::Int(_) => dtype == DType::I64,
            Value::Bool(_) => dtype == DType::Bool,
        }
    }

    /// The numbers, if the value is floating point.
    pub fn as_float(&self) -> Option<&ArcArray<F, IxDyn>> {
        match self {
            Value::Float(array) => Some(array),
            Value::Int(_) | Value::Bool(_) => None,
        }
    }

    /// The integers, if the value is integer.
    pub fn as_int(&self) -> Option<&ArcArray<i64, IxDyn>> {
        match self {
            Value::Int(array) => Some(array),
            Value::Float(_) | Value::Bool(_) => None,
        }
    }
}

impl From<ArrayD<f32>> for Value<f32> {
    fn from(array: ArrayD<f32>) -> Self {
        Value::Float(array.into_shared())
    }
}

impl From<ArrayD<f64>> for Value<f64> {
    fn from(array: ArrayD<f64>) -> Self {
        Value::Float(array.into_shared())
    }
}

impl<F> From<ArrayD<i64>> for Value<F> {
    fn from(array: ArrayD<i64>) -> Self {
        Value::Int(array.into_shared())
    }
}
