//! Operators for ONNX Runtime's C interface, with kernels that threads share.
//!
//! ONNX Runtime creates a kernel for each node of a session. Every run of the session calls it,
//! from several threads at the same time. `ort`'s trait creates a `&mut` to the kernel in each
//! call; two at once are undefined behaviour, even if neither writes. Here a kernel is [`Sync`] and
//! called by `&self`, so the compiler ensures that it is not written without a lock.

use ::ort::sys::{
    ONNXTensorElementDataType as ElementType, ORT_API_VERSION, OrtApi, OrtCustomOp,
    OrtCustomOpDomain, OrtCustomOpInputOutputCharacteristic as Presence, OrtErrorCode,
    OrtKernelContext, OrtKernelInfo, OrtMemType, OrtStatusPtr,
};
use ::ort::{Error, Result};
use std::ffi::{CStr, CString, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;

/// The kernel of a node, with any number of inputs and outputs of any type.
pub(super) trait Operator: Sized + Send + Sync + 'static {
    /// The operator's name in nodes.
    const NAME: &CStr;

    /// Creates the kernel of a node.
    fn new(attributes: &Attributes<'_>) -> Result<Self>;

    /// Computes the outputs of a call, possibly from several threads at the same time.
    fn compute(&self, context: *mut OrtKernelContext) -> Result<()>;
}

/// The attributes of a node.
pub(super) struct Attributes<'i> {
    info: *const OrtKernelInfo,
    _lent: PhantomData<&'i OrtKernelInfo>,
}

impl Attributes<'_> {
    /// An integer that the node must have.
    pub(super) fn named(&self, name: &str) -> Result<i64> {
        let missing = || Error::new(format!("expected an attribute {name}, found none"));
        self.integer(&CString::new(name)?).ok_or_else(missing)
    }

    /// Integers that the node must have.
    pub(super) fn all_named(&self, name: &str) -> Result<Vec<i64>> {
        let (name, mut n) = (CString::new(name)?, 0);
        let mut values = Vec::new();
        // The first call returns the size.
        for _ in 0..2 {
            let to = if values.is_empty() { ptr::null_mut() } else { values.as_mut_ptr() };
            // SAFETY: as in `integer`; there is room for `n` integers, or none is written.
            let status = unsafe {
                (::ort::api().KernelInfoGetAttributeArray_int64)(
                    self.info,
                    name.as_ptr(),
                    to,
                    &raw mut n,
                )
            };
            // SAFETY: the status comes from the call.
            unsafe { Error::result_from_status(status) }?;
            values.resize(n, 0);
        }
        Ok(values)
    }

    /// Numbers of inputs and outputs.
    pub(super) fn counts(&self) -> Result<[usize; 2]> {
        let [mut inputs, mut outputs] = [0; 2];
        // SAFETY: as in `integer`.
        let statuses = unsafe {
            [
                (::ort::api().KernelInfo_GetInputCount)(self.info, &raw mut inputs),
                (::ort::api().KernelInfo_GetOutputCount)(self.info, &raw mut outputs),
            ]
        };
        for status in statuses {
            // SAFETY: the status comes from the call.
            unsafe { Error::result_from_status(status) }?;
        }
        Ok([inputs, outputs])
    }

    pub(super) fn integer(&self, name: &CStr) -> Option<i64> {
        let mut value = 0;
        // SAFETY: the library lends `info` while a kernel is created, and writes the value.
        let status = unsafe {
            (::ort::api().KernelInfoGetAttribute_int64)(self.info, name.as_ptr(), &raw mut value)
        };
        // SAFETY: the status comes from the call.
        unsafe { Error::result_from_status(status) }.ok().map(|()| value)
    }
}

/// Adds the operator to a domain.
///
/// # Safety
/// The domain belongs to the library of this process.
pub(super) unsafe fn add<O: Operator>(domain: *mut OrtCustomOpDomain) -> Result<()> {
    // SAFETY: the caller guarantees the domain, and the table is static.
    let status = unsafe { (::ort::api().CustomOpDomain_Add)(domain, table::<O>()) };
    // SAFETY: the status comes from the call.
    unsafe { Error::result_from_status(status) }
}

/// The functions of an operator. They are stateless; each operator has its own.
fn table<O: Operator>() -> &'static OrtCustomOp {
    const {
        &OrtCustomOp {
            version: ORT_API_VERSION,
            CreateKernel: None,
            GetName: Some(name::<O>),
            GetExecutionProviderType: Some(provider),
            GetInputType: Some(any_type),
            GetInputTypeCount: Some(one),
            GetOutputType: Some(any_type),
            GetOutputTypeCount: Some(one),
            KernelCompute: None,
            KernelDestroy: Some(destroy::<O>),
            GetInputCharacteristic: Some(variadic),
            GetOutputCharacteristic: Some(variadic),
            GetInputMemoryType: Some(memory),
            GetVariadicInputMinArity: Some(at_least_one),
            GetVariadicInputHomogeneity: Some(of_several_types),
            GetVariadicOutputMinArity: Some(at_least_one),
            GetVariadicOutputHomogeneity: Some(of_several_types),
            CreateKernelV2: Some(create::<O>),
            KernelComputeV2: Some(compute::<O>),
            InferOutputShapeFn: None,
            GetStartVersion: Some(version),
            GetEndVersion: Some(version),
            GetMayInplace: Some(no_pairs),
            ReleaseMayInplace: Some(release),
            GetAliasMap: Some(no_pairs),
            ReleaseAliasMap: Some(release),
        }
    }
}

unsafe extern "system" fn name<O: Operator>(_: *const OrtCustomOp) -> *const std::ffi::c_char {
    O::NAME.as_ptr()
}

/// The CPU's provider.
unsafe extern "system" fn provider(_: *const OrtCustomOp) -> *const std::ffi::c_char {
    ptr::null()
}

unsafe extern "system" fn version(_: *const OrtCustomOp) -> c_int {
    1
}

/// One parameter, which represents any number of values.
unsafe extern "system" fn one(_: *const OrtCustomOp) -> usize {
    1
}

unsafe extern "system" fn any_type(_: *const OrtCustomOp, _: usize) -> ElementType {
    ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED
}

unsafe extern "system" fn variadic(_: *const OrtCustomOp, _: usize) -> Presence {
    Presence::INPUT_OUTPUT_VARIADIC
}

unsafe extern "system" fn at_least_one(_: *const OrtCustomOp) -> c_int {
    1
}

unsafe extern "system" fn of_several_types(_: *const OrtCustomOp) -> c_int {
    0
}

unsafe extern "system" fn memory(_: *const OrtCustomOp, _: usize) -> OrtMemType {
    OrtMemType::OrtMemTypeDefault
}

/// The library does not give an output the memory of an input; callers may.
unsafe extern "system" fn no_pairs(_: *mut *mut c_int, _: *mut *mut c_int) -> usize {
    0
}

unsafe extern "system" fn release(_: *mut c_int, _: *mut c_int) {}

unsafe extern "system" fn create<O: Operator>(
    _: *const OrtCustomOp,
    _: *const OrtApi,
    info: *const OrtKernelInfo,
    kernel: *mut *mut c_void,
) -> OrtStatusPtr {
    let made = O::new(&Attributes { info, _lent: PhantomData }).map(|made| {
        // SAFETY: the library passes a pointer to write to; it passes the kernel to `compute` and
        // finally to `destroy`.
        unsafe { *kernel = Box::into_raw(Box::new(made)).cast() };
    });
    status(made)
}

unsafe extern "system" fn compute<O: Operator>(
    kernel: *mut c_void,
    context: *mut OrtKernelContext,
) -> OrtStatusPtr {
    // SAFETY: the pointer comes from `create`, and its kernel lives until `destroy`, which is
    // called once after the last run. All references, in any number of threads, are shared, and
    // `O` is `Sync`.
    let kernel = unsafe { &*kernel.cast_const().cast::<O>() };
    status(kernel.compute(context))
}

unsafe extern "system" fn destroy<O: Operator>(kernel: *mut c_void) {
    // SAFETY: the pointer comes from `create`; the library calls this once and does not use
    // the kernel again.
    drop(unsafe { Box::from_raw(kernel.cast::<O>()) });
}

fn status(result: Result<()>) -> OrtStatusPtr {
    let Err(error) = result else { return OrtStatusPtr::default() };
    let message = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
    // SAFETY: the library copies the message.
    unsafe { (::ort::api().CreateStatus)(OrtErrorCode::ORT_FAIL, message.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    const THREADS: usize = 4;

    /// A kernel whose calls wait for each other, so that they overlap.
    struct Meeting(Barrier);

    impl Operator for Meeting {
        const NAME: &CStr = c"Meeting";

        fn new(_: &Attributes<'_>) -> Result<Self> {
            Ok(Self(Barrier::new(THREADS)))
        }

        fn compute(&self, _: *mut OrtKernelContext) -> Result<()> {
            self.0.wait();
            Ok(())
        }
    }

    /// As in ONNX Runtime with several runs of a session; Miri checks every reference
    /// (`cargo xtask miri`).
    #[test]
    fn threads_are_in_one_kernel_at_the_same_time() {
        let (operator, mut kernel) = (table::<Meeting>(), ptr::null_mut());
        let create = operator.CreateKernelV2.expect("a function");
        // SAFETY: called as by the library; the kernel reads no attributes.
        assert!(unsafe { create(operator, ptr::null(), ptr::null(), &raw mut kernel) }.0.is_null());
        let address = kernel as usize;
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(move || {
                    let compute = operator.KernelComputeV2.expect("a function");
                    let kernel = ptr::with_exposed_provenance_mut(address);
                    for _ in 0..8 {
                        // SAFETY: the kernel exists, and does not use the context.
                        assert!(unsafe { compute(kernel, ptr::null_mut()) }.0.is_null());
                    }
                });
            }
        });
        // SAFETY: no call is running.
        unsafe { operator.KernelDestroy.expect("a function")(kernel) };
    }
}
