//! Shapes and element types.

use crate::Dim;
use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE 754 single precision; the reference evaluator may compute it in double precision.
    F32,
    /// IEEE 754 half precision: 11 bits of precision, maximum 65,504. The reference evaluator
    /// computes in its own precision and rounds every value.
    F16,
    /// The upper half of single precision: 8 bits of precision, the range of f32. Values are stored
    /// and rounded in this type; every operation except those that move them reads them converted.
    Bf16,
    /// Signed 8-bit integers: weights of [`QuantizedLinear`](crate::Op::QuantizedLinear).
    I8,
    /// Bytes: weights of [`BlockLinear`](crate::Op::BlockLinear).
    U8,
    /// Signed 64-bit integers: token ids, positions, masks.
    I64,
    /// Truth values.
    Bool,
}

impl DType {
    /// Number of bytes of a stored element.
    pub fn size(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::I8 | DType::U8 => 1,
            DType::I64 => 8,
            DType::Bool => 1,
        }
    }

    /// Whether the elements are floating point numbers that operations compute with.
    pub fn is_float(self) -> bool {
        match self {
            DType::F32 | DType::F16 => true,
            DType::Bf16 | DType::I8 | DType::U8 | DType::I64 | DType::Bool => false,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I64 => "i64",
            DType::Bool => "bool",
        })
    }
}

/// The extents of a tensor, outermost axis first.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Shape(Vec<Dim>);

impl Shape {
    /// The dims.
    pub fn dims(&self) -> &[Dim] {
        &self.0
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The product of the dims.
    pub fn elements(&self) -> Dim {
        self.0.iter().fold(Dim::from(1), |product, dim| product * dim)
    }

    /// The sizes, if no symbol occurs.
    pub fn as_constant(&self) -> Option<Vec<usize>> {
        self.0
            .iter()
            .map(|dim| dim.as_constant().and_then(|size| usize::try_from(size).ok()))
            .collect()
    }

    /// The shape that both sides broadcast to (NumPy's rule, which ONNX adopts); `None` if there is
    /// none.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let rank = self.rank().max(other.rank());
        let one = Dim::from(1);
        let dim_of = |shape: &Shape, axis: usize| match (axis + shape.rank()).checked_sub(rank) {
            Some(index) => shape.0[index].clone(),
            None => one.clone(),
        };
        (0..rank)
            .map(|axis| match (dim_of(self, axis), dim_of(other, axis)) {
                (left, right) if left == right => Some(left),
                (left, right) if left == one => Some(right),
                (left, right) if right == one => Some(left),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map(Shape)
    }
}

impl<D: Into<Dim>> FromIterator<D> for Shape {
    fn from_iter<I: IntoIterator<Item = D>>(dims: I) -> Self {
        Self(dims.into_iter().map(Into::into).collect())
    }
}

impl<D: Into<Dim>, const N: usize> From<[D; N]> for Shape {
    fn from(dims: [D; N]) -> Self {
        dims.into_iter().collect()
    }
}

impl From<Vec<Dim>> for Shape {
    fn from(dims: Vec<Dim>) -> Self {
        Self(dims)
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        dims.iter().copied().collect()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if index == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Element type and shape of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// The element type.
    pub dtype: DType,
    /// The shape.
    pub shape: Shape,
}

impl Type {
    /// A type.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Self {
        Self { dtype, shape: shape.into() }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape)
    }
}
