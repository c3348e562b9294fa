//! Operators of our own within ONNX Runtime, which read memory once where its own read it several times.
//!
//! An exported file holds operators that every ONNX Runtime knows. When one for ONNX Runtime alone (`--target ort`) is loaded on the
//! processor, [`substitute`] puts operators of the domain [`DOMAIN`] in place of attention, and of what stands between products; they
//! give the same numbers but for roundings. [`Options::plain`](crate::Options::plain) leaves the file as it is.
//!
//! Kernels hold nothing that a run changes: sessions of several workers call one and the same at a time.

mod cached_attention;
mod memory_attention;
mod rows;
mod substitute;

pub(super) use substitute::substitute;

use self::cached_attention::CachedAttention;
use self::memory_attention::{MemoryAttention, SelfAttention};
use self::rows::BetweenProducts;
use ::ort::Error;
use ::ort::operator::{ComputeContext, OperatorDomain};
use ::ort::value::{PrimitiveTensorElementType, Shape, ValueRef};
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

/// The operators' domain, which no file names.
const DOMAIN: &str = "cognate";

/// The operators, for a session.
pub(super) fn operators() -> ::ort::Result<OperatorDomain> {
    OperatorDomain::new(DOMAIN)?.add(CachedAttention)?.add(MemoryAttention)?.add(SelfAttention)?.add(BetweenProducts)
}

/// The input at `index`, which is there.
fn given<'c>(context: &'c ComputeContext, index: usize) -> ::ort::Result<ValueRef<'c>> {
    context.input(index)?.ok_or_else(|| Error::new(format!("input {index} is missing")))
}

/// The shape and elements of a value.
fn elements<'v, T: PrimitiveTensorElementType>(value: &'v ValueRef<'_>) -> ::ort::Result<(&'v Shape, &'v [T])> {
    value.try_extract_tensor::<T>()
}

/// The sizes of a tensor of `N` axes.
fn sizes<const N: usize>(what: &str, shape: &Shape) -> ::ort::Result<[usize; N]> {
    let sizes: Vec<usize> = shape.iter().map(|&size| usize::try_from(size).unwrap_or_default()).collect();
    sizes.try_into().map_err(|sizes: Vec<usize>| expected(what, format!("{N} axes"), format!("{sizes:?}")))
}

fn expected(what: &str, expected: impl Display, found: impl Display) -> Error {
    Error::new(format!("{what}: expected {expected}, found {found}"))
}

/// Calls `work` for each part, in as many threads as the session has.
fn by_parts<P: Send>(context: &ComputeContext, parts: impl Iterator<Item = P>, work: impl Fn(usize, P) + Sync + Send) -> ::ort::Result<()> {
    let parts: Vec<_> = parts.map(|part| Mutex::new(Some(part))).collect();
    context.par_for(parts.len(), 0, |index| {
        // A panic ends the process: nobody sees what it left.
        let part = parts[index].lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(part) = part {
            work(index, part);
        }
    })
}
