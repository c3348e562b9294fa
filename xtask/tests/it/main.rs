//! The parts of the automation.

#![allow(clippy::unwrap_used)]

mod circles;
mod export;
mod export_verification;
mod fuzz;
mod fuzz_libfuzzer;
mod interop;
mod interop_cell;
mod interop_checkpoint;
mod interop_matrix;
mod interop_programs;
mod interop_record;
mod layers;
mod onnxruntime;
mod skipped;
mod snapshots;
mod systems;
mod table;
mod test;
mod test_programs;
mod workspace;
