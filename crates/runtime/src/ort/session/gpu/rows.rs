//! Operations on tensors in a GPU's memory: small graphs, one session for each.

use super::super::{builder, one_line, with_cuda};
use super::form::{standard, value};
use super::replay::undisturbed;
use crate::ort::Ort;
use crate::program::integer;
use crate::{Device, Error, ErrorKind, Options, Result};
use ::ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ::ort::session::Session as Engine;
use ::ort::value::{DynTensor, DynTensorValueType, Tensor, TensorElementType};
use cognate_export::proto::{
    AttributeProto, AttributeType, DataType, GraphProto, ModelProto, OperatorSetIdProto,
    TensorProto,
};
use prost::Message;
use std::sync::{Mutex, PoisonError};

/// The sessions of the operations.
pub(in crate::ort::session) struct RowOperations {
    ort: Ort,
    number: u16,
    sessions: Mutex<Vec<((Operation, TensorElementType), Engine)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Select,
    Widen,
}

impl RowOperations {
    pub(in crate::ort::session) fn new(ort: &Ort, number: u16) -> Self {
        Self { ort: ort.clone(), number, sessions: Mutex::default() }
    }

    /// The given rows of the matrix that `tensor` is with `n_rows` rows, in the shape `shape`.
    pub(super) fn select(
        &self,
        tensor: &DynTensor,
        n_rows: usize,
        rows: &[usize],
        shape: &[usize],
    ) -> Result<DynTensor> {
        let elements = tensor.shape().iter().product::<i64>() as usize;
        let flat = [n_rows, elements / n_rows.max(1)];
        self.run(Operation::Select, tensor, [("flat", &flat), ("rows", rows), ("shape", shape)])
    }

    /// The blocks `[count, places, size]` of `tensor` with `more` places, in the shape `shape`.
    pub(super) fn widen(
        &self,
        tensor: &DynTensor,
        blocks @ [count, _, size]: [usize; 3],
        more: usize,
        shape: &[usize],
    ) -> Result<DynTensor> {
        let added = [count, more, size];
        self.run(
            Operation::Widen,
            tensor,
            [("blocks", &blocks), ("added", &added), ("shape", shape)],
        )
    }

    fn run(
        &self,
        operation: Operation,
        tensor: &DynTensor,
        sizes: [(&str, &[usize]); 3],
    ) -> Result<DynTensor> {
        let failed = |error: ::ort::Error| {
            let message = format!("{operation:?} on the GPU: {}", one_line(&error));
            Error::new(ErrorKind::Run, "ONNX Runtime", message)
        };
        let key = (operation, *tensor.data_type());
        let _undisturbed = undisturbed();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match sessions.iter().position(|(known, _)| *known == key) {
            Some(index) => index,
            None => {
                let options = Options { device: Device::Cuda(self.number), ..Options::default() };
                let builder = builder(&self.ort, &options).map_err(failed)?;
                let mut builder = with_cuda(&self.ort, builder, self.number, None)?;
                let model = model(operation, key.1);
                let session = builder.commit_from_memory(&model.encode_to_vec()).map_err(failed)?;
                sessions.push((key, session));
                sessions.len() - 1
            }
        };
        let (kind, memory) = (AllocatorType::Device, MemoryType::Default);
        MemoryInfo::new(AllocationDevice::CUDA, self.number.into(), kind, memory)
            .and_then(|gpu| computed(&mut sessions[index].1, tensor, sizes, &gpu))
            .map_err(failed)
    }
}

/// The output of an operation, in the given memory.
fn computed(
    session: &mut Engine,
    tensor: &DynTensor,
    sizes: [(&str, &[usize]); 3],
    memory: &MemoryInfo<'_>,
) -> ::ort::Result<DynTensor> {
    let mut binding = session.create_binding()?;
    binding.bind_input("x", tensor)?;
    for (name, sizes) in sizes {
        let sizes: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
        binding.bind_input(name, &Tensor::from_array((vec![sizes.len()], sizes))?)?;
    }
    binding.bind_output_to_device("y", memory)?;
    binding.synchronize_inputs()?;
    let mut outputs = session.run_binding(&binding)?;
    let found = outputs.remove("y").ok_or_else(|| ::ort::Error::new("no output"))?;
    found.downcast::<DynTensorValueType>()
}

/// The graph of an operation on elements of this type.
fn model(operation: Operation, elements: TensorElementType) -> ModelProto {
    let elements = match elements {
        TensorElementType::Float16 => DataType::Float16,
        TensorElementType::Int64 => DataType::Int64,
        _ => DataType::Float,
    };
    let axis = |axis| vec![integer("axis", axis)];
    let (sizes, nodes) = match operation {
        Operation::Select => (
            ["flat", "rows", "shape"],
            vec![
                standard("Reshape", &["x", "flat"], "matrix", Vec::new()),
                standard("Gather", &["matrix", "rows"], "chosen", axis(0)),
                standard("Reshape", &["chosen", "shape"], "y", Vec::new()),
            ],
        ),
        Operation::Widen => {
            let zero = TensorProto {
                dims: vec![1],
                data_type: elements as i32,
                raw_data: Some(vec![0; if elements == DataType::Float16 { 2 } else { 4 }].into()),
                ..TensorProto::default()
            };
            let zero = AttributeProto {
                name: "value".into(),
                r#type: AttributeType::Tensor as i32,
                t: Some(zero),
                ..AttributeProto::default()
            };
            (
                ["blocks", "added", "shape"],
                vec![
                    standard("Reshape", &["x", "blocks"], "old", Vec::new()),
                    standard("ConstantOfShape", &["added"], "new", vec![zero]),
                    standard("Concat", &["old", "new"], "both", axis(1)),
                    standard("Reshape", &["both", "shape"], "y", Vec::new()),
                ],
            )
        }
    };
    let mut input = vec![value("x", elements, None)];
    input.extend(sizes.map(|name| value(name, DataType::Int64, None)));
    ModelProto {
        ir_version: 9,
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 18 }],
        graph: Some(GraphProto {
            node: nodes,
            name: "rows".into(),
            input,
            output: vec![value("y", elements, None)],
            ..GraphProto::default()
        }),
        ..ModelProto::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{ArrayD, array};

    /// What the graph computes on the CPU, from 0, 1, 2, ... in this shape.
    fn on_cpu(
        ort: &Ort,
        operation: Operation,
        shape: [usize; 4],
        sizes: [(&str, &[usize]); 3],
    ) -> ArrayD<f32> {
        let model = model(operation, TensorElementType::Float32).encode_to_vec();
        let mut builder = builder(ort, &Options::default()).expect("a builder");
        let mut session = builder.commit_from_memory(&model).expect("a legal graph");
        let n = shape.iter().product::<usize>();
        let x = (0..n).map(|value| value as f32).collect();
        let x = ArrayD::from_shape_vec(shape.to_vec(), x).expect("as many elements");
        let x = Tensor::from_array(x).expect("a tensor").upcast();
        let y = computed(&mut session, &x, sizes, &MemoryInfo::default()).expect("a run");
        y.try_extract_array::<f32>().expect("floats").to_owned()
    }

    #[test]
    fn rows_are_chosen_and_places_added() {
        let Ok(ort) = Ort::find() else {
            return cognate_testing::skip(
                "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
            );
        };
        let sizes: [(&str, &[usize]); 3] =
            [("flat", &[3, 2]), ("rows", &[2, 0]), ("shape", &[2, 1, 1, 2])];
        let chosen = on_cpu(&ort, Operation::Select, [3, 1, 1, 2], sizes);
        let expected = array![[[[4.0f32, 5.0]]], [[[0.0, 1.0]]]];
        assert_eq!(chosen, expected.into_dyn());
        // Keys of one head of 4 in halves: each half gets a third place.
        let sizes: [(&str, &[usize]); 3] =
            [("blocks", &[2, 2, 2]), ("added", &[2, 1, 2]), ("shape", &[1, 1, 3, 4])];
        let widened = on_cpu(&ort, Operation::Widen, [1, 1, 2, 4], sizes);
        let expected =
            array![[[[0.0f32, 1.0, 2.0, 3.0], [0.0, 0.0, 4.0, 5.0], [6.0, 7.0, 0.0, 0.0]]]];
        assert_eq!(widened, expected.into_dyn());
    }
}
