//! Shared code of the automation: folders, calls of `cargo`, `cognate` and Python, the library of
//! ONNX Runtime, and tables.

#![allow(clippy::print_stdout)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod onnxruntime;
pub mod python;
pub mod table;
pub mod workspace;

/// The error and its causes, one per line.
pub fn explained(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join("\n  because: ")
}
