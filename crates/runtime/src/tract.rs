//! tract: exported ONNX files in pure Rust, with nothing to install.
//!
//! Runs on the processor, on one thread. What a run returns stays in tract's own tensors, shared by reference count: a
//! `present` given back as `past` is not copied. tract answers some files by a panic; here that is an error.

use crate::signature::{Axis, Element, Given, Input, Signature};
use crate::{Device, Error, ErrorKind, Held, Options, Result, Runtime, Session, Source, Value, Values};
use ndarray::ArrayD;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use tract_onnx::pb;
use tract_onnx::prelude::{
    Datum, DatumType, Framework, InferenceModelExt, TValue, TVec, Tensor, TractError, TractResult, TypedSimplePlan, TypedSimpleState,
};

/// With the version that the workspace pins; a test holds them equal.
const ENGINE: &str = "tract 0.23.9";

/// Runs exported ONNX files on the processor, on one thread whatever [`Options::threads`] allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tract;

impl Runtime for Tract {
    fn name(&self) -> &'static str {
        "tract"
    }

    fn load(&self, source: &Source, options: &Options) -> Result<Box<dyn Session>> {
        if options.device != Device::Cpu {
            let message = "runs on the processor only; for `--device cuda` choose ort, or leave out the device";
            return Err(Error::new(ErrorKind::Unavailable, self.name(), message));
        }
        let path = source.onnx_file(self.name())?;
        let place = path.display().to_string();
        let loaded = guarded(|| Loaded::read(path));
        let Loaded { signature, plan } =
            loaded.map_err(|reason| Error::new(ErrorKind::Load, place, format!("{ENGINE} cannot load it: {reason}")))?;
        Ok(Box::new(TractSession { signature, plan, state: None }))
    }
}

struct Loaded {
    signature: Signature,
    plan: Arc<TypedSimplePlan>,
}

impl Loaded {
    fn read(path: &Path) -> TractResult<Self> {
        let onnx = tract_onnx::onnx();
        let proto = onnx.proto_model_for_path(path)?;
        let graph = proto.graph.as_ref().ok_or_else(|| TractError::msg("the file holds no graph"))?;
        let signature = signature(path, graph);
        let folder = path.parent().and_then(Path::to_str);
        let parsed = onnx.parse(&proto, folder)?;
        if !parsed.unresolved_inputs.is_empty() {
            return Err(TractError::msg(format!("nodes read {}, which nothing gives", parsed.unresolved_inputs.join(", "))));
        }
        drop(proto);
        Ok(Self { signature, plan: TypedSimplePlan::new(parsed.model.into_optimized()?)? })
    }
}

/// What the file declares; initialisers that are listed as inputs too are not inputs.
fn signature(path: &Path, graph: &pb::GraphProto) -> Signature {
    let is_initializer = |name: &str| graph.initializer.iter().any(|tensor| tensor.name == name);
    let inputs = graph.input.iter().filter(|input| !is_initializer(&input.name)).map(input).collect();
    let outputs = graph.output.iter().map(|output| output.name.clone()).collect();
    Signature::new(path.display().to_string(), inputs, outputs)
}

fn input(info: &pb::ValueInfoProto) -> Input {
    let tensor = info.r#type.as_ref().and_then(|ty| ty.value.as_ref()).map(|pb::type_proto::Value::TensorType(tensor)| tensor);
    let element = tensor.and_then(|tensor| pb::tensor_proto::DataType::try_from(tensor.elem_type).ok());
    let element = element.and_then(|element| DatumType::try_from(element).ok()).map_or("unknown".into(), element_name);
    let axes = tensor.and_then(|tensor| tensor.shape.as_ref()).map(|shape| shape.dim.iter().map(axis).collect());
    Input { name: info.name.clone(), element, axes }
}

fn axis(dim: &pb::tensor_shape_proto::Dimension) -> Axis {
    use pb::tensor_shape_proto::dimension::Value;
    match &dim.value {
        Some(Value::DimValue(size)) => usize::try_from(*size).map_or(Axis::Open, Axis::Size),
        // tract reads `?` as an open axis.
        Some(Value::DimParam(name)) if !name.is_empty() && name != "?" => Axis::Symbol(name.clone()),
        Some(Value::DimParam(_)) | None => Axis::Open,
    }
}

fn element_name(element: DatumType) -> Element {
    match element {
        DatumType::F32 => "f32".into(),
        DatumType::F64 => "f64".into(),
        DatumType::I64 => "i64".into(),
        other => format!("{other:?}").to_lowercase().into(),
    }
}

struct TractSession {
    signature: Signature,
    plan: Arc<TypedSimplePlan>,
    /// Kept from run to run, dropped after a failure, which may leave it half filled.
    state: Option<TypedSimpleState>,
}

impl Session for TractSession {
    fn engine(&self) -> &str {
        ENGINE
    }

    fn inputs(&self) -> &[String] {
        self.signature.input_names()
    }

    fn outputs(&self) -> &[String] {
        self.signature.output_names()
    }

    fn run(&mut self, inputs: &Values) -> Result<Values> {
        let given: Vec<(&str, TValue)> = inputs.iter().map(|(name, value)| Ok((name, tensor(value)?))).collect::<Result<_>>()?;
        let given: TVec<TValue> = self.signature.arrange(given)?.into_iter().collect();
        let state = self.state.take();
        let (state, outputs) = guarded(|| {
            let mut state = state.map_or_else(|| self.plan.spawn(), Ok)?;
            let outputs = if std::env::var_os("TMP_PROFILE").is_some() {
                use tract_onnx::tract_core::ops::{EvalOp, Op};
                let mut times: Vec<(std::time::Duration, String)> = vec![];
                let o = state.run_plan_with_eval(given, |ctx, st, node, inputs| {
                    let t = std::time::Instant::now();
                    let shapes = inputs.iter().map(|i| format!("{:?}", Tensor::shape(i))).collect::<Vec<_>>().join(" ");
                    let r = match st { Some(st) => st.eval(ctx, node.op.as_op(), inputs), None => node.op.eval(ctx, inputs) };
                    times.push((t.elapsed(), format!("{} {} {} -> {:?}", node.name, node.op.name(), shapes, node.outputs[0].fact)));
                    r
                })?;
                times.sort();
                let total: std::time::Duration = times.iter().map(|t| t.0).sum();
                eprintln!("--- total {total:?} of {} nodes", times.len());
                for (t, n) in times.iter().rev().take(14) { eprintln!("{t:?} {n}"); }
                o
            } else { state.run(given)? };
            let outputs = outputs.into_iter().map(TractTensor::new).collect::<TractResult<Vec<_>>>()?;
            Ok((state, outputs))
        })
        .map_err(|reason| Error::new(ErrorKind::Run, self.signature.place(), format!("{ENGINE} failed: {reason}")))?;
        if std::env::var_os("TMP_RESPAWN").is_none() { self.state = Some(state); }
        let names = self.signature.output_names().iter();
        Ok(names.zip(outputs).map(|(name, output)| (name.as_str(), Value::Held(Arc::new(output)))).collect())
    }
}

/// A value as tract takes it: its own tensors as they are, others copied once.
fn tensor(value: &Value) -> Result<TValue> {
    Ok(match value {
        Value::F32(array) => copied(array),
        Value::F64(array) => copied(array),
        Value::I64(array) => copied(array),
        Value::Held(held) => match held.as_any().downcast_ref::<TractTensor>() {
            Some(own) => own.value.clone(),
            None => tensor(&held.to_host()?)?,
        },
    })
}

fn copied<T: Datum + Copy>(array: &ArrayD<T>) -> TValue {
    let contiguous = array.as_slice().and_then(|slice| Tensor::from_shape(array.shape(), slice).ok());
    contiguous.unwrap_or_else(|| Tensor::from(array.clone())).into()
}

impl Given for TValue {
    fn element(&self) -> Element {
        element_name(self.datum_type())
    }

    fn shape(&self) -> Vec<usize> {
        Tensor::shape(self).to_vec()
    }
}

/// A tensor in tract's memory.
#[derive(Debug)]
struct TractTensor {
    value: TValue,
}

impl TractTensor {
    fn new(value: TValue) -> TractResult<Self> {
        // tract computes shapes in a type of its own, which no input takes.
        let value = if value.datum_type() == DatumType::TDim { value.cast_to::<i64>()?.into_owned().into() } else { value };
        Ok(Self { value })
    }
}

impl Held for TractTensor {
    fn shape(&self) -> &[usize] {
        Tensor::shape(&self.value)
    }

    fn to_host(&self) -> Result<Value> {
        let host = match self.value.datum_type() {
            DatumType::F32 => self.value.to_plain_array_view::<f32>().map(|view| view.to_owned().into()),
            DatumType::F64 => self.value.to_plain_array_view::<f64>().map(|view| view.to_owned().into()),
            DatumType::I64 => self.value.to_plain_array_view::<i64>().map(|view| view.to_owned().into()),
            DatumType::Bool => self.value.to_plain_array_view::<bool>().map(|view| view.mapv(i64::from).into()),
            other => Err(TractError::msg(format!("expected elements of f32, f64, i64 or bool, found {}", element_name(other)))),
        };
        host.map_err(|error| Error::new(ErrorKind::Run, ENGINE, format!("cannot bring a value to the host: {error:#}")))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What `work` gives, or why not: tract's errors with their causes, and its panics.
///
/// Nothing that a panic leaves half done is used again: the callers drop what `work` touched.
fn guarded<T>(work: impl FnOnce() -> TractResult<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| format!("{error:#}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("it panicked: {}", text.unwrap_or("no message")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_is_the_version_that_the_workspace_builds() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).expect("Cargo.lock");
        let version = ENGINE.trim_start_matches("tract ");
        assert!(
            lock.contains(&format!("name = \"tract-onnx\"\nversion = \"{version}\"\n")),
            "Cargo.lock has another tract-onnx than {version}"
        );
    }

    #[test]
    fn panics_and_errors_become_text() {
        let panicked = guarded::<()>(|| panic!("index {}", 3));
        assert_eq!(panicked, Err("it panicked: index 3".into()));
        let failed = guarded::<()>(|| Err(TractError::msg("inner").context("outer")));
        assert_eq!(failed, Err("outer: inner".into()));
    }
}
