//! A custom operator for ONNX Runtime that runs a [`Program`].
//!
//! Exported files contain only ONNX Runtime's operators. When a file written for ONNX Runtime
//! (`--target ort`) is loaded on the CPU, [`substitute`] replaces what programs compute by nodes of
//! the domain [`DOMAIN`], with equal results except for rounding.
//! [`Options::plain`](crate::Options::plain) disables this.
//!
//! Kernels have no mutable state but what a lock guards: the runs of several workers share the kernel
//! of each node, see [`operator::Operator`].

mod context;
mod operator;
mod substitute;

pub(super) use substitute::{Substituted, substitute};

use self::context::Context;
use self::operator::{Attributes, Operator};
use crate::program::Program;
use ::ort::session::builder::SessionBuilder;
use ::ort::sys::{OrtCustomOpDomain, OrtKernelContext};
use ::ort::{AsPointer, Error, Result};
use std::collections::HashMap;
use std::ffi::CString;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// The operators' domain, which does not occur in files.
const DOMAIN: &str = "cognate";

/// The domain with the operator, owned by the library.
struct Domain(*mut OrtCustomOpDomain);

// SAFETY: the domain is complete when it is stored; sessions only read it.
unsafe impl Send for Domain {}

/// One per process, like the library: it must outlive every session that uses it.
static DOMAIN_OF_PROCESS: Mutex<Option<Domain>> = Mutex::new(None);

/// The programs of sessions that are being created, by the number in their nodes, and the next number.
static PROGRAMS: Mutex<(i64, Option<HashMap<i64, Kernel>>)> = Mutex::new((0, None));

/// A program that nodes find by its number, as long as this lives.
pub(super) struct Registered(i64);

impl Registered {
    fn new(program: Arc<Program>, threads: usize) -> Self {
        let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        programs.0 += 1;
        let number = programs.0;
        programs.1.get_or_insert_default().insert(number, Kernel { program, threads });
        Self(number)
    }

    fn number(&self) -> i64 {
        self.0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        programs.1.get_or_insert_default().remove(&self.0);
    }
}

/// The kernel of a node.
#[derive(Clone)]
struct Kernel {
    program: Arc<Program>,
    threads: usize,
}

impl Operator for Kernel {
    fn new(attributes: &Attributes<'_>) -> Result<Self> {
        let programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        let kernel = attributes.integer(c"program").and_then(|number| programs.1.as_ref()?.get(&number).cloned());
        kernel.ok_or_else(|| Error::new("no program of this number"))
    }

    fn compute(&self, context: *mut OrtKernelContext) -> Result<()> {
        // SAFETY: the context is that of this call and lives as long.
        let tensors = unsafe { Context::new(context, &self.program.caches, self.threads) };
        self.program.run(&tensors).map_err(Error::new)
    }
}

/// Registers the operator for sessions of `builder`.
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

/// A new domain with the operator.
fn domain() -> Result<*mut OrtCustomOpDomain> {
    let (name, mut domain) = (CString::new(DOMAIN)?, ptr::null_mut());
    // SAFETY: the library copies the name and writes to the given pointer; it gets its
    // own object back.
    unsafe {
        Error::result_from_status((::ort::api().CreateCustomOpDomain)(name.as_ptr(), &raw mut domain))?;
        operator::add::<Kernel>(domain)?;
    }
    Ok(domain)
}
