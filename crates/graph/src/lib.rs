//! The graph language, in which models are defined before any engine runs them.
//!
//! A [`Graph`] is a list of [`Node`]s in the order of evaluation; each is an [`Op`] from a closed
//! set, with one output of known element type and symbolic shape. [`Builder`] creates graphs in
//! code that reads like the paper; [`Program`] joins a graph to its weights, which are lazy
//! [`Recipe`]s: they are copied only when they are written or computed.
//!
//! This crate does no I/O and does not depend on ONNX or on Transformers.
//!
//! ```
//! use cognate_graph::{Builder, DType};
//!
//! let builder = Builder::new("attention");
//! let q = builder.input("q", DType::F32, ["tgt", "d_k"]);
//! let k = builder.input("k", DType::F32, ["src", "d_k"]);
//! builder.output("weights", (q.matmul(k.t()) * 0.125).softmax());
//! let graph = builder.finish()?;
//! assert_eq!(graph.output("weights").unwrap().ty.to_string(), "f32 [tgt, src]");
//! # Ok::<(), cognate_graph::Error>(())
//! ```

mod builder;
mod dim;
mod error;
mod graph;
mod infer;
mod op;
mod operations;
mod shape;
mod text;
mod verify;
mod weights;

pub use builder::{Builder, Repeat, Scope, ScopeGuard, Tensor, concat};
pub use dim::{Bindings, Dim, Linear, Symbol};
pub use error::{Error, ErrorKind};
pub use graph::{Graph, Node, NodeId, Output};
pub use half::{bf16, f16};
pub use op::{
    Binary, Bits, Blocks, CachedAttention, Class, Conv, Loop, Op, Ranked, SMALLEST_MAGNITUDE,
    Scalar, Statistic, Steps, Unary,
};
pub use shape::{DType, Shape, Type};
pub use weights::{
    Element, Generator, Place, Program, Quantized, QuantizedBlocks, QuantizedTable, Recipe,
    Storage, Weights,
};
