//! What the automation of this repository has in common: its folders, how `cargo`, `cognate` and Python are called, the library
//! of ONNX Runtime, and tables.

#![allow(clippy::print_stdout)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod onnxruntime;
pub mod python;
pub mod table;
pub mod workspace;

/// The error and its causes, a line for each.
pub fn explained(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join("\n  because: ")
}
