//! Inputs and outputs of a kernel call.

use super::expected;
use ::ort::sys::{ONNXTensorElementDataType as ElementType, OrtKernelContext, OrtStatusPtr, OrtTensorTypeAndShapeInfo, OrtValue};
use ::ort::{Error, Result};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};
use std::{ptr, slice};

/// A kernel call.
pub(super) struct Context<'c> {
    context: *mut OrtKernelContext,
    in_place: [&'static [c_int]; 2],
    /// A bit for each output returned: an output is returned only once.
    taken: Cell<u64>,
    _lent: PhantomData<&'c OrtKernelContext>,
}

/// A tensor of the host.
pub(super) struct Input<'c, T> {
    pub(super) shape: Vec<usize>,
    pub(super) elements: &'c [T],
}

/// An input that an output may overwrite.
pub(super) enum Over<'c, T> {
    /// Both are the same memory.
    Same(&'c mut [T]),
    Apart(&'c [T], &'c mut [T]),
    /// The output is not used.
    Unasked(&'c [T]),
}

/// Supported element types.
pub(super) trait Element: Copy + 'static {
    const TYPE: ElementType;
}

impl Element for f32 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

impl Element for i32 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
}

impl Element for u8 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
}

impl<'c> Context<'c> {
    /// A call of an operator whose `in_place` inputs and outputs may be the same memory.
    ///
    /// # Safety
    /// `context` is the library's for a call that does not end before `'c`.
    pub(super) unsafe fn new(context: *mut OrtKernelContext, in_place: [&'static [c_int]; 2]) -> Self {
        Self { context, in_place, taken: Cell::new(0), _lent: PhantomData }
    }

    /// The input at `index`, if the node has it.
    pub(super) fn input<T: Element>(&self, index: usize) -> Result<Option<Input<'c, T>>> {
        if self.in_place[0].iter().any(|&over| usize::try_from(over) == Ok(index)) {
            return Err(Error::new(format!("input {index} is overwritten; request it with its output")));
        }
        let Some((value, shape)) = self.value(index)? else { return Ok(None) };
        let n = shape.iter().product();
        // SAFETY: the library keeps this number of elements of this type during the call, and
        // writes no output over this input.
        let elements = unsafe { slice::from_raw_parts(data::<T>(value)?, n) };
        Ok(Some(Input { shape, elements }))
    }

    /// The required input at `index`.
    pub(super) fn given<T: Element>(&self, index: usize) -> Result<Input<'c, T>> {
        self.input(index)?.ok_or_else(|| missing(index))
    }

    /// The output at `index`, allocated with this shape; `None` if it is not used.
    pub(super) fn output<T: Element>(&self, index: usize, shape: &[usize]) -> Result<Option<&'c mut [T]>> {
        if self.in_place[1].iter().any(|&over| usize::try_from(over) == Ok(index)) {
            return Err(Error::new(format!("output {index} may overwrite an input; request both")));
        }
        let Some(out) = self.made::<T>(index, shape)? else { return Ok(None) };
        // SAFETY: the library allocated this number of elements for this output alone, which is
        // returned once.
        Ok(Some(unsafe { slice::from_raw_parts_mut(out, shape.iter().product()) }))
    }

    /// Returns the input and output of an in-place pair, and their shape.
    pub(super) fn over<T: Element>(&self, input: usize, output: usize) -> Result<(Vec<usize>, Over<'c, T>)> {
        let mut pairs = self.in_place[0].iter().zip(self.in_place[1]);
        if !pairs.any(|(&from, &to)| usize::try_from(from) == Ok(input) && usize::try_from(to) == Ok(output)) {
            return Err(Error::new(format!("output {output} does not overwrite input {input}")));
        }
        let (value, shape) = self.value(input)?.ok_or_else(|| missing(input))?;
        let (from, n) = (data::<T>(value)?, shape.iter().product());
        let over = match self.made::<T>(output, &shape)? {
            // SAFETY: one memory of this size, of which this is the only reference: no other
            // function returns this input.
            Some(to) if ptr::eq(to, from) => Over::Same(unsafe { slice::from_raw_parts_mut(to, n) }),
            // SAFETY: two tensors that begin at different addresses do not overlap: the library
            // gives an output a whole input or separate memory.
            Some(to) => unsafe { Over::Apart(slice::from_raw_parts(from, n), slice::from_raw_parts_mut(to, n)) },
            // SAFETY: as for an input.
            None => Over::Unasked(unsafe { slice::from_raw_parts(from, n) }),
        };
        Ok((shape, over))
    }

    /// Calls `work` for each part, on the session's threads.
    pub(super) fn by_parts<P: Send>(&self, parts: impl Iterator<Item = P>, work: impl Fn(usize, P) + Sync) -> Result<()> {
        extern "C" fn call<F: Fn(usize) + Sync>(work: *mut c_void, index: usize) {
            // SAFETY: the pointer is that of the function below, which outlives the call of
            // `ParallelFor`; threads only share it.
            unsafe { (*work.cast_const().cast::<F>())(index) }
        }
        fn pointers<F: Fn(usize) + Sync>(work: &F) -> (extern "C" fn(*mut c_void, usize), *mut c_void) {
            (call::<F>, ptr::from_ref(work).cast_mut().cast())
        }
        let parts: Vec<_> = parts.map(|part| Mutex::new(Some(part))).collect();
        let one = |index: usize| {
            // A panic ends the process, so the state after one is never seen.
            let part = parts[index].lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(part) = part {
                work(index, part);
            }
        };
        let (function, data) = pointers(&one);
        // SAFETY: the library calls the function for each index below the count, and returns
        // after all calls.
        check(unsafe { (::ort::api().KernelContext_ParallelFor)(self.context, function, parts.len(), 0, data) })
    }

    /// The input at `index` and its sizes.
    fn value(&self, index: usize) -> Result<Option<(*const OrtValue, Vec<usize>)>> {
        let (mut count, mut value) = (0, ptr::null());
        // SAFETY: here and below, the context is that of the current call, and the library writes
        // to the given pointer.
        check(unsafe { (::ort::api().KernelContext_GetInputCount)(self.context, &raw mut count) })?;
        if index >= count {
            return Ok(None);
        }
        // SAFETY: as above.
        check(unsafe { (::ort::api().KernelContext_GetInput)(self.context, index, &raw mut value) })?;
        if value.is_null() { Ok(None) } else { Ok(Some((value, shape(value)?))) }
    }

    /// The address of the output at `index`, of this shape and type; `None` if it is not used.
    fn made<T: Element>(&self, index: usize, shape: &[usize]) -> Result<Option<*mut T>> {
        let bit = u32::try_from(index).ok().and_then(|index| 1u64.checked_shl(index)).filter(|bit| self.taken.get() & bit == 0);
        let bit = bit.ok_or_else(|| Error::new(format!("output {index} is requested twice")))?;
        self.taken.set(self.taken.get() | bit);
        let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        let mut value = ptr::null_mut();
        // SAFETY: as above, with the given number of sizes.
        check(unsafe { (::ort::api().KernelContext_GetOutput)(self.context, index, sizes.as_ptr(), sizes.len(), &raw mut value) })?;
        if value.is_null() { Ok(None) } else { data::<T>(value).map(|data| Some(data.cast_mut())) }
    }
}

/// The address of a tensor's elements, which must be of this type.
fn data<T: Element>(value: *const OrtValue) -> Result<*const T> {
    let mut element = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    // SAFETY: the description comes from the library.
    described(value, |info| check(unsafe { (::ort::api().GetTensorElementType)(info, &raw mut element) }))?;
    if element != T::TYPE {
        return Err(expected("elements", format!("{:?}", T::TYPE), format!("{element:?}")));
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

/// Calls `read` with the type and shape of a value.
fn described(value: *const OrtValue, read: impl FnOnce(*const OrtTensorTypeAndShapeInfo) -> Result<()>) -> Result<()> {
    let mut info = ptr::null_mut();
    // SAFETY: the value is one of the current call; the description is released below, once.
    check(unsafe { (::ort::api().GetTensorTypeAndShape)(value, &raw mut info) })?;
    let done = read(info);
    // SAFETY: created above and not used any more.
    unsafe { (::ort::api().ReleaseTensorTypeAndShapeInfo)(info) };
    done
}

fn missing(index: usize) -> Error {
    Error::new(format!("input {index} is missing"))
}

fn check(status: OrtStatusPtr) -> Result<()> {
    // SAFETY: each status comes from the call before.
    unsafe { Error::result_from_status(status) }
}
