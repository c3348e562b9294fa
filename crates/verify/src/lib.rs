//! Verification that an exported folder computes correct results on every runtime.
//!
//! [`verify`] runs seeded random batches and given sentences through the reference evaluator in f64
//! and through each runtime, and returns a [`Verification`](cognate_folder::Verification), which is
//! stored beside the graphs. Tolerances are named only here.

mod agreement;
mod alone;
mod cases;
mod compare;
mod decoding;
mod engines;
mod error;
mod half;
mod reports;
mod search;
mod subject;

pub use agreement::verify;
pub use alone::{EncoderSubject, encoder_in_half, verify_encoder};
pub use compare::{
    BFLOAT16, CLOSE, EXACT, HALF, Measured, QUANTISED, QUANTISED_4, Summary, Tolerance, compare,
};
pub use engines::engines;
pub use error::{Error, ErrorKind, Result};
pub use half::{Form, InHalf, Sample, in_half};
pub use subject::Subject;
