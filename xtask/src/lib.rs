//! `cargo xtask`: the automation of this repository.
//!
//! It uses no crate of the workspace and runs `cognate` as a program, so it builds in seconds and
//! tests what users run. Other programs of the automation use its modules `workspace`, `table`,
//! `memory`, `python`, `wheel` and `onnxruntime`.

// These commands print tables and paths.
#![allow(missing_docs, clippy::print_stdout)]

pub mod circles;
pub mod deny;
pub mod examples;
pub mod export;
pub mod fixtures;
pub mod fuzz;
pub mod interop;
pub mod layers;
pub mod lints;
pub mod memory;
pub mod mpi;
pub mod nightly;
pub mod onnxruntime;
pub mod packages;
pub mod programs;
pub mod python;
pub mod skipped;
pub mod snapshots;
pub mod systems;
pub mod table;
pub mod test;
pub mod test_programs;
pub mod wheel;
pub mod workspace;

/// The error and its causes, one per line.
pub fn explained(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join("\n  because: ")
}
