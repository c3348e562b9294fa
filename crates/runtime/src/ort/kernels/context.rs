//! Inputs and outputs of a kernel call.

use crate::program::{self, FloatsOrHalves, Tensors};
use ::ort::sys::{
    ONNXTensorElementDataType as ElementType, OrtKernelContext, OrtStatusPtr,
    OrtTensorTypeAndShapeInfo, OrtValue,
};
use ::ort::{Error, Result};
use cognate_graph::f16;
use cognate_kernels::Parallel;
use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::{ptr, slice};

/// A kernel call.
pub(super) struct Context<'c> {
    context: *mut OrtKernelContext,
    /// Inputs and outputs that may be the same memory.
    caches: &'c [[usize; 2]],
    threads: usize,
    /// One bit for each returned output: an output is returned only once.
    taken: Cell<u128>,
    _lent: PhantomData<&'c OrtKernelContext>,
}

/// Supported element types.
trait Element: Copy + 'static {
    const TYPE: ElementType;
}

impl Element for f32 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

impl Element for f16 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
}

impl Element for i64 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
}

impl Element for u8 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
}

impl<'c> Context<'c> {
    /// A call whose `caches`, inputs and outputs, may be the same memory.
    ///
    /// # Safety
    /// `context` is the library's for a call that does not end before `'c`.
    pub(super) unsafe fn new(
        context: *mut OrtKernelContext,
        caches: &'c [[usize; 2]],
        threads: usize,
    ) -> Self {
        Self { context, caches, threads, taken: Cell::new(0), _lent: PhantomData }
    }

    /// The input at `index`.
    fn input<T: Element>(&self, index: usize) -> Result<(Vec<usize>, &'c [T])> {
        if self.caches.iter().any(|&[input, _]| input == index) {
            return Err(Error::new(format!(
                "input {index} is overwritten; request it with its output"
            )));
        }
        let (value, shape) = self.value(index)?;
        // SAFETY: the library keeps this number of elements of this type during the call, and
        // writes no output over this input.
        let elements = unsafe { slice::from_raw_parts(data::<T>(value)?, shape.iter().product()) };
        Ok((shape, elements))
    }

    /// The output at `index`, allocated with this shape.
    fn output<T: Element>(&self, index: usize, shape: &[usize]) -> Result<&'c mut [T]> {
        if self.caches.iter().any(|&[_, output]| output == index) {
            return Err(Error::new(format!("output {index} may overwrite an input; request both")));
        }
        let out = self.made::<T>(index, shape)?;
        // SAFETY: the library allocated this number of elements for this output alone, which is
        // returned once.
        Ok(unsafe { slice::from_raw_parts_mut(out, shape.iter().product()) })
    }

    /// Shape and memory of the input at `index`, which an output may be given too.
    pub(super) fn memory(&self, index: usize) -> Result<(Vec<usize>, *const f32)> {
        let (value, shape) = self.value(index)?;
        Ok((shape, data(value)?))
    }

    /// Memory of the output at `index`, allocated with this shape or given by the caller.
    pub(super) fn new_memory(&self, index: usize, shape: &[usize]) -> Result<*mut f32> {
        self.made(index, shape)
    }

    /// Shape and memory of an output that has the elements of an input.
    fn over(&self, input: usize, output: usize) -> Result<(Vec<usize>, &'c mut [f32])> {
        if !self.caches.contains(&[input, output]) {
            return Err(Error::new(format!("output {output} does not overwrite input {input}")));
        }
        let (value, shape) = self.value(input)?;
        let (from, n) = (data::<f32>(value)?, shape.iter().product());
        let to = self.made::<f32>(output, &shape)?;
        if !ptr::eq(to, from) {
            // SAFETY: two tensors of this size that begin at different addresses do not overlap:
            // the library gives an output separate memory, or the caller memory of its input.
            unsafe { ptr::copy_nonoverlapping(from, to, n) };
        }
        // SAFETY: one memory of this size, of which this is the only reference: no other function
        // returns this input or this output.
        Ok((shape, unsafe { slice::from_raw_parts_mut(to, n) }))
    }
}

impl Parallel for Context<'_> {
    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        type Work<'w> = &'w (dyn Fn(usize) + Sync);
        extern "C" fn call(work: *mut c_void, index: usize) {
            // SAFETY: the pointer is that of the reference below, which outlives the call of
            // `ParallelFor`; threads only share it.
            unsafe { (*work.cast_const().cast::<Work<'_>>())(index) }
        }
        let data = ptr::from_ref::<Work<'_>>(&work).cast_mut().cast();
        // SAFETY: the library calls the function for each index below the count, and returns
        // after all calls.
        let done = check(unsafe {
            (::ort::api().KernelContext_ParallelFor)(self.context, call, n, 0, data)
        });
        done.expect("the library has threads for every call of a kernel");
    }

    fn threads(&self) -> usize {
        self.threads
    }
}

impl<'c> Tensors<'c> for Context<'c> {
    fn floats(&self, input: usize) -> program::Result<(Vec<usize>, &'c [f32])> {
        self.input(input).map_err(text)
    }

    fn bytes(&self, input: usize) -> program::Result<(Vec<usize>, &'c [u8])> {
        self.input(input).map_err(text)
    }

    fn integers(&self, input: usize) -> program::Result<(Vec<usize>, &'c [i64])> {
        self.input(input).map_err(text)
    }

    fn floats_or_halves(&self, input: usize) -> program::Result<(Vec<usize>, FloatsOrHalves<'c>)> {
        let element = self.value(input).and_then(|(value, _)| element(value)).map_err(text)?;
        if element == f16::TYPE {
            let (shape, halves) = self.input(input).map_err(text)?;
            return Ok((shape, FloatsOrHalves::Halves(halves)));
        }
        self.floats(input).map(|(shape, floats)| (shape, FloatsOrHalves::Floats(floats)))
    }

    fn shape(&self, input: usize) -> program::Result<Vec<usize>> {
        self.value(input).map(|(_, shape)| shape).map_err(text)
    }

    fn new_floats(&self, output: usize, shape: &[usize]) -> program::Result<&'c mut [f32]> {
        self.output(output, shape).map_err(text)
    }

    fn new_halves(&self, output: usize, shape: &[usize]) -> program::Result<&'c mut [f16]> {
        self.output(output, shape).map_err(text)
    }

    fn new_bytes(&self, output: usize, shape: &[usize]) -> program::Result<&'c mut [u8]> {
        self.output(output, shape).map_err(text)
    }

    fn written(&self, input: usize, output: usize) -> program::Result<(Vec<usize>, &'c mut [f32])> {
        self.over(input, output).map_err(text)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn text(error: Error) -> String {
    error.to_string()
}

impl Context<'_> {
    /// The input at `index` and its sizes.
    fn value(&self, index: usize) -> Result<(*const OrtValue, Vec<usize>)> {
        let mut value = ptr::null();
        // SAFETY: here and below, the context is that of the current call, and the library writes
        // to the given pointer.
        check(unsafe {
            (::ort::api().KernelContext_GetInput)(self.context, index, &raw mut value)
        })?;
        if value.is_null() {
            Err(Error::new(format!("input {index} is missing")))
        } else {
            Ok((value, shape(value)?))
        }
    }

    /// The address of the output at `index`, of this shape and type.
    fn made<T: Element>(&self, index: usize, shape: &[usize]) -> Result<*mut T> {
        let bit = u32::try_from(index)
            .ok()
            .and_then(|index| 1u128.checked_shl(index))
            .filter(|bit| self.taken.get() & bit == 0);
        let bit = bit.ok_or_else(|| Error::new(format!("output {index} is requested twice")))?;
        self.taken.set(self.taken.get() | bit);
        let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        let mut value = ptr::null_mut();
        // SAFETY: as above, with the given number of sizes.
        check(unsafe {
            (::ort::api().KernelContext_GetOutput)(
                self.context,
                index,
                sizes.as_ptr(),
                sizes.len(),
                &raw mut value,
            )
        })?;
        if value.is_null() {
            Err(Error::new(format!("output {index} is not used")))
        } else {
            data::<T>(value).map(<*const T>::cast_mut)
        }
    }
}

/// The address of a tensor's elements, which must be of this type.
fn data<T: Element>(value: *const OrtValue) -> Result<*const T> {
    let element = element(value)?;
    if element != T::TYPE {
        return Err(Error::new(format!("expected elements of {:?}, found {element:?}", T::TYPE)));
    }
    let mut data = ptr::null_mut();
    // SAFETY: the value is a tensor of the current call; the caller decides whether its
    // elements are written.
    check(unsafe { (::ort::api().GetTensorMutableData)(value.cast_mut(), &raw mut data) })?;
    // The address of an empty tensor may be null, which no slice allows.
    Ok(if data.is_null() { ptr::NonNull::dangling().as_ptr() } else { data.cast() })
}

fn shape(value: *const OrtValue) -> Result<Vec<usize>> {
    let mut sizes = Vec::new();
    described(value, |info| {
        let mut n = 0;
        // SAFETY: the description comes from the library, which writes to the given pointer.
        check(unsafe { (::ort::api().GetDimensionsCount)(info, &raw mut n) })?;
        sizes.resize(n, 0);
        // SAFETY: as above, with room for the given number of sizes.
        check(unsafe { (::ort::api().GetDimensions)(info, sizes.as_mut_ptr(), n) })
    })?;
    Ok(sizes.into_iter().map(|size| usize::try_from(size).unwrap_or_default()).collect())
}

/// The type of a tensor's elements.
fn element(value: *const OrtValue) -> Result<ElementType> {
    let mut element = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    described(value, |info| {
        // SAFETY: the description comes from the library.
        check(unsafe { (::ort::api().GetTensorElementType)(info, &raw mut element) })
    })?;
    Ok(element)
}

/// Calls `read` with the type and shape of a value.
fn described(
    value: *const OrtValue,
    read: impl FnOnce(*const OrtTensorTypeAndShapeInfo) -> Result<()>,
) -> Result<()> {
    let mut info = ptr::null_mut();
    // SAFETY: the value is one of the current call; the description is released below, once.
    check(unsafe { (::ort::api().GetTensorTypeAndShape)(value, &raw mut info) })?;
    let done = read(info);
    // SAFETY: created above and not used afterwards.
    unsafe { (::ort::api().ReleaseTensorTypeAndShapeInfo)(info) };
    done
}

fn check(status: OrtStatusPtr) -> Result<()> {
    // SAFETY: each status comes from the call before.
    unsafe { Error::result_from_status(status) }
}
