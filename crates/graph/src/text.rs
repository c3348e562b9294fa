//! The canonical text of a graph: stable, for snapshots, `cognate show` and error context.
//!
//! ```text
//! graph attention
//!   input q: f32 [tgt, 3]
//!   input k: f32 [src, 3]
//!   %2 = Transpose %1 order=[1, 0] : f32 [3, src]
//!   %3 = MatMul %0 %2 : f32 [tgt, src]
//!   output scores = %3
//! ```
//!
//! Inputs and parameters are read by name, other nodes by number; a line `in PATH` opens each scope.

use crate::{Graph, Op, Scalar};
use std::fmt;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph {}", self.name)?;
        for (_, node) in self.inputs() {
            writeln!(f, "  input {}: {}", node.name, node.ty)?;
        }
        for (_, node) in self.parameters() {
            writeln!(f, "  parameter {}: {}", node.name, node.ty)?;
        }
        let mut scope = "";
        for (id, node) in self.iter() {
            if matches!(node.op, Op::Input | Op::Parameter) {
                continue;
            }
            let path = node.name.rsplit_once('/').map_or("", |(path, _)| path);
            if path != scope {
                writeln!(f, "  in {}", if path.is_empty() { self.name.as_str() } else { path })?;
                scope = path;
            }
            write!(f, "  {id} = {}", node.op.name())?;
            for &input in &node.inputs {
                let read = self.node(input);
                match read.op {
                    Op::Input | Op::Parameter => write!(f, " {}", read.name)?,
                    _ => write!(f, " {input}")?,
                }
            }
            attributes(&node.op, f)?;
            writeln!(f, " : {}", node.ty)?;
        }
        for output in &self.outputs {
            writeln!(f, "  output {} = {}", output.name, output.node)?;
        }
        Ok(())
    }
}

fn attributes(op: &Op, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match op {
        Op::Scalar(Scalar::F32(value)) => write!(f, " {value:?}"),
        Op::Scalar(Scalar::F16(value)) => write!(f, " {:?}", value.to_f32()),
        Op::Scalar(Scalar::I64(value)) => write!(f, " {value}"),
        Op::Integers(values) => write!(f, " {values:?}"),
        Op::Range { start, end } => write!(f, " start={start} end={end}"),
        Op::Transpose(order) => write!(f, " order={order:?}"),
        Op::Concat { axis } => write!(f, " axis={axis}"),
        Op::Slice { axis, start, end } => write!(f, " axis={axis} start={start} end={end}"),
        Op::Sum(axes) => write!(f, " axes={axes:?}"),
        Op::Gemm { transposed: [left, right] } => {
            f.write_str(if *left { " left=transposed" } else { "" })?;
            f.write_str(if *right { " right=transposed" } else { "" })
        }
        Op::LayerNorm { epsilon } | Op::LayerNormStatistic { epsilon, .. } | Op::RmsNorm { epsilon } => write!(f, " epsilon={epsilon:e}"),
        Op::QuantizedLinear(steps) => write!(f, " steps={steps:?}"),
        Op::BlockLinear(blocks) => write!(f, " bits={} size={}", blocks.bits.count(), blocks.size),
        Op::CacheWrite { at } => write!(f, " at={at}"),
        Op::CachedAttention(attention) => write!(f, " heads={} scale={}", attention.heads, attention.scale),
        // The type at the end of the line says the rest.
        Op::Input
        | Op::Parameter
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::LessOrEqual
        | Op::Equal
        | Op::Select
        | Op::Cast(_)
        | Op::Gather
        | Op::MatMul
        | Op::Linear
        | Op::Reshape(_)
        | Op::CumSum
        | Op::Expand(_)
        | Op::ScatterAdd
        | Op::LargestMagnitude
        | Op::LogSumExp
        | Op::ShiftedExp
        | Op::Softmax => Ok(()),
    }
}
