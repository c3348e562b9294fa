//! Tensors that lie one behind the other in one block of a device's memory.

use super::gpu::undisturbed;
use super::tensor::{OrtTensor, Sharing, borrowed, brought, given};
use super::{Shared, one_line};
use crate::{Device, Error, ErrorKind, Result, Together, Value, Values};
use ::ort::AsPointer;
use ::ort::memory::AllocationDevice;
use ::ort::sys::OrtValue;
use ::ort::value::{DynTensor, Tensor, TensorElementType};
use ndarray::ArrayD;
use std::ffi::CStr;
use std::ptr;
use std::sync::Arc;

/// Each tensor begins at a multiple of this number of elements, as CUDA's vector loads expect.
const ALIGNED: usize = 64;

/// Copies the arrays to the session's device.
pub(super) fn together(device: Device, arrays: &[ArrayD<f32>]) -> Result<Together> {
    let places: Vec<usize> = arrays
        .iter()
        .scan(0, |end, array| {
            let start = *end;
            *end = (start + array.len()).next_multiple_of(ALIGNED);
            Some(start)
        })
        .collect();
    let last = places.last().zip(arrays.last()).map_or(0, |(start, last)| start + last.len());
    let mut elements = vec![0f32; last.next_multiple_of(ALIGNED)];
    for (&start, array) in places.iter().zip(arrays) {
        elements[start..].iter_mut().zip(array).for_each(|(to, from)| *to = *from);
    }
    let block = Tensor::from_array((vec![elements.len()], elements)).map_err(brought)?.upcast();
    let block = match device {
        Device::Cpu => block,
        Device::Cuda(number) => {
            let _undisturbed = undisturbed();
            block.to(AllocationDevice::CUDA, number.into()).map_err(brought)?
        }
    };
    let whole = Arc::new(OrtTensor { sharing: Sharing::Whole, ..OrtTensor::new(block) });
    let parts = places.iter().zip(arrays).map(|(&start, array)| {
        let tensor = part(&whole.tensor, start, array).map_err(brought)?;
        let sharing = Sharing::Part(whole.clone());
        Ok(OrtTensor { sharing, ..OrtTensor::new(tensor) }.into())
    });
    let parts = parts.collect::<Result<_>>()?;
    Ok(Together { whole: Value::Engine(whole), parts })
}

/// A tensor of the array's shape in the memory of `block` from the element `start` on.
fn part(block: &DynTensor, start: usize, array: &ArrayD<f32>) -> ::ort::Result<DynTensor> {
    let bytes = size_of::<f32>() * array.len();
    // SAFETY: the elements are inside of the block, which the caller keeps as long as the tensor,
    // and in the memory that the information describes.
    unsafe {
        let data = block.data_ptr().cast::<f32>().add(start).cast_mut().cast();
        let elements = TensorElementType::Float32;
        borrowed(block.memory_info(), data, bytes, elements, array.shape())
    }
}

/// As [`Session::run_over`](crate::Session::run_over).
pub(super) fn run_over(shared: &Shared, inputs: &Values, over: &Values) -> Result<Values> {
    let Shared { signature, engine, device, .. } = shared;
    let wrong = |message: String| Error::new(ErrorKind::Run, signature.place(), message);
    let given = inputs
        .iter()
        .map(|(name, value)| Ok((name, given(value, *device, signature.takes_half(name))?)))
        .collect::<Result<Vec<_>>>()?;
    let arranged = signature.arrange(given)?;
    let pointers: Vec<*const OrtValue> = arranged.iter().map(|value| value.ptr()).collect();
    let target = |name: &CStr| -> Result<*mut OrtValue> {
        let Some(value) = over.get(&name.to_string_lossy()) else { return Ok(ptr::null_mut()) };
        let Value::Engine(held) = value else {
            return Err(wrong(format!("{name:?}: expected memory of this session's device")));
        };
        let own = held.as_any().downcast_ref::<OrtTensor>();
        let own = own.filter(|own| !matches!(own.sharing, Sharing::Alone));
        own.map(|own| own.tensor.ptr().cast_mut())
            .ok_or_else(|| wrong(format!("{name:?}: expected memory that was reserved together")))
    };
    let outputs = shared.names[1]
        .iter()
        .map(|name| Ok((name.as_c_str(), target(name)?)))
        .collect::<Result<Vec<_>>>()?;
    let _undisturbed = device.is_gpu().then(undisturbed);
    // SAFETY: all values live to the end of this function. Others may hold the written memory, but
    // no reference to its elements, because shared tensors lend none.
    let found = unsafe { shared.run_named(ptr::null(), &pointers, &outputs) };
    let found = found.map_err(|error| wrong(format!("{engine} failed: {}", one_line(&error))))?;
    Ok(found.into_iter().collect())
}
