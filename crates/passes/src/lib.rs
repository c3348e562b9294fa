//! Passes: transformations of graphs that preserve their meaning, or approximate it with a measured
//! error.
//!
//! - [`bfloat16`]: layers in bfloat16.
//! - [`equalize`]: channels with similar ranges, which 8 bits represent better.
//! - [`gradient`]: reverse mode differentiation; [`feed`] turns learned parameters into inputs.
//! - [`fold`]: merges equal values and removes operations without effect.
//! - [`fuse`]: layers that read the same value as one product.
//! - [`join`]: several graphs as one; renaming of inputs and outputs.
//! - [`half`]: f16 for values that it can represent, f32 for others, and the reasons.
//! - [`order`]: nodes in an order that takes less memory.
//! - [`quantize`]: layers in 8-bit integers.
//!
//! A pass turns programs into programs; weights stay lazy recipes. This crate does not depend on
//! evaluators, ONNX or Transformers.

pub mod bfloat16;
pub mod equalize;
mod error;
pub mod feed;
pub mod fold;
pub mod fuse;
pub mod gradient;
pub mod half;
pub mod join;
pub mod order;
pub mod quantize;

pub use error::{Error, ErrorKind};
