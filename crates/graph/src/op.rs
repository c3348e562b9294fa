//! The operations of the language: a closed set.
//!
//! Every match over [`Op`] lists every variant, so a new operation makes the compiler name the work: its shape
//! (`infer.rs`), its text (`text.rs`), its meaning (cognate-eval) and its ONNX form (cognate-export).

use crate::{DType, Dim, Shape};
use half::f16;

/// What a node computes from its inputs. One output an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A value given at every run.
    Input,
    /// A weight, found by the node's name.
    Parameter,
    /// A number written into the graph; shape `[]`.
    Scalar(Scalar),
    /// Integers written into the graph; i64 `[n]`.
    Integers(Vec<i64>),
    /// The integers `start, start + 1, ..., end - 1`; i64 `[end - start]`.
    Range {
        /// First value.
        start: Dim,
        /// One past the last value.
        end: Dim,
    },
    /// A function of each element; f32 or f16.
    Unary(Unary),
    /// A function of two elements, broadcast; both f32, both f16 or both i64.
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
    /// Matrix product `[..., m, k] x [..., k, n]`, leading axes broadcast; both f32 or both f16.
    MatMul,
    /// `x Wᵀ (+ b)` with `x: [..., in]`, `W: [out, in]`, `b: [out]`: a layer's weight as PyTorch keeps it.
    Linear,
    /// The same elements, row by row, under another shape.
    Reshape(Shape),
    /// Axes in another order: output axis `i` is input axis `order[i]`.
    Transpose(Vec<usize>),
    /// Tensors one after the other along an axis.
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
    /// Sums of the elements up to each one, itself included, along the last axis; numbers of any type.
    CumSum,
    /// Sums along axes, given in increasing order, each of which keeps size 1; numbers of any type.
    Sum(Vec<usize>),
    /// The same elements repeated, so that `x` has this shape, to which its own broadcasts.
    Expand(Shape),
    /// A table `[rows, ...]` to whose rows others are added: i64 ids `[a, b]` and `updates: [a, b, ...]`; ids may
    /// repeat; f32.
    ScatterAdd,
    /// Product of two matrices, `[m, k] x [k, n]`, each given as it is or transposed; f32 or f16.
    Gemm {
        /// Whether the left and the right matrix are given transposed, as `[k, m]` and `[n, k]`.
        transposed: [bool; 2],
    },
    /// `exp(x) / Σ exp(x)` along the last axis.
    Softmax,
    /// `ln Σ exp(x)` along the last axis, which keeps size 1.
    LogSumExp,
    /// `exp(x - max(x))` along the last axis: a softmax before its division. Beside an [`Op::LogSumExp`] of the same value it costs
    /// nothing.
    ShiftedExp,
    /// `(x - mean) / sqrt(variance + epsilon) · scale + bias` along the last axis (Ba et al. 2016).
    LayerNorm {
        /// Added to the variance.
        epsilon: f32,
    },
    /// What [`Op::LayerNorm`] finds out about each row of `x: [..., n]`: `[..., 1]`; f32. Beside a normalisation of the same value
    /// it costs nothing.
    LayerNormStatistic {
        /// Which.
        statistic: Statistic,
        /// Added to the variance.
        epsilon: f32,
    },
    /// `x / sqrt(mean(x²) + epsilon) · scale` along the last axis (Zhang & Sennrich 2019).
    RmsNorm {
        /// Added to the mean of the squares.
        epsilon: f32,
    },
    /// `x W (+ b)` in 8-bit integers: `x: [..., in]` rounded to steps, `W: i8 [in, out]` whose column `j` counts steps of
    /// `s_j`, `s: [out]`, `b: [out]`; f32.
    QuantizedLinear(Steps),
    /// `x W (+ b)` with weights and activations in blocks along the input axis; see [`Blocks`].
    BlockLinear(Blocks),
    /// The largest magnitude along the last axis: `[..., n]` -> `[..., 1]`, at least [`SMALLEST_MAGNITUDE`]; f32.
    LargestMagnitude,
    /// A cache `[rows, heads, capacity, d_k]` with `new: [rows, 1, heads · d_k]` at one place of its third axis.
    CacheWrite {
        /// The place, below the capacity.
        at: Dim,
    },
    /// Attention of one query for each row to the `past + 1` first places of caches; see [`CachedAttention`].
    CachedAttention(CachedAttention),
}

/// What a normalisation finds out about a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Statistic {
    /// The mean.
    Mean,
    /// `1 / sqrt(variance + epsilon)`
    InverseDeviation,
}

/// The least that [`Op::LargestMagnitude`] gives, so that a row of zeros can be divided by it.
pub const SMALLEST_MAGNITUDE: f32 = 1e-30;

/// The steps in which an activation `x: [..., in]` is counted before a product of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Steps {
    /// For each row its own: `round(127 x / m)` with the largest magnitude `m` of the row. What one row gives depends on no other.
    Row,
    /// As [`Steps::Row`], but the product is left divided by `m`: who reads it multiplies, or needs only the order of a row's
    /// numbers. Allows no bias.
    RowUnscaled,
    /// One for all rows, from the smallest to the largest value of the tensor in 255 steps, 0 among them (ONNX's
    /// DynamicQuantizeLinear).
    Tensor,
}

/// Blocks of weights and activations, each counted in steps of its own.
///
/// Inputs: `x: f32 [..., in]`, `weight: u8 [out, blocks, bytes]`, `scale: f32 [out, blocks]`, if there is one `bias: [out]`. The input
/// axis is cut into `⌈in / size⌉` blocks, the last of them filled up with zeros. Weight `q` of block `c` stands for
/// `(q - zero) · scale[j, c]`, and of activations `x` are counted `round(127 x / m)` steps with the largest magnitude `m` of a row's
/// block: what one row gives depends on no other. This is what ONNX Runtime's MatMulNBits computes at its accuracy level 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// Of each weight.
    pub bits: Bits,
    /// Weights of a block: 16, 32, 64, 128 or 256.
    pub size: usize,
}

/// Bits of one weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bits {
    /// Two in each byte, the first in its lower half.
    Four,
    /// One in each byte.
    Eight,
}

impl Bits {
    /// How many.
    pub fn count(self) -> usize {
        match self {
            Bits::Four => 4,
            Bits::Eight => 8,
        }
    }

    /// The integer that stands for zero: there are as many steps below it, and one less above.
    pub fn zero(self) -> u8 {
        match self {
            Bits::Four => 8,
            Bits::Eight => 128,
        }
    }
}

impl Blocks {
    /// Blocks in a row of so many inputs.
    pub fn count(self, inputs: usize) -> usize {
        inputs.div_ceil(self.size)
    }

    /// Bytes of one block.
    pub fn bytes(self) -> usize {
        self.size * self.bits.count() / 8
    }
}

/// Multi-head attention over caches that several beams share.
///
/// Inputs: `query: [rows, 1, heads · d_k]`, `keys, values: [rows, heads, capacity, d_k]`, `beams: i64 [batch, beams, past]` with
/// `rows = batch · beams`, and if positions are relative `bias: [1, heads, 1, past + 1]`. Gives `[rows, 1, heads · d_k]`.
///
/// Row `s · beams + b` sees at place `t < past` what row `s · beams + beams[s, b, t]` holds there, and at place `past` its own:
/// beams change parents without a move of their caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CachedAttention {
    /// Number of heads.
    pub heads: usize,
    /// By which scores are multiplied.
    pub scale: f32,
}

/// A number written into the graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A single-precision number.
    F32(f32),
    /// A half-precision number.
    F16(f16),
    /// An integer.
    I64(i64),
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
    /// The largest integer that is not greater.
    Floor,
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
}

impl Op {
    /// The operation's name, as ONNX calls it where ONNX has it.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input => "Input",
            Op::Parameter => "Parameter",
            Op::Scalar(_) => "Constant",
            Op::Integers(_) => "Integers",
            Op::Range { .. } => "Range",
            Op::Unary(Unary::Relu) => "Relu",
            Op::Unary(Unary::Sigmoid) => "Sigmoid",
            Op::Unary(Unary::Tanh) => "Tanh",
            Op::Unary(Unary::Erf) => "Erf",
            Op::Unary(Unary::Exp) => "Exp",
            Op::Unary(Unary::Sqrt) => "Sqrt",
            Op::Unary(Unary::Floor) => "Floor",
            Op::Binary(Binary::Add) => "Add",
            Op::Binary(Binary::Sub) => "Sub",
            Op::Binary(Binary::Mul) => "Mul",
            Op::Binary(Binary::Div) => "Div",
            Op::Binary(Binary::Rem) => "Mod",
            Op::LessOrEqual => "LessOrEqual",
            Op::Equal => "Equal",
            Op::Select => "Where",
            Op::Cast(_) => "Cast",
            Op::Gather => "Gather",
            Op::MatMul => "MatMul",
            Op::Linear => "Linear",
            Op::Reshape(_) => "Reshape",
            Op::Transpose(_) => "Transpose",
            Op::Concat { .. } => "Concat",
            Op::Slice { .. } => "Slice",
            Op::CumSum => "CumSum",
            Op::Sum(_) => "Sum",
            Op::Expand(_) => "Expand",
            Op::ScatterAdd => "ScatterAdd",
            Op::Gemm { .. } => "Gemm",
            Op::Softmax => "Softmax",
            Op::LogSumExp => "LogSumExp",
            Op::ShiftedExp => "ShiftedExp",
            Op::LayerNorm { .. } => "LayerNormalization",
            Op::LayerNormStatistic { statistic: Statistic::Mean, .. } => "LayerNormMean",
            Op::LayerNormStatistic { statistic: Statistic::InverseDeviation, .. } => "LayerNormInverseDeviation",
            Op::RmsNorm { .. } => "RMSNormalization",
            Op::QuantizedLinear(_) => "QuantizedLinear",
            Op::BlockLinear(_) => "BlockLinear",
            Op::LargestMagnitude => "LargestMagnitude",
            Op::CacheWrite { .. } => "CacheWrite",
            Op::CachedAttention(_) => "CachedAttention",
        }
    }
}
