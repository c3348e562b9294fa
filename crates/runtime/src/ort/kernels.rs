//! Custom operators for ONNX Runtime that read memory once where its operators read it
//! several times.
//!
//! Exported files contain only ONNX Runtime's operators. When a file written for ONNX Runtime
//! (`--target ort`) is loaded on the CPU, [`substitute`] replaces attention and the operators
//! between products by operators of the domain [`DOMAIN`], with equal results except for rounding.
//! [`Options::plain`](crate::Options::plain) disables this.
//!
//! Kernels have no mutable state: the runs of several workers share the kernel of each node, see
//! [`operator::Operator`].

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

/// The operators' domain, which does not occur in files.
const DOMAIN: &str = "cognate";

/// The domain with all operators, owned by the library.
struct Registered(*mut OrtCustomOpDomain);

// SAFETY: the domain is complete when it is stored; sessions only read it.
unsafe impl Send for Registered {}

/// One per process, like the library: it must outlive every session that uses it.
static REGISTERED: Mutex<Option<Registered>> = Mutex::new(None);

/// Registers the operators for sessions of `builder`.
pub(super) fn register(builder: &mut SessionBuilder) -> Result<()> {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let Registered(domain) = match registered.as_ref() {
        Some(registered) => registered,
        None => registered.insert(Registered(domain()?)),
    };
    // SAFETY: options and domain belong to the library; the builder is borrowed exclusively, and
    // the domain is never released.
    let status = unsafe { (::ort::api().AddCustomOpDomain)(builder.ptr().cast_mut(), *domain) };
    // SAFETY: the status is that of the call.
    unsafe { Error::result_from_status(status) }
}

/// A new domain with all operators.
fn domain() -> Result<*mut OrtCustomOpDomain> {
    let (name, mut domain) = (CString::new(DOMAIN)?, ptr::null_mut());
    // SAFETY: the library copies the name and writes to the given pointer; it gets its
    // own object back.
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
