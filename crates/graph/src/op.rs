//! The operations of the language: a closed set.
//!
//! A match over [`Op`] lists every variant, so the compiler reports what a new operation needs: its
//! row and attributes (`op/table.rs`), its shape (`infer.rs`), its value (cognate-eval), its
//! gradient (cognate-passes) and its ONNX form (cognate-export). Other code reads its [`Class`].

mod table;

pub use table::Class;

use crate::{DType, Dim, Graph, Shape, Symbol, Type};
use half::f16;
use std::fmt;

/// An operation; each has one output.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A value supplied at every run.
    Input,
    /// A weight; the node's name is its path.
    Parameter,
    /// A constant; shape `[]`.
    Scalar(Scalar),
    /// Constant integers; i64 `[n]`.
    Integers(Vec<i64>),
    /// The integers `start, start + 1, ..., end - 1`; i64 `[end - start]`.
    Range {
        /// First value.
        start: Dim,
        /// One past the last value.
        end: Dim,
    },
    /// The integers `0, 1, ..., n - 1` for an input `n: i64 []`, none if it is negative; i64
    /// `[symbol]`. The symbol is a new size, defined by this node.
    Indices(Symbol),
    /// A function of each element; f32 or f16, or truth values.
    Unary(Unary),
    /// A function of two elements, broadcast; both f32, both f16 or both i64, or truth values.
    Binary(Binary),
    /// `left <= right`, broadcast; bool.
    LessOrEqual,
    /// `left = right`, broadcast; bool.
    Equal,
    /// `condition ? left : right`, broadcast.
    Select,
    /// Conversion of each element.
    Cast(DType),
    /// Rows of a table: `[rows, ...]` and i64 ids `[a, b]` give `[a, b, ...]`.
    Gather,
    /// Elements of the last axis: `x: [..., n]` and i64 ids `[..., m]` give `[..., m]`.
    GatherElements,
    /// `x: [..., n]` with `updates: [..., m]` added at the i64 ids `[..., m]` of the last axis; ids
    /// may repeat; f32.
    ScatterElements,
    /// The `count` largest elements of the last axis, or their positions (i64), largest first, ties
    /// in order of position; f32, f16 or i64. Both are one operator.
    TopK {
        /// Their number; at most the size of the axis.
        count: Dim,
        /// The returned result.
        result: Ranked,
    },
    /// Matrix product `[..., m, k] x [..., k, n]`, leading axes broadcast; both f32 or both f16.
    MatMul,
    /// `x Wᵀ (+ b)` with `x: [..., in]`, `W: [out, in]`, `b: [out]`, PyTorch's form of a linear
    /// layer.
    Linear,
    /// The same elements in row-major order, with another shape.
    Reshape(Shape),
    /// Axes in another order: output axis `i` is input axis `order[i]`.
    Transpose(Vec<usize>),
    /// Tensors concatenated along an axis.
    Concat {
        /// The axis.
        axis: usize,
    },
    /// The elements `start..end` of an axis.
    Slice {
        /// The axis.
        axis: usize,
        /// The first element.
        start: Dim,
        /// One past the last element.
        end: Dim,
    },
    /// Inclusive cumulative sums along the last axis; any numeric type.
    CumSum,
    /// Sums along axes in increasing order, which keep size 1; any numeric type.
    Sum(Vec<usize>),
    /// The input broadcast to this shape.
    Expand(Shape),
    /// A table `[rows, ...]` with `updates: [a, b, ...]` added to the rows of the i64 ids `[a, b]`;
    /// ids may repeat; f32.
    ScatterAdd,
    /// Product of two matrices, `[m, k] x [k, n]`, each optionally transposed; f32 or f16.
    Gemm {
        /// Whether the left and the right matrix are transposed: `[k, m]` and `[n, k]`.
        transposed: [bool; 2],
    },
    /// A convolution; see [`Conv`].
    Conv(Conv),
    /// `exp(x) / Σ exp(x)` along the last axis.
    Softmax,
    /// `x - ln Σ exp(x)` along the last axis.
    LogSoftmax,
    /// `ln Σ exp(x)` along the last axis, which keeps size 1.
    LogSumExp,
    /// `exp(x - max(x))` along the last axis: a softmax before its division. Free if the same value
    /// also has an [`Op::LogSumExp`].
    ShiftedExp,
    /// `(x - mean) / sqrt(variance + epsilon) · scale + bias` along the last axis (Ba et al. 2016).
    LayerNorm {
        /// Added to the variance.
        epsilon: f32,
    },
    /// A statistic of each row of `x: [..., n]` that [`Op::LayerNorm`] computes: `[..., 1]`; f32.
    /// Free if the same value is also normalised.
    LayerNormStatistic {
        /// The statistic.
        statistic: Statistic,
        /// Added to the variance.
        epsilon: f32,
    },
    /// `x / sqrt(mean(x²) + epsilon) · scale` along the last axis (Zhang & Sennrich 2019).
    RmsNorm {
        /// Added to the mean of the squares.
        epsilon: f32,
    },
    /// `x W (+ b)` in 8-bit integers: `x: [..., in]` rounded to steps, `W: i8 [in, out]` with the
    /// step size `s_j` of column `j`, `s: [out]`, `b: [out]`; f32.
    QuantizedLinear(Steps),
    /// `x W (+ b)` with weights and activations in blocks along the input axis; see [`Blocks`].
    BlockLinear(Blocks),
    /// The largest magnitude along the last axis: `[..., n]` -> `[..., 1]`, at least
    /// [`SMALLEST_MAGNITUDE`]; f32.
    LargestMagnitude,
    /// A cache `[rows, key_heads, capacity, d_k]` with `new: [rows, 1, key_heads · d_k]` written at
    /// one position of its third axis.
    CacheWrite {
        /// The position, below the capacity.
        at: Dim,
    },
    /// Attention of one query per row to the first `past + 1` positions of caches; see
    /// [`CachedAttention`].
    CachedAttention(CachedAttention),
    /// A loop; see [`Loop`]. Its value is the first carried value.
    Loop(Box<Loop>),
    /// Another value of the loop that is its input.
    LoopResult {
        /// Its index among the carried values.
        index: usize,
        /// Its type.
        ty: Box<Type>,
    },
}

/// A loop: while the condition is true, and at most `most` times, the body computes the next
/// condition and carried values.
///
/// Inputs: `condition: bool []`, the first carried values, and captured values, which do not
/// change. The inputs of the body are the number of the iteration (i64 `[]`, from 0), the carried
/// and the captured values; its outputs are the next condition and carried values. Symbols have the
/// same meaning inside and outside. The size of an axis may change between iterations if the body
/// names it by a symbol that is unknown outside; such a value is unknown after the loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// The body.
    pub body: Graph,
    /// The number of carried values, at least 1.
    pub carried: usize,
    /// Maximum number of iterations.
    pub most: usize,
}

/// The result of [`Op::TopK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ranked {
    /// The elements.
    Values,
    /// Their positions.
    Positions,
}

/// A convolution over spatial axes, as PyTorch and ONNX define it (without flipping the kernel).
///
/// Inputs: `x: [batch, in, d_1, ..., d_n]`, `weight: [out, in, k_1, ..., k_n]`, optionally
/// `bias: [out]`; f32 or f16. Output: `[batch, out, e_1, ..., e_n]` with
/// `e_i = ⌊(d_i + 2 p_i - k_i) / s_i⌋ + 1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// The step `s_i` of the kernel along each spatial axis.
    pub strides: Vec<usize>,
    /// The zeros `p_i` on both sides of each spatial axis.
    pub pads: Vec<usize>,
}

/// A statistic of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Statistic {
    /// The mean.
    Mean,
    /// `1 / sqrt(variance + epsilon)`
    InverseDeviation,
}

/// The minimum of [`Op::LargestMagnitude`], so that a row of zeros can be divided by it.
pub const SMALLEST_MAGNITUDE: f32 = 1e-30;

/// The step sizes by which an activation `x: [..., in]` is quantised before an integer product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Steps {
    /// One step per row: `round(127 x / m)` with the largest magnitude `m` of the row. Rows are
    /// independent.
    Row,
    /// As [`Steps::Row`], but the product remains divided by `m`: the reader multiplies, or needs
    /// only the order within a row. Allows no bias.
    RowUnscaled,
    /// One step for the whole tensor: its range, extended to include 0, in 255 steps (ONNX's
    /// DynamicQuantizeLinear).
    Tensor,
}

/// Weights and activations in blocks, each with its own step size.
///
/// Inputs: `x: f32 [..., in]`, `weight: u8 [out, blocks, bytes]`, `scale: f32 [out, blocks]`,
/// optionally `bias: [out]`. The input axis is divided into `⌈in / size⌉` blocks; the last is
/// padded with zeros. Weight `q` of block `c` represents `(q - zero) · scale[j, c]`. Activations
/// `x` are rounded to `round(127 x / m)` with the largest magnitude `m` of a row's block; rows are
/// independent. ONNX Runtime's MatMulNBits computes this at its accuracy level 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// Number of bits of a weight.
    pub bits: Bits,
    /// Number of weights of a block: 16, 32, 64, 128 or 256.
    pub size: usize,
}

/// The size of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bits {
    /// Two per byte, the first in the lower half.
    Four,
    /// One per byte.
    Eight,
}

impl Bits {
    /// The number of bits.
    pub fn count(self) -> usize {
        match self {
            Bits::Four => 4,
            Bits::Eight => 8,
        }
    }

    /// The integer that represents zero: half of the range.
    pub fn zero(self) -> u8 {
        match self {
            Bits::Four => 8,
            Bits::Eight => 128,
        }
    }
}

impl Blocks {
    /// Number of blocks in a row of `inputs` elements.
    pub fn count(self, inputs: usize) -> usize {
        inputs.div_ceil(self.size)
    }

    /// Number of bytes of a block.
    pub fn bytes(self) -> usize {
        self.size * self.bits.count() / 8
    }
}

/// Multi-head attention over caches that the beams of a sentence share.
///
/// Inputs: `query: [rows, 1, heads · d_k]`, `keys, values: [rows, key_heads, capacity, d_k]`,
/// `beams: i64 [batch, beams, past]` with `rows = batch · beams`, and for relative positions
/// `bias: [1, heads, 1, past + 1]`. Output: `[rows, 1, heads · d_k]`.
///
/// At position `t < past`, row `s · beams + b` reads the cache of row `s · beams + beams[s, b, t]`,
/// and at position `past` its own: beams change parents without moving their caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CachedAttention {
    /// Number of heads of queries.
    pub heads: usize,
    /// Number of heads of keys and values; each is read by `heads / key_heads` consecutive heads of
    /// queries.
    pub key_heads: usize,
    /// The factor of the scores.
    pub scale: f32,
    /// The bound `c` of scores: `c · tanh(score / c)`.
    pub cap: Option<f32>,
    /// Number of positions that a query reads, including its own; `None` for all.
    pub window: Option<usize>,
    /// Whether positions may be padding, marked by negative `beams`.
    pub padded: bool,
}

impl CachedAttention {
    /// Attention in which each head has its own keys and reads all positions.
    pub fn new(heads: usize, scale: f32) -> Self {
        Self { heads, key_heads: heads, scale, cap: None, window: None, padded: false }
    }
}

/// A constant number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A single-precision number.
    F32(f32),
    /// A half-precision number.
    F16(f16),
    /// An integer.
    I64(i64),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::F32(value) => write!(f, "{value:?}"),
            Scalar::F16(value) => write!(f, "{:?}", value.to_f32()),
            Scalar::I64(value) => write!(f, "{value}"),
        }
    }
}

impl Scalar {
    /// The element type.
    pub fn dtype(self) -> DType {
        match self {
            Scalar::F32(_) => DType::F32,
            Scalar::F16(_) => DType::F16,
            Scalar::I64(_) => DType::I64,
        }
    }
}

/// Functions of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// `max(x, 0)`
    Relu,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// The error function.
    Erf,
    /// `eˣ`
    Exp,
    /// The square root.
    Sqrt,
    /// The largest integer not greater than the element.
    Floor,
    /// The natural logarithm.
    Log,
    /// Whether a truth value is false.
    Not,
}

/// Functions of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `left + right`
    Add,
    /// `left - right`
    Sub,
    /// `left · right`
    Mul,
    /// `left / right`
    Div,
    /// The remainder of `left / right`, with the sign of `right`; i64.
    Rem,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// `left` to the power of `right`; f32 or f16.
    Pow,
    /// Whether both truth values are true.
    And,
    /// Whether a truth value is true.
    Or,
}
