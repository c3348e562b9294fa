//! Loops over rows of numbers that decoding spends its time in: attention to caches, what stands between two products, and
//! exponentials.
//!
//! Each is compiled for several instruction sets, and the processor's best is chosen when it is called. A row gives the same bits in
//! whatever batch it stands, with whatever padding.
//!
//! This crate does not depend on graphs or engines.

mod attention;
mod exponential;
mod prefetch;
mod rows;

pub use attention::{Attention, Caches, MANY, Mask, Memory, Step, Strides};
pub use exponential::exponential;
pub use prefetch::prefetch_behind;
pub use rows::{Activation, Norm, Place, Quantised, Rows};
