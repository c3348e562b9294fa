//! Tensors in ONNX Runtime's memory, and values on their way there and back.

use super::gpu::{self, Order};
use crate::signature::{Element, Given};
use crate::{Device, EngineTensor, Error, ErrorKind, Result, Value};
use ::ort::memory::AllocationDevice;
use ::ort::session::SessionInputValue;
use ::ort::value::{
    DynTensor, DynTensorValueType, DynValue, PrimitiveTensorElementType, TensorElementType,
    TensorRef,
};
use cognate_graph::f16;
use ndarray::{ArrayD, ArrayViewMutD, Axis};
use std::any::Any;
use std::fmt::{Debug, Display};
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

/// Converts a value for ONNX Runtime, to half precision if `half` and it is f32 on the host.
pub(super) fn given(value: &Value, device: Device, half: bool) -> Result<SessionInputValue<'_>> {
    match value {
        Value::F32(array) if half => owned(array.mapv(f16::from_f32)),
        Value::Engine(held) if half && !held.as_any().is::<OrtTensor>() => {
            owned(held.to_host()?.to_f32()?.mapv(f16::from_f32))
        }
        _ => lent(value, device),
    }
}

/// Converts a value for ONNX Runtime: its tensors and contiguous host arrays are borrowed,
/// others copied.
fn lent(value: &Value, device: Device) -> Result<SessionInputValue<'_>> {
    match value {
        Value::F32(array) => lent_array(array, device),
        Value::F64(array) => lent_array(array, device),
        Value::I64(array) => lent_array(array, device),
        Value::Engine(held) => match held.as_any().downcast_ref::<OrtTensor>() {
            Some(own) if device.is_gpu() || own.tensor.memory_info().is_cpu_accessible() => {
                own.lent()
            }
            Some(_) | None => match held.to_host()? {
                Value::F32(array) => owned(array),
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

    fn has_all_rows(&self) -> bool {
        self.tensor.shape().first().is_none_or(|&rows| self.shape.first() == Some(&(rows as usize)))
    }

    /// Lends the tensor without a copy.
    fn lent(&self) -> Result<SessionInputValue<'_>> {
        if self.has_all_rows() {
            return Ok(self.tensor.view().into());
        }
        let (_, elements) = self.tensor.try_extract_tensor::<f32>().map_err(brought)?;
        let kept = &elements[..self.shape.iter().product()];
        Ok(TensorRef::from_array_view((self.shape.clone(), kept)).map_err(brought)?.into())
    }
}

impl EngineTensor for OrtTensor {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn to_host(&self) -> Result<Value> {
        if self.is_on_device() {
            let value = host(&self.tensor.to(AllocationDevice::CPU, 0).map_err(brought)?)?;
            return Ok(match (value, self.order) {
                (Value::F32(keys), Order::Interleaved) => {
                    gpu::in_declared_order(keys, &self.tensor).into()
                }
                (value, _) => value,
            });
        }
        let mut value = host(&self.tensor)?;
        if let (Value::F32(array), false) = (&mut value, self.has_all_rows()) {
            array.slice_axis_inplace(Axis(0), (..self.shape[0]).into());
        }
        Ok(value)
    }

    fn as_f32_mut(&mut self) -> Option<ArrayViewMutD<'_, f32>> {
        if self.is_on_device() || !matches!(self.sharing, Sharing::Alone) {
            return None;
        }
        let mut all = self.tensor.try_extract_array_mut::<f32>().ok()?;
        if let Some(&rows) = self.shape.first() {
            all.slice_axis_inplace(Axis(0), (..rows).into());
        }
        Some(all)
    }

    fn keep_rows(&mut self, rows: &[usize]) -> bool {
        let [count, row @ ..] = self.shape.as_slice() else { return false };
        let (count, row) = (*count, row.iter().product::<usize>());
        // No row is overwritten before it has moved.
        let moves_down = rows.iter().enumerate().all(|(to, &from)| (to..count).contains(&from));
        let Some(all) = self.as_f32_mut().filter(|_| moves_down) else { return false };
        let Some(elements) = all.into_slice() else { return false };
        rows.iter()
            .enumerate()
            .filter(|&(to, &from)| to != from)
            .for_each(|(to, &from)| elements.copy_within(from * row..(from + 1) * row, to * row));
        self.shape[0] = rows.len();
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn host(tensor: &DynTensor) -> Result<Value> {
    let value = match tensor.data_type() {
        TensorElementType::Float32 => {
            tensor.try_extract_array::<f32>().map(|view| view.to_owned().into())
        }
        TensorElementType::Float16 => {
            tensor.try_extract_array::<f16>().map(|view| view.mapv(f16::to_f32).into())
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
        let tensor = ::ort::value::Tensor::from_array(array.clone()).expect("a tensor").upcast();
        let mut value = Value::from(OrtTensor::new(tensor));
        let mut expected = array;
        for rows in [&[0, 3, 2][..], &[1, 2], &[]] {
            assert!(value.keep_rows(rows));
            expected = expected.select(Axis(0), rows);
            assert_eq!(value.shape(), expected.shape());
            assert_eq!(value.to_f32().expect("floats"), expected);
            assert_eq!(value.as_f32_mut().expect("floats"), expected);
            if !rows.is_empty() {
                let lent = lent(&value, Device::Cpu).expect("a value");
                assert_eq!(lent.try_extract_array::<f32>().expect("floats"), expected);
            }
        }
        assert!(!value.keep_rows(&[0]), "there is none");
    }
}
