//! The reference evaluator: it defines the meaning of the graph language, in single and double
//! precision.
//!
//! An engine is correct if it agrees with this crate in `f64`. There is one plain function per
//! operation, sums are in written order, and nothing is fused. Values of type f16 are computed in
//! the evaluator's precision and rounded after each operation. Weights of linear layers and tables
//! are read from their storage; smaller ones are converted once.
//!
//! This crate does not depend on ONNX or on Transformers.
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
mod choice;
mod conv;
mod error;
mod evaluator;
mod ops;
mod parts;
mod quantized;
mod sums;
mod value;

pub use error::{Error, ErrorKind};
pub use evaluator::{Evaluator, Precision};
pub use value::{Float, Value};
