//! Operators of our own within ONNX Runtime, which read memory once where its own read it several times.
//!
//! An exported file holds operators that every ONNX Runtime knows. When one for ONNX Runtime alone (`--target ort`) is loaded on the
//! processor, [`substitute`] puts operators of the domain [`DOMAIN`] in place of attention, and of what stands between products; they
//! give the same numbers but for roundings. [`Options::plain`](crate::Options::plain) leaves the file as it is.
//!
//! Kernels hold nothing that a run changes: the runs of several workers share one of each node, by [`operator::Operator`].

mod cached_attention;
mod context;
mod memory_attention;
mod operator;
mod rows;
mod substitute;

pub(super) use substitute::substitute;

use self::cached_attention::CachedAttention;
use self::memory_attention::{MemoryAttention, SelfAttention};
use self::rows::BetweenProducts;
use ::ort::session::builder::SessionBuilder;
use ::ort::sys::OrtCustomOpDomain;
use ::ort::{AsPointer, Error, Result};
use std::ffi::CString;
use std::fmt::Display;
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// The operators' domain, which no file names.
const DOMAIN: &str = "cognate";

/// The domain with all operators, in the library's memory.
struct Registered(*mut OrtCustomOpDomain);

// SAFETY: the domain is complete when it is stored; sessions only read it.
unsafe impl Send for Registered {}

/// One for the process, as the library is: it has to outlive every session that uses it.
static REGISTERED: Mutex<Option<Registered>> = Mutex::new(None);

/// Lets sessions that `builder` makes use the operators.
pub(super) fn register(builder: &mut SessionBuilder) -> Result<()> {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let Registered(domain) = match registered.as_ref() {
        Some(registered) => registered,
        None => registered.insert(Registered(domain()?)),
    };
    // SAFETY: options and domain are the library's; the builder is borrowed alone, and the domain is never released.
    let status = unsafe { (::ort::api().AddCustomOpDomain)(builder.ptr().cast_mut(), *domain) };
    // SAFETY: the status is that of the call.
    unsafe { Error::result_from_status(status) }
}

/// A new domain with all operators.
fn domain() -> Result<*mut OrtCustomOpDomain> {
    let (name, mut domain) = (CString::new(DOMAIN)?, ptr::null_mut());
    // SAFETY: the library copies the name and writes to the place that it is given; what it makes is its own, and is given to it
    // again.
    unsafe {
        Error::result_from_status((::ort::api().CreateCustomOpDomain)(name.as_ptr(), &raw mut domain))?;
        operator::add::<CachedAttention>(domain)?;
        operator::add::<MemoryAttention>(domain)?;
        operator::add::<SelfAttention>(domain)?;
        operator::add::<BetweenProducts>(domain)?;
    }
    Ok(domain)
}

/// The sizes of a tensor of `N` axes.
fn sizes<const N: usize>(what: &str, shape: &[usize]) -> Result<[usize; N]> {
    shape.try_into().map_err(|_| expected(what, format!("{N} axes"), format!("{shape:?}")))
}

fn expected(what: &str, expected: impl Display, found: impl Display) -> Error {
    Error::new(format!("{what}: expected {expected}, found {found}"))
}
