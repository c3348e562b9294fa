//! The meaning of the graph language: a reference evaluator, slow and obvious, in single and double precision.
//!
//! Whatever an engine computes is right if it agrees with this crate in `f64`. One function an operation, every sum in
//! the order in which it is written down; nothing is fused. What a graph calls f16 is computed in the evaluator's precision
//! too, and rounded after each operation. The weights of linear layers and tables stay where they are stored; smaller ones are kept in
//! the evaluator's precision after first use.
//!
//! This crate knows no ONNX and no Transformer.
//!
//! ```
//! use cognate_eval::{Evaluator, Value};
//! use cognate_graph::{Builder, DType, Program, Weights};
//! use ndarray::array;
//!
//! let builder = Builder::new("softmax");
//! let x = builder.input("x", DType::F32, ["rows", "width"]);
//! builder.output("y", x.softmax());
//! let program = Program::new(builder.finish()?, Weights::default())?;
//!
//! let x = array![[0.0, 0.0], [0.0, f64::ln(3.0)]].into_dyn();
//! let outputs = Evaluator::<f64>::new(&program).run(|name| (name == "x").then(|| Value::from(x.clone())))?;
//! assert_eq!(outputs[0].1.as_float().unwrap(), &array![[0.5, 0.5], [0.25, 0.75]].into_dyn());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod error;
mod evaluator;
mod ops;
mod parts;
mod quantized;
mod sums;
mod value;

pub use error::{Error, ErrorKind};
pub use evaluator::Evaluator;
pub use value::{Float, Value};
