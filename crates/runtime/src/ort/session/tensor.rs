//! Tensors in ONNX Runtime's memory, and values on their way there and back.

use super::gpu::{self, Order};
use crate::signature::{Element, Given};
use crate::{Device, EngineTensor, Error, ErrorKind, Result, Value};
use ::ort::AsPointer;
use ::ort::memory::{AllocationDevice, Allocator, MemoryInfo};
use ::ort::session::SessionInputValue;
use ::ort::value::{
    DynTensor, DynTensorValueType, DynValue, PrimitiveTensorElementType, TensorElementType,
    TensorRef,
};
use cognate_graph::f16;
use ndarray::{ArrayD, ArrayViewMutD, Axis};
use std::any::Any;
use std::ffi::c_void;
use std::fmt::{Debug, Display};
use std::ptr::{self, NonNull};
use std::sync::Arc;

pub(super) fn element_name(element: TensorElementType) -> Element {
    match element {
        TensorElementType::Float32 => "f32".into(),
        TensorElementType::Float16 => "f16".into(),
        TensorElementType::Float64 => "f64".into(),
        TensorElementType::Int64 => "i64".into(),
        TensorElementType::Bool => "bool".into(),
        other => other.to_string().into(),
    }
}

impl Given for SessionInputValue<'_> {
    fn element(&self) -> Element {
        self.dtype().tensor_type().map_or_else(|| self.dtype().to_string().into(), element_name)
    }

    fn shape(&self) -> Vec<usize> {
        self.dtype().tensor_shape().map(|shape| sizes(shape)).unwrap_or_default()
    }

    fn no_tokens() -> Result<Self> {
        owned(ArrayD::<i64>::zeros(vec![0]))
    }
}

pub(super) fn sizes(shape: &[i64]) -> Vec<usize> {
    shape.iter().map(|&size| usize::try_from(size).unwrap_or_default()).collect()
}

/// Converts a value for ONNX Runtime, on the host to half precision if `half` and it is f32, and
/// from half precision if not `half`.
pub(super) fn given(value: &Value, device: Device, half: bool) -> Result<SessionInputValue<'_>> {
    match value {
        Value::F32(array) if half => owned(array.mapv(f16::from_f32)),
        Value::F16(array) if !half => owned(array.mapv(f16::to_f32)),
        Value::Engine(held) if differs(held.as_ref(), half) => {
            let floats = held.to_host()?.to_f32()?;
            if half { owned(floats.mapv(f16::from_f32)) } else { owned(floats) }
        }
        _ => lent(value, device),
    }
}

/// Whether a tensor on the host, or of another engine, is to be converted.
fn differs(held: &dyn EngineTensor, half: bool) -> bool {
    let Some(own) = held.as_any().downcast_ref::<OrtTensor>() else { return half };
    let other = if half { TensorElementType::Float32 } else { TensorElementType::Float16 };
    !own.is_on_device() && *own.tensor.data_type() == other
}

/// Converts a value for ONNX Runtime: its tensors and contiguous host arrays are borrowed,
/// others copied.
fn lent(value: &Value, device: Device) -> Result<SessionInputValue<'_>> {
    match value {
        Value::F32(array) => lent_array(array, device),
        Value::F16(array) => lent_array(array, device),
        Value::F64(array) => lent_array(array, device),
        Value::I64(array) => lent_array(array, device),
        Value::Engine(held) => match held.as_any().downcast_ref::<OrtTensor>() {
            Some(own) if device.is_gpu() || own.tensor.memory_info().is_cpu_accessible() => {
                own.lent()
            }
            Some(_) | None => match held.to_host()? {
                Value::F32(array) => owned(array),
                Value::F16(array) => owned(array),
                Value::F64(array) => owned(array),
                Value::I64(array) => owned(array),
                Value::Engine(_) => {
                    Err(brought("expected a value of this engine, found one of another"))
                }
            },
        },
    }
}

fn lent_array<T: PrimitiveTensorElementType + Clone + Debug + 'static>(
    array: &ArrayD<T>,
    device: Device,
) -> Result<SessionInputValue<'_>> {
    // A binding copies borrowed tensors and panics if it cannot, so it gets owned ones.
    if device == Device::Cpu && array.is_standard_layout() {
        return Ok(TensorRef::from_array_view(array.view()).map_err(brought)?.into());
    }
    owned(array.clone())
}

pub(super) fn owned<'v, T: PrimitiveTensorElementType + Clone + Debug + 'static>(
    array: ArrayD<T>,
) -> Result<SessionInputValue<'v>> {
    Ok(::ort::value::Tensor::from_array(array).map_err(brought)?.into())
}

pub(super) fn held((name, value): (impl ToString, DynValue)) -> ::ort::Result<(String, Value)> {
    let tensor = value.downcast::<DynTensorValueType>()?;
    Ok((name.to_string(), OrtTensor::new(tensor).into()))
}

pub(super) fn brought(reason: impl Display) -> Error {
    Error::new(
        ErrorKind::Run,
        "ONNX Runtime",
        format!("cannot move a value between the host and the engine: {reason}"),
    )
}

/// A tensor in ONNX Runtime's memory, on the CPU or the GPU.
#[derive(Debug)]
pub(super) struct OrtTensor {
    pub(super) tensor: DynTensor,
    /// The shape with the rows that are kept, possibly fewer than the tensor's.
    pub(super) shape: Vec<usize>,
    pub(super) order: Order,
    pub(super) sharing: Sharing,
}

/// Who else has a tensor's memory.
#[derive(Debug)]
pub(super) enum Sharing {
    Alone,
    /// The tensor is a part of a block.
    Part(#[expect(dead_code, reason = "keeps the block")] Arc<OrtTensor>),
    /// The tensor is a block with parts.
    Whole,
    /// The tensor is in memory that the next batch has again.
    Block(#[expect(dead_code, reason = "keeps the block")] Arc<dyn Any + Send + Sync>),
}

impl From<OrtTensor> for Value {
    fn from(tensor: OrtTensor) -> Self {
        Value::Engine(Arc::new(tensor))
    }
}

impl OrtTensor {
    pub(super) fn new(tensor: DynTensor) -> Self {
        let shape = sizes(tensor.shape());
        Self { tensor, shape, order: Order::Declared, sharing: Sharing::Alone }
    }

    pub(super) fn with_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    pub(super) fn is_on_device(&self) -> bool {
        !self.tensor.memory_info().is_cpu_accessible()
    }

    /// Whether it is in memory that the next batch has again.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.sharing, Sharing::Block(_))
    }

    fn has_all_rows(&self) -> bool {
        self.tensor.shape().first().is_none_or(|&rows| self.shape.first() == Some(&(rows as usize)))
    }

    /// Lends the tensor without a copy.
    fn lent(&self) -> Result<SessionInputValue<'_>> {
        if self.has_all_rows() {
            return Ok(self.tensor.view().into());
        }
        match self.tensor.data_type() {
            TensorElementType::Float16 => self.lent_rows::<f16>(),
            _ => self.lent_rows::<f32>(),
        }
    }

    fn lent_rows<T: PrimitiveTensorElementType + Clone + Debug + 'static>(
        &self,
    ) -> Result<SessionInputValue<'_>> {
        let (_, elements) = self.tensor.try_extract_tensor::<T>().map_err(brought)?;
        let kept = &elements[..self.shape.iter().product()];
        Ok(TensorRef::from_array_view((self.shape.clone(), kept)).map_err(brought)?.into())
    }

    /// The kept rows, if they are of this type in the host's memory and can be written.
    fn array_mut<T: PrimitiveTensorElementType>(&mut self) -> Option<ArrayViewMutD<'_, T>> {
        if self.is_on_device() || !matches!(self.sharing, Sharing::Alone) {
            return None;
        }
        let mut all = self.tensor.try_extract_array_mut::<T>().ok()?;
        if let Some(&rows) = self.shape.first() {
            all.slice_axis_inplace(Axis(0), (..rows).into());
        }
        Some(all)
    }
}

/// Moves rows to the front; returns whether it could.
fn moved<T: Copy>(all: ArrayViewMutD<'_, T>, rows: &[usize]) -> bool {
    let row = all.shape()[1..].iter().product::<usize>();
    let Some(elements) = all.into_slice() else { return false };
    rows.iter()
        .enumerate()
        .filter(|&(to, &from)| to != from)
        .for_each(|(to, &from)| elements.copy_within(from * row..(from + 1) * row, to * row));
    true
}

impl EngineTensor for OrtTensor {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn to_host(&self) -> Result<Value> {
        if self.is_on_device() {
            let _undisturbed = gpu::undisturbed();
            let value = host(&self.tensor.to(AllocationDevice::CPU, 0).map_err(brought)?)?;
            return Ok(match (value, self.order) {
                (value @ (Value::F32(_) | Value::F16(_)), Order::Interleaved) => {
                    gpu::in_declared_order(value.to_f32()?, &self.tensor).into()
                }
                (Value::F16(array), Order::Declared) => array.mapv(f16::to_f32).into(),
                (value, _) => value,
            });
        }
        let mut value = host(&self.tensor)?;
        let rows = || (..self.shape[0]).into();
        match &mut value {
            Value::F32(array) if !self.has_all_rows() => array.slice_axis_inplace(Axis(0), rows()),
            Value::F16(array) if !self.has_all_rows() => array.slice_axis_inplace(Axis(0), rows()),
            _ => {}
        }
        Ok(value)
    }

    fn as_f32_mut(&mut self) -> Option<ArrayViewMutD<'_, f32>> {
        self.array_mut()
    }

    fn keep_rows(&mut self, rows: &[usize]) -> bool {
        let Some(&count) = self.shape.first() else { return false };
        // No row is overwritten before it has moved.
        let moves_down = rows.iter().enumerate().all(|(to, &from)| (to..count).contains(&from));
        let moved = moves_down
            && match self.tensor.data_type() {
                TensorElementType::Float16 => {
                    self.array_mut::<f16>().is_some_and(|all| moved(all, rows))
                }
                _ => self.array_mut::<f32>().is_some_and(|all| moved(all, rows)),
            };
        if moved {
            self.shape[0] = rows.len();
        }
        moved
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A tensor in memory that it does not own.
///
/// # Safety
/// The memory, which `memory` describes, has `bytes` bytes of elements of this shape, and lives as
/// long as the tensor.
pub(super) unsafe fn borrowed(
    memory: &MemoryInfo<'_>,
    data: *mut c_void,
    bytes: usize,
    elements: TensorElementType,
    shape: &[usize],
) -> ::ort::Result<DynTensor> {
    let shape: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
    let mut made = ptr::null_mut();
    // SAFETY: the caller's promise; the shape lives through the call.
    let status = unsafe {
        (::ort::api().CreateTensorWithDataAsOrtValue)(
            memory.ptr(),
            data,
            bytes,
            shape.as_ptr(),
            shape.len(),
            elements.into(),
            &raw mut made,
        )
    };
    // SAFETY: the status comes from the call.
    unsafe { ::ort::Error::result_from_status(status) }?;
    let made = NonNull::new(made).ok_or_else(|| ::ort::Error::new("no tensor"))?;
    // SAFETY: the value is new. It owns nothing of an allocator, but the crate wants one.
    unsafe { DynValue::from_ptr(made, Some(&Allocator::default())) }
        .downcast::<DynTensorValueType>()
}

fn host(tensor: &DynTensor) -> Result<Value> {
    let value = match tensor.data_type() {
        TensorElementType::Float32 => {
            tensor.try_extract_array::<f32>().map(|view| view.to_owned().into())
        }
        TensorElementType::Float16 => {
            tensor.try_extract_array::<f16>().map(|view| view.to_owned().into())
        }
        TensorElementType::Float64 => {
            tensor.try_extract_array::<f64>().map(|view| view.to_owned().into())
        }
        TensorElementType::Int64 => {
            tensor.try_extract_array::<i64>().map(|view| view.to_owned().into())
        }
        TensorElementType::Bool => {
            tensor.try_extract_array::<bool>().map(|view| view.mapv(i64::from).into())
        }
        other => {
            return Err(brought(format!(
                "expected elements of f32, f16, f64, i64 or bool, found {other}"
            )));
        }
    };
    value.map_err(brought)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ort::Ort;

    #[test]
    fn own_values_and_host_arrays_are_lent_without_a_copy() {
        // Tensors require an open library.
        let Ok(_ort) = Ort::find() else {
            return cognate_testing::skip(
                "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
            );
        };
        let array = ArrayD::<f32>::zeros(ndarray::IxDyn(&[2, 3]));
        let address = |value: &Value| {
            let lent = lent(value, Device::Cpu).expect("a value");
            lent.try_extract_tensor::<f32>().expect("floats").1.as_ptr()
        };
        let tensor = ::ort::value::Tensor::from_array(array.clone()).expect("a tensor").upcast();
        let own = tensor.try_extract_tensor::<f32>().expect("floats").1.as_ptr();
        assert_eq!(address(&OrtTensor::new(tensor).into()), own);
        let host = array.as_ptr();
        assert_eq!(address(&Value::F32(array)), host);
    }

    #[test]
    fn rows_are_kept_in_place() {
        let Ok(_ort) = Ort::find() else {
            return cognate_testing::skip(
                "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
            );
        };
        let array = ArrayD::from_shape_fn(ndarray::IxDyn(&[4, 2, 3]), |index| {
            (index[0] * 100 + index[1] * 10 + index[2]) as f32
        });
        let floats = ::ort::value::Tensor::from_array(array.clone()).expect("a tensor").upcast();
        let halves = array.mapv(f16::from_f32);
        let halves = ::ort::value::Tensor::from_array(halves).expect("a tensor").upcast();
        for (tensor, half) in [(floats, false), (halves, true)] {
            let mut value = Value::from(OrtTensor::new(tensor));
            let mut expected = array.clone();
            for rows in [&[0, 3, 2][..], &[1, 2], &[]] {
                assert!(value.keep_rows(rows));
                expected = expected.select(Axis(0), rows);
                assert_eq!(value.shape(), expected.shape());
                assert_eq!(value.to_f32().expect("floats"), expected);
                assert_eq!(value.as_f32_mut().is_some(), !half);
                if !rows.is_empty() {
                    let lent = lent(&value, Device::Cpu).expect("a value");
                    let found = match half {
                        true => {
                            lent.try_extract_array::<f16>().map(|array| array.mapv(f16::to_f32))
                        }
                        false => lent.try_extract_array::<f32>().map(|array| array.to_owned()),
                    };
                    assert_eq!(found.expect("elements"), expected);
                }
            }
            assert!(!value.keep_rows(&[0]), "there is none");
        }
    }
}
