//! Custom operators for ONNX Runtime: one that runs a [`Program`](crate::program::Program), and
//! those of [`gradients`](super::gradients).
//!
//! Exported files contain only ONNX Runtime's operators. When a file written for ONNX Runtime
//! (`--target ort`) is loaded on the CPU, [`substitute`](crate::program::substitute) replaces the
//! operations that programs can compute by nodes of the domain [`DOMAIN`], with equal results
//! except for rounding. [`Options::plain`](crate::Options::plain) disables this.
//!
//! Kernels have no mutable state except behind a lock: the runs of several workers share the kernel
//! of each node, see [`operator::Operator`].

mod context;
mod gradients;
mod operator;

use self::context::Context;
use self::gradients::{Elementwise, LogSumExp, LogSumExpGradient, LogSumExpWithGradient, Product};
use self::operator::{Attributes, Operator};
use crate::program::{DOMAIN, Kernel};
use ::ort::session::builder::SessionBuilder;
use ::ort::sys::{OrtCustomOpDomain, OrtKernelContext};
use ::ort::{AsPointer, Error, Result};
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// The domain with the operators, owned by the library.
struct Domain(*mut OrtCustomOpDomain);

// SAFETY: the domain is complete when it is stored; sessions only read it.
unsafe impl Send for Domain {}

/// One per process, like the library: it must outlive every session that uses it.
static DOMAIN_OF_PROCESS: Mutex<Option<Domain>> = Mutex::new(None);

impl Operator for Kernel {
    const NAME: &CStr = c"Program";

    fn new(attributes: &Attributes<'_>) -> Result<Self> {
        attributes
            .integer(c"program")
            .and_then(Kernel::of)
            .ok_or_else(|| Error::new("no program of this number"))
    }

    fn compute(&self, context: *mut OrtKernelContext) -> Result<()> {
        // SAFETY: the context is that of this call and lives as long.
        let tensors = unsafe { Context::new(context, &self.program.caches, self.threads) };
        self.program.run(&tensors, self.own_lengths).map_err(Error::new)
    }
}

/// Registers the operators for sessions of `builder`.
pub(super) fn register(builder: &mut SessionBuilder) -> Result<()> {
    let mut of_process = DOMAIN_OF_PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let Domain(domain) = match of_process.as_ref() {
        Some(domain) => domain,
        None => of_process.insert(Domain(domain()?)),
    };
    // SAFETY: options and domain belong to the library; the builder is borrowed exclusively, and
    // the domain is never released.
    let status = unsafe { (::ort::api().AddCustomOpDomain)(builder.ptr().cast_mut(), *domain) };
    // SAFETY: the status is that of the call.
    unsafe { Error::result_from_status(status) }
}

/// A new domain with the operators.
fn domain() -> Result<*mut OrtCustomOpDomain> {
    let (name, mut domain) = (CString::new(DOMAIN)?, ptr::null_mut());
    // SAFETY: the library copies the name and writes to the given pointer; it gets its
    // own object back.
    unsafe {
        Error::result_from_status((::ort::api().CreateCustomOpDomain)(
            name.as_ptr(),
            &raw mut domain,
        ))?;
        operator::add::<Kernel>(domain)?;
        operator::add::<Product>(domain)?;
        operator::add::<Elementwise>(domain)?;
        operator::add::<LogSumExp>(domain)?;
        operator::add::<LogSumExpGradient>(domain)?;
        operator::add::<LogSumExpWithGradient>(domain)?;
    }
    Ok(domain)
}
