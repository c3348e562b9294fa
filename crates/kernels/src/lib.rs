//! Loops over rows of numbers in which decoding spends its time: products with packed weights,
//! attention to caches, the operations between two products, and exponentials.
//!
//! Each is compiled for several instruction sets; the processor's best is chosen at the call, within
//! the limit of the environment variable `COGNATE_INSTRUCTIONS` ([`Instructions`]). The
//! result of a row is bit for bit the same in every batch and with any padding; in f32 on processors
//! with AMX-BF16, in all batches of fewer than 64 rows, and in all others. There the softmax of an output
//! layer with 32 rows and more is computed from numbers of 16 bits, but for its largest terms.
//!
//! This crate does not depend on graphs or engines.

mod activation;
mod attention;
mod best;
mod bf16;
mod coarse;
mod elementwise;
mod exponential;
mod groups;
mod instructions;
mod integers;
mod log_sum_exp;
mod matrices;
mod matrix;
mod panels;
mod parallel;
mod prefetch;
mod product;
mod rows;
mod screen;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod split;
mod stored;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod tiles;
mod transpose;

pub use activation::Activation;
pub use attention::{Attended, Attention, Caches, MANY, Mask, Memory, Results, Step, Strides};
pub use best::{Best, Exact, best, largest, sum_of_exponentials};
pub use bf16::{Bf16Weights, dots_of_bf16, multiplies_bf16, padded_bf16, round_to_bf16};
pub use coarse::CoarseRows;
pub use elementwise::{Elementwise, Extent, Function, Instruction};
pub use exponential::exponential;
pub use instructions::Instructions;
pub use integers::{IntegerWeights, multiplies_integers};
pub use log_sum_exp::{Gradients, LogSumExp, Softmax};
pub use matrix::Matrix;
pub use parallel::{Parallel, Serial};
pub use prefetch::prefetch_behind;
pub use product::Weights;
pub use rows::{Norm, Place, Quantised, Rows};
pub use screen::{Candidates, Room, Screen, Wanted, dots};
pub use stored::{Stored, reads_halves, round_to_f16};
