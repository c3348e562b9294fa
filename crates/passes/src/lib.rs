//! Passes: graphs to graphs of the same meaning, or of a nearby one that is measured.
//!
//! - [`bfloat16`]: layers in bfloat16.
//! - [`equalize`]: channels of like ranges, which 8 bits round better.
//! - [`gradient`]: reverse mode differentiation; [`feed`] makes inputs of the parameters that are
//!   learned.
//! - [`fold`]: equal values once, and nothing that changes nothing.
//! - [`fuse`]: layers that read one value as one product.
//! - [`join`]: several graphs as one, and names of inputs and outputs.
//! - [`half`]: f16 where values fit into it, f32 where they do not, and the reasons.
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
pub mod quantize;

pub use error::{Error, ErrorKind};
