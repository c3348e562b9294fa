//! The table of operations: the name, class, formula and attributes of each.
//!
//! Passes and counts read an operation's [`Class`], so a new operation is one row here.

use super::{CachedAttention, Op, Ranked, Statistic, Unary};
use crate::{Binary, Dim, Shape, Type};
use std::fmt;

/// The category of an operation for passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A value given from outside: an input or a parameter.
    Declared,
    /// Numbers written into the graph, or computed from sizes alone.
    Constant,
    /// The elements of the first input in another order.
    Move,
    /// The elements of all inputs.
    Join,
    /// A change of the element type.
    Convert,
    /// A function of one element.
    Function,
    /// Sums, products and selections of elements that keep the order of magnitude of their
    /// operands.
    Arithmetic,
    /// A comparison of elements; returns truth values.
    Comparison,
    /// Many elements combined into one: sums and maxima.
    Reduction,
    /// A softmax or a part of one, along the last axis, with this number of elementary steps per
    /// element.
    Softmax(u64),
    /// A normalisation or a statistic of one, along the last axis, with this number of elementary
    /// steps per element.
    Normalisation(u64),
    /// A matrix product of floating point numbers with this number of operands, without the bias.
    Product(usize),
    /// A matrix product of integers with this number of operands, without the bias.
    IntegerProduct(usize),
    /// A cache, or attention to one.
    Cache,
    /// A loop, or a value of one.
    Loop,
}

/// An attribute of an operation, as the text of a graph shows it.
#[derive(Debug)]
pub(crate) struct Attribute<'a> {
    /// Empty if the value needs no name.
    pub(crate) name: &'static str,
    pub(crate) value: Value<'a>,
}

#[derive(Debug)]
pub(crate) enum Value<'a> {
    Size(&'a Dim),
    /// The shape of the result.
    Shape(&'a Shape),
    Text(String),
}

impl fmt::Display for Attribute<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equals = if self.name.is_empty() { "" } else { "=" };
        match &self.value {
            Value::Size(dim) => write!(f, " {}{equals}{dim}", self.name),
            Value::Text(text) => write!(f, " {}{equals}{text}", self.name),
            // The node's type shows it.
            Value::Shape(_) => Ok(()),
        }
    }
}

impl Value<'_> {
    /// The sizes in it.
    pub(crate) fn dims(&self) -> &[Dim] {
        match self {
            Value::Size(dim) => std::slice::from_ref(dim),
            Value::Shape(shape) => shape.dims(),
            Value::Text(_) => &[],
        }
    }
}

impl Op {
    /// The operation's name: that of ONNX if ONNX has the operation.
    pub fn name(&self) -> &'static str {
        self.row().0
    }

    /// The category for passes.
    pub fn class(&self) -> Class {
        self.row().1
    }

    /// The formula; empty if the name is enough.
    pub fn formula(&self) -> &'static str {
        self.row().2
    }

    fn row(&self) -> (&'static str, Class, &'static str) {
        match self {
            Op::Input => ("Input", Class::Declared, ""),
            Op::Parameter => ("Parameter", Class::Declared, ""),
            Op::Scalar(_) => ("Constant", Class::Constant, ""),
            Op::Integers(_) => ("Integers", Class::Constant, ""),
            Op::Range { .. } => ("Range", Class::Constant, ""),
            Op::Indices(_) => ("Indices", Class::Function, ""),
            Op::Unary(Unary::Relu) => ("Relu", Class::Function, "max(x, 0)"),
            Op::Unary(Unary::Sigmoid) => ("Sigmoid", Class::Function, "1 / (1 + exp(-x))"),
            Op::Unary(Unary::Tanh) => ("Tanh", Class::Function, ""),
            Op::Unary(Unary::Erf) => ("Erf", Class::Function, ""),
            Op::Unary(Unary::Exp) => ("Exp", Class::Function, ""),
            Op::Unary(Unary::Sqrt) => ("Sqrt", Class::Function, ""),
            Op::Unary(Unary::Floor) => ("Floor", Class::Function, ""),
            Op::Unary(Unary::Log) => ("Log", Class::Function, ""),
            Op::Unary(Unary::Not) => ("Not", Class::Comparison, ""),
            Op::Binary(Binary::Add) => ("Add", Class::Arithmetic, ""),
            Op::Binary(Binary::Sub) => ("Sub", Class::Arithmetic, ""),
            Op::Binary(Binary::Mul) => ("Mul", Class::Arithmetic, ""),
            Op::Binary(Binary::Div) => ("Div", Class::Arithmetic, ""),
            Op::Binary(Binary::Rem) => ("Mod", Class::Arithmetic, ""),
            Op::Binary(Binary::Min) => ("Min", Class::Arithmetic, ""),
            Op::Binary(Binary::Max) => ("Max", Class::Arithmetic, ""),
            Op::Binary(Binary::Pow) => ("Pow", Class::Function, ""),
            Op::Binary(Binary::And) => ("And", Class::Comparison, ""),
            Op::Binary(Binary::Or) => ("Or", Class::Comparison, ""),
            Op::LessOrEqual => ("LessOrEqual", Class::Comparison, ""),
            Op::Equal => ("Equal", Class::Comparison, ""),
            Op::Select => ("Where", Class::Arithmetic, ""),
            Op::Cast(_) => ("Cast", Class::Convert, ""),
            Op::Gather => ("Gather", Class::Move, "rows of a table"),
            Op::GatherElements => ("GatherElements", Class::Move, "elements of the last axis"),
            Op::ScatterElements => ("ScatterElements", Class::Reduction, ""),
            Op::TopK { result: Ranked::Values, .. } => ("TopK", Class::Move, "the largest"),
            Op::TopK { result: Ranked::Positions, .. } => {
                ("TopKPositions", Class::Comparison, "where the largest are")
            }
            Op::MatMul => ("MatMul", Class::Product(2), "A B"),
            Op::Linear => ("Linear", Class::Product(2), "x Wᵀ + b"),
            Op::Reshape(_) => ("Reshape", Class::Move, ""),
            Op::Transpose(_) => ("Transpose", Class::Move, ""),
            Op::Concat { .. } => ("Concat", Class::Join, ""),
            Op::Slice { .. } => ("Slice", Class::Move, ""),
            Op::CumSum => ("CumSum", Class::Arithmetic, ""),
            Op::Sum(_) => ("Sum", Class::Reduction, ""),
            Op::Expand(_) => ("Expand", Class::Move, ""),
            Op::ScatterAdd => ("ScatterAdd", Class::Reduction, ""),
            Op::Gemm { .. } => ("Gemm", Class::Product(2), ""),
            Op::Conv(_) => ("Conv", Class::Product(2), ""),
            Op::Softmax => ("Softmax", Class::Softmax(5), "exp(xᵢ) / Σ exp(xⱼ)"),
            Op::LogSoftmax => ("LogSoftmax", Class::Softmax(5), "xᵢ - ln Σ exp(xⱼ)"),
            Op::LogSumExp => ("LogSumExp", Class::Softmax(4), "ln Σ exp(xⱼ)"),
            Op::ShiftedExp => ("ShiftedExp", Class::Softmax(3), "exp(xᵢ - max(x))"),
            Op::LayerNorm { .. } => {
                ("LayerNormalization", Class::Normalisation(8), "(x - μ) / √(σ² + ε) · γ + β")
            }
            Op::LayerNormStatistic { statistic: Statistic::Mean, .. } => {
                ("LayerNormMean", Class::Normalisation(3), "μ")
            }
            Op::LayerNormStatistic { statistic: Statistic::InverseDeviation, .. } => {
                ("LayerNormInverseDeviation", Class::Normalisation(3), "1 / √(σ² + ε)")
            }
            Op::RmsNorm { .. } => {
                ("RMSNormalization", Class::Normalisation(4), "x / √(mean(x²) + ε) · γ")
            }
            Op::QuantizedLinear(_) => ("QuantizedLinear", Class::IntegerProduct(3), "x W + b"),
            Op::BlockLinear(_) => ("BlockLinear", Class::IntegerProduct(3), "x W + b"),
            Op::LargestMagnitude => ("LargestMagnitude", Class::Reduction, "max |xⱼ|"),
            Op::CacheWrite { .. } => ("CacheWrite", Class::Cache, ""),
            Op::CachedAttention(_) => ("CachedAttention", Class::Cache, "softmax(q Kᵀ · scale) V"),
            Op::Loop(_) => ("Loop", Class::Loop, ""),
            Op::LoopResult { .. } => ("LoopResult", Class::Loop, ""),
        }
    }

    /// The operation with other sizes: `size` maps each of its own. The body of a loop is
    /// unchanged.
    #[must_use]
    pub fn resized(&self, size: impl Fn(&Dim) -> Dim) -> Self {
        let shape = |shape: &Shape| -> Shape { shape.dims().iter().map(&size).collect() };
        match self {
            Op::Range { start, end } => Op::Range { start: size(start), end: size(end) },
            Op::TopK { count, result } => Op::TopK { count: size(count), result: *result },
            Op::Reshape(to) => Op::Reshape(shape(to)),
            Op::Expand(to) => Op::Expand(shape(to)),
            Op::Slice { axis, start, end } => {
                Op::Slice { axis: *axis, start: size(start), end: size(end) }
            }
            Op::CacheWrite { at } => Op::CacheWrite { at: size(at) },
            Op::LoopResult { index, ty } => Op::LoopResult {
                index: *index,
                ty: Box::new(Type::new(ty.dtype, shape(&ty.shape))),
            },
            Op::Input
            | Op::Parameter
            | Op::Scalar(_)
            | Op::Integers(_)
            | Op::Indices(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::LessOrEqual
            | Op::Equal
            | Op::Select
            | Op::Cast(_)
            | Op::Gather
            | Op::GatherElements
            | Op::ScatterElements
            | Op::MatMul
            | Op::Linear
            | Op::Transpose(_)
            | Op::Concat { .. }
            | Op::CumSum
            | Op::Sum(_)
            | Op::ScatterAdd
            | Op::Gemm { .. }
            | Op::Conv(_)
            | Op::Softmax
            | Op::LogSoftmax
            | Op::LogSumExp
            | Op::ShiftedExp
            | Op::LayerNorm { .. }
            | Op::LayerNormStatistic { .. }
            | Op::RmsNorm { .. }
            | Op::QuantizedLinear(_)
            | Op::BlockLinear(_)
            | Op::LargestMagnitude
            | Op::CachedAttention(_)
            | Op::Loop(_) => self.clone(),
        }
    }

    /// The sizes in its attributes.
    pub fn dims(&self) -> Vec<Dim> {
        self.attributes().iter().flat_map(|attribute| attribute.value.dims()).cloned().collect()
    }

    /// The attributes in the order of the text.
    pub(crate) fn attributes(&self) -> Vec<Attribute<'_>> {
        let text = |name, value: String| Attribute { name, value: Value::Text(value) };
        let size = |name, dim| Attribute { name, value: Value::Size(dim) };
        match self {
            Op::Scalar(value) => vec![text("", value.to_string())],
            Op::Integers(values) => vec![text("", format!("{values:?}"))],
            Op::Range { start, end } => vec![size("start", start), size("end", end)],
            Op::Indices(symbol) => vec![text("size", symbol.to_string())],
            Op::TopK { count, .. } => vec![size("count", count)],
            Op::Loop(repeat) => vec![
                text("most", repeat.most.to_string()),
                text("carried", repeat.carried.to_string()),
            ],
            Op::LoopResult { index, .. } => vec![text("index", index.to_string())],
            Op::Reshape(shape) | Op::Expand(shape) => {
                vec![Attribute { name: "", value: Value::Shape(shape) }]
            }
            Op::Transpose(order) => vec![text("order", format!("{order:?}"))],
            Op::Concat { axis } => vec![text("axis", axis.to_string())],
            Op::Slice { axis, start, end } => {
                vec![text("axis", axis.to_string()), size("start", start), size("end", end)]
            }
            Op::Sum(axes) => vec![text("axes", format!("{axes:?}"))],
            Op::Gemm { transposed } => {
                let sides = ["left", "right"].into_iter().zip(transposed);
                sides
                    .filter(|(_, turned)| **turned)
                    .map(|(side, _)| text(side, "transposed".into()))
                    .collect()
            }
            Op::Conv(conv) => vec![
                text("strides", format!("{:?}", conv.strides)),
                text("pads", format!("{:?}", conv.pads)),
            ],
            Op::LayerNorm { epsilon }
            | Op::LayerNormStatistic { epsilon, .. }
            | Op::RmsNorm { epsilon } => {
                vec![text("epsilon", format!("{epsilon:e}"))]
            }
            Op::QuantizedLinear(steps) => vec![text("steps", format!("{steps:?}"))],
            Op::BlockLinear(blocks) => vec![
                text("bits", blocks.bits.count().to_string()),
                text("size", blocks.size.to_string()),
            ],
            Op::CacheWrite { at } => vec![size("at", at)],
            Op::CachedAttention(CachedAttention {
                heads,
                key_heads,
                scale,
                cap,
                window,
                padded,
            }) => {
                let always = [text("heads", heads.to_string()), text("scale", scale.to_string())];
                let key_heads =
                    (key_heads != heads).then(|| text("key_heads", key_heads.to_string()));
                let cap = cap.map(|cap| text("cap", cap.to_string()));
                let window = window.map(|window| text("window", window.to_string()));
                let padded = padded.then(|| text("padded", padded.to_string()));
                always.into_iter().chain(key_heads).chain(cap).chain(window).chain(padded).collect()
            }
            Op::Input
            | Op::Parameter
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::LessOrEqual
            | Op::Equal
            | Op::Select
            | Op::Cast(_)
            | Op::Gather
            | Op::GatherElements
            | Op::ScatterElements
            | Op::MatMul
            | Op::Linear
            | Op::CumSum
            | Op::ScatterAdd
            | Op::LargestMagnitude
            | Op::LogSoftmax
            | Op::LogSumExp
            | Op::ShiftedExp
            | Op::Softmax => vec![],
        }
    }
}
