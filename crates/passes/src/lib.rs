//! Passes: graphs to graphs of the same meaning, or of a nearby one that is measured.
//!
//! - [`half`]: f16 where values fit into it, f32 where they do not, and the reasons.
//!
//! A pass reads programs and gives programs; weights stay lazy recipes. This crate knows no evaluator, no ONNX and no Transformer.

pub mod half;
