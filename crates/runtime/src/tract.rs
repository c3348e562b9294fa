//! tract: exported ONNX files in pure Rust, without a library to install.
//!
//! Runs on the CPU on one thread. Outputs stay in tract's tensors, with reference counts:
//! a `present` passed as `past` is not copied. tract panics on some files, which is
//! converted to an error.

mod operators;
mod prepare;
mod program;
mod widen;

use crate::huge_pages::{self, HugePages};
use crate::program::Substituted;
use crate::signature::{Axis, Element, Given, Input, Signature};
use crate::{
    BEST, Device, Engine, EngineTensor, Error, ErrorKind, Loaded, Options, Result, Runtime,
    SHORTLIST, Session, Value, Values, exchange, in_memory, read_checked,
};
use cognate_graph::{Program, f16};
use ndarray::ArrayD;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use tract_onnx::pb;
use tract_onnx::prelude::{
    Datum, DatumType, Framework, InferenceModelExt, IntoArcTensor, IntoTValue, OutletId, TValue,
    TVec, Tensor, TractError, TractResult, TypedModel, TypedModelPatch, TypedSimplePlan,
};
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_core::ops::matmul::pack::OptMatMulPack;

/// Name and version; a test compares it with the workspace's lock file.
const ENGINE: &str = "tract 0.23.9";
/// The same, if programs replace ONNX Runtime's operators.
const WITH_PROGRAMS: &str = "tract 0.23.9 with Cognate's operators";

/// Runs exported ONNX files on the CPU, on one thread regardless of [`Options::threads`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tract;

impl Runtime for Tract {
    fn engine(&self) -> Engine {
        Engine::Tract
    }

    fn read_file(&self, path: &Path, options: &Options) -> Result<Arc<dyn Loaded>> {
        if options.device != Device::Cpu {
            let message = "supports only the CPU; use the engine ort for `--device cuda`";
            return Err(Error::new(ErrorKind::Unavailable, self.name(), message));
        }
        read_checked(path, || {
            let before = huge_pages::Before::loading(options);
            let wrong = |reason| {
                Error::new(
                    ErrorKind::Load,
                    path.display(),
                    format!("{ENGINE} cannot load it: {reason}"),
                )
            };
            let proto =
                guarded(|| operators::reader().proto_model_for_path(path)).map_err(wrong)?;
            let own = guarded(|| Ok(program::substituted(path, options.plain || options.training)))
                .map_err(wrong)??;
            let planned = guarded(|| {
                let mut proto = own.as_ref().map_or(Ok(proto), program::converted)?;
                proto
                    .graph
                    .iter_mut()
                    .for_each(|graph| graph.output.retain(|output| !options.removes(&output.name)));
                Planned::read(path, proto, own, before)
            });
            let planned: Arc<dyn Loaded> = Arc::new(planned.map_err(wrong)?);
            Ok(planned)
        })
    }

    fn read_graphs(&self, programs: &[Program], options: &Options) -> Result<Vec<Arc<dyn Loaded>>> {
        in_memory::read_graphs(self, programs, options)
    }
}

/// A file planned by tract, with weights.
struct Planned {
    engine: &'static str,
    signature: Signature,
    plan: Arc<TypedSimplePlan>,
    own_lengths: bool,
    prefill: bool,
    huge_pages: HugePages,
}

impl Loaded for Planned {
    fn session(self: Arc<Self>) -> Box<dyn Session> {
        Box::new(TractSession { planned: self })
    }
}

impl Planned {
    /// Plans the file at `path`, whose content is `proto`, or `own` with programs.
    fn read(
        path: &Path,
        mut proto: pb::ModelProto,
        own: Option<Substituted>,
        before: huge_pages::Before,
    ) -> TractResult<Self> {
        let onnx = operators::reader();
        prepare::prepare(&mut proto);
        let graph = proto.graph.as_ref().ok_or_else(|| TractError::msg("missing graph"))?;
        let signature = signature(path, graph).with_own(own.as_ref().map_or(0, |own| own.n_inputs));
        let folder = path.parent().and_then(Path::to_str);
        let parsed = onnx.parse(&proto, folder)?;
        if !parsed.unresolved_inputs.is_empty() {
            return Err(TractError::msg(format!(
                "no node computes the inputs {}",
                parsed.unresolved_inputs.join(", ")
            )));
        }
        let mut model = parsed.model;
        if own.is_some() {
            program::set_inputs(&mut model, &proto)?;
        }
        drop(proto);
        let mut model = model.into_optimized()?;
        pack_shared_weights(&mut model)?;
        let plan = TypedSimplePlan::new(model)?;
        let (engine, own_lengths, prefill) = match own {
            Some(Substituted { programs, own_lengths, prefill, .. }) => {
                // Now its nodes have the programs.
                drop(programs);
                (WITH_PROGRAMS, own_lengths, prefill)
            }
            None => (ENGINE, false, false),
        };
        Ok(Self { engine, signature, plan, own_lengths, prefill, huge_pages: before.loaded() })
    }
}

/// Packs every constant weight for its product, once.
///
/// tract does this itself, except for large weights with other readers: an embedding table that
/// is also the output layer's weight would be packed at every run (100 of 140 ms per step of
/// the base preset).
fn pack_shared_weights(model: &mut TypedModel) -> TractResult<()> {
    for id in model.eval_order()? {
        let node = model.node(id);
        let weight = node.inputs.first().and_then(|input| model.node(input.node).op_as::<Const>());
        let (true, Some(weight)) = (node.op_is::<OptMatMulPack>(), weight) else { continue };
        let Some(packed) =
            node.op.eval_out_of_plan([weight.val().clone().into_tvalue()].into_iter().collect())?
        else {
            continue;
        };
        let mut patch = TypedModelPatch::default();
        for (slot, packed) in packed.into_iter().enumerate() {
            let outlet = OutletId::new(id, slot);
            let order = model.outlet_fact(outlet)?.exotic_fact.clone();
            let constant = Const::new_with_opt_exotic_fact(packed.into_arc_tensor(), order)?;
            let wire = patch.wire_node(format!("{}.{slot}.packed", node.name), constant, &[])?;
            patch.shunt_outside(model, outlet, wire[0])?;
        }
        patch.apply(model)?;
    }
    Ok(())
}

/// The inputs and outputs of the file; initializers that are listed as inputs are not inputs.
fn signature(path: &Path, graph: &pb::GraphProto) -> Signature {
    let is_initializer = |name: &str| graph.initializer.iter().any(|tensor| tensor.name == name);
    let inputs =
        graph.input.iter().filter(|input| !is_initializer(&input.name)).map(input).collect();
    let outputs = graph.output.iter().map(|output| output.name.clone()).collect();
    Signature::new(path.display().to_string(), inputs, outputs)
}

fn input(info: &pb::ValueInfoProto) -> Input {
    let tensor = info
        .r#type
        .as_ref()
        .and_then(|ty| ty.value.as_ref())
        .map(|pb::type_proto::Value::TensorType(tensor)| tensor);
    let element =
        tensor.and_then(|tensor| pb::tensor_proto::DataType::try_from(tensor.elem_type).ok());
    let element = element
        .and_then(|element| DatumType::try_from(element).ok())
        .map_or("unknown".into(), element_name);
    let axes = tensor
        .and_then(|tensor| tensor.shape.as_ref())
        .map(|shape| shape.dim.iter().map(axis).collect());
    Input { name: info.name.clone(), element, axes }
}

fn axis(dim: &pb::tensor_shape_proto::Dimension) -> Axis {
    use pb::tensor_shape_proto::dimension::Value;
    match &dim.value {
        Some(Value::DimValue(size)) => usize::try_from(*size).map_or(Axis::Open, Axis::Size),
        // tract reads `?` as an open axis.
        Some(Value::DimParam(name)) if !name.is_empty() && name != "?" => {
            Axis::Symbol(name.clone())
        }
        Some(Value::DimParam(_)) | None => Axis::Open,
    }
}

fn element_name(element: DatumType) -> Element {
    match element {
        DatumType::F32 => "f32".into(),
        DatumType::F16 => "f16".into(),
        DatumType::F64 => "f64".into(),
        DatumType::I64 => "i64".into(),
        other => format!("{other:?}").to_lowercase().into(),
    }
}

struct TractSession {
    planned: Arc<Planned>,
}

impl Session for TractSession {
    fn engine(&self) -> &str {
        self.planned.engine
    }

    fn inputs(&self) -> &[String] {
        self.planned.signature.inputs_of_file()
    }

    fn outputs(&self) -> &[String] {
        self.planned.signature.output_names()
    }

    fn has_own_lengths(&self) -> bool {
        self.planned.own_lengths
    }

    fn supports_prefill(&self) -> bool {
        self.planned.prefill
    }

    fn takes_shortlist(&self) -> bool {
        self.planned.signature.has_own(SHORTLIST)
    }

    fn finds_best(&self) -> bool {
        self.planned.signature.has_own(BEST)
    }

    fn run(&mut self, inputs: &Values) -> Result<Values> {
        self.planned.run(
            inputs
                .iter()
                .map(|(name, value)| Ok((name, self.planned.given(name, value)?)))
                .collect::<Result<_>>()?,
        )
    }

    /// A program writes over an input that is not shared.
    fn run_in_place(&mut self, state: &mut Values, pairs: &[(String, String)]) -> Result<Values> {
        let mut written = Vec::with_capacity(pairs.len());
        for (input, _) in pairs {
            let Some(value) = state.remove(input) else { continue };
            written.push((input.as_str(), self.planned.given(input, &value)?));
        }
        // The host's arrays are converted to tensors once, not in each step.
        let names: Vec<_> = state
            .iter()
            .filter(|(_, value)| matches!(value, Value::F32(_)))
            .map(|(name, _)| name.to_owned())
            .collect();
        for name in names {
            let value = state
                .get(&name)
                .map(|value| self.planned.given(&name, value))
                .expect("a name of the state")?;
            state.insert(name, Value::Engine(Arc::new(TractTensor { value })));
        }
        let read = state.iter().map(|(name, value)| Ok((name, self.planned.given(name, value)?)));
        let given: Vec<_> = written.into_iter().map(Ok).chain(read).collect::<Result<_>>()?;
        let outputs = self.planned.run(given)?;
        exchange(self, outputs, state, pairs)
    }
}

impl Planned {
    fn given(&self, name: &str, value: &Value) -> Result<TValue> {
        given(tensor(value)?, self.signature.takes_half(name))
    }

    fn run(&self, given: Vec<(&str, TValue)>) -> Result<Values> {
        let given: TVec<TValue> = self.signature.arrange(given)?.into_iter().collect();
        let outputs = guarded(|| {
            self.plan.run(given)?.into_iter().map(TractTensor::new).collect::<TractResult<Vec<_>>>()
        });
        let failed = |reason| {
            Error::new(
                ErrorKind::Run,
                self.signature.place(),
                format!("{} failed: {reason}", self.engine),
            )
        };
        let outputs = outputs.map_err(failed)?;
        self.huge_pages.after_run();
        let names = self.signature.output_names().iter();
        Ok(names
            .zip(outputs)
            .map(|(name, output)| (name.as_str(), Value::Engine(Arc::new(output))))
            .collect())
    }
}

/// Converts the value to half precision if `half` and it is f32, and from it if not `half`.
fn given(value: TValue, half: bool) -> Result<TValue> {
    let converted = match (value.datum_type(), half) {
        (DatumType::F32, true) => value.cast_to::<f16>(),
        (DatumType::F16, false) => value.cast_to::<f32>(),
        _ => return Ok(value),
    };
    let converted = converted.map_err(|error| {
        Error::new(ErrorKind::Run, ENGINE, format!("cannot convert a value: {error:#}"))
    })?;
    Ok(converted.into_owned().into())
}

/// Converts a value for tract: its tensors are shared, others copied once.
fn tensor(value: &Value) -> Result<TValue> {
    Ok(match value {
        Value::F32(array) => copied(array),
        Value::F16(array) => copied(array),
        Value::F64(array) => copied(array),
        Value::I64(array) => copied(array),
        Value::Engine(held) => match held.as_any().downcast_ref::<TractTensor>() {
            Some(own) => own.value.clone(),
            None => tensor(&held.to_host()?)?,
        },
    })
}

fn copied<T: Datum + Copy>(array: &ArrayD<T>) -> TValue {
    let contiguous =
        array.as_slice().and_then(|slice| Tensor::from_shape(array.shape(), slice).ok());
    contiguous.unwrap_or_else(|| Tensor::from(array.clone())).into()
}

impl Given for TValue {
    fn element(&self) -> Element {
        element_name(self.datum_type())
    }

    fn shape(&self) -> Vec<usize> {
        Tensor::shape(self).to_vec()
    }

    fn no_tokens() -> Result<Self> {
        Ok(copied(&ArrayD::<i64>::zeros(vec![0])))
    }
}

/// A tensor in tract's memory.
#[derive(Debug)]
struct TractTensor {
    value: TValue,
}

impl TractTensor {
    fn new(value: TValue) -> TractResult<Self> {
        // tract computes shapes in its own type, which no input accepts.
        let value = if value.datum_type() == DatumType::TDim {
            value.cast_to::<i64>()?.into_owned().into()
        } else {
            value
        };
        Ok(Self { value })
    }
}

impl EngineTensor for TractTensor {
    fn shape(&self) -> &[usize] {
        Tensor::shape(&self.value)
    }

    fn to_host(&self) -> Result<Value> {
        let host = match self.value.datum_type() {
            DatumType::F32 => {
                self.value.to_plain_array_view::<f32>().map(|view| view.to_owned().into())
            }
            DatumType::F16 => {
                self.value.to_plain_array_view::<f16>().map(|view| view.mapv(f16::to_f32).into())
            }
            DatumType::F64 => {
                self.value.to_plain_array_view::<f64>().map(|view| view.to_owned().into())
            }
            DatumType::I64 => {
                self.value.to_plain_array_view::<i64>().map(|view| view.to_owned().into())
            }
            DatumType::Bool => {
                self.value.to_plain_array_view::<bool>().map(|view| view.mapv(i64::from).into())
            }
            other => Err(TractError::msg(format!(
                "expected elements of f32, f16, f64, i64 or bool, found {}",
                element_name(other)
            ))),
        };
        host.map_err(|error| {
            Error::new(
                ErrorKind::Run,
                ENGINE,
                format!("cannot copy a value to the host: {error:#}"),
            )
        })
    }

    /// Copies the rows once; tract's tensors cannot shrink.
    fn keep_rows(&mut self, rows: &[usize]) -> bool {
        let element = self.value.datum_type();
        let (true, [count, row @ ..]) = (element.is_copy(), Tensor::shape(&self.value)) else {
            return false;
        };
        let size = row.iter().product::<usize>() * element.size_of();
        let shape: TVec<usize> = [&[rows.len()], row].concat().into();
        // SAFETY: numbers, all of which are written.
        let made = unsafe { Tensor::uninitialized_dt(element, &shape) };
        let Some(mut kept) = made.ok().filter(|_| rows.iter().all(|row| row < count)) else {
            return false;
        };
        let all = self.value.as_bytes();
        for (place, &row) in rows.iter().enumerate() {
            kept.as_bytes_mut()[place * size..][..size].copy_from_slice(&all[row * size..][..size]);
        }
        self.value = kept.into();
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The result of `work`, or tract's errors with their causes, or its panics.
///
/// `work` must create what it modifies, so that nothing is used after a panic.
fn guarded<T>(work: impl FnOnce() -> TractResult<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| format!("{error:#}")),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("it panicked: {}", text.unwrap_or("no message")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cognate_export::{Metadata, to_onnx_bytes};
    use cognate_graph::{Builder, DType, Generator, Program, Recipe};
    use tract_onnx::prelude::TypedNode;

    #[test]
    fn engine_is_the_version_that_the_workspace_builds() {
        let lock =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock"))
                .expect("Cargo.lock");
        let version = ENGINE.trim_start_matches("tract ");
        assert!(
            lock.contains(&format!("name = \"tract-onnx\"\nversion = \"{version}\"\n")),
            "Cargo.lock: expected tract-onnx {version}"
        );
    }

    #[test]
    fn own_values_are_taken_without_a_copy() {
        let held = Value::Engine(Arc::new(TractTensor {
            value: copied(&ArrayD::<f32>::zeros(ndarray::IxDyn(&[2, 3]))),
        }));
        let address = |value: &TValue| value.as_bytes().as_ptr();
        let [first, second] = [tensor(&held), tensor(&held)].map(|value| value.expect("a tensor"));
        assert_eq!(address(&first), address(&second));
    }

    #[test]
    fn rows_are_kept_in_the_given_order() {
        let array = ArrayD::from_shape_fn(vec![3, 2], |at| (10 * at[0] + at[1]) as f32);
        let mut value = Value::Engine(Arc::new(TractTensor { value: copied(&array) }));
        assert!(!value.keep_rows(&[0, 3]), "there are three");
        assert!(value.keep_rows(&[0, 2]));
        assert_eq!(value.to_f32().expect("numbers"), array.select(ndarray::Axis(0), &[0, 2]));
        assert!(value.keep_rows(&[]));
        assert_eq!(value.shape(), [0, 2]);
        let shared = value.clone();
        assert!(!value.keep_rows(&[]), "{shared:?} stays");
    }

    /// A table of 5 MB, above the size up to which tract packs weights with several readers.
    #[test]
    fn a_table_that_is_also_a_weight_is_packed_when_loading() {
        const ROWS: usize = 40_000;
        let builder = Builder::new("tied");
        let table = builder.root().parameter("table", [ROWS, 32]);
        builder.output(
            "y",
            table.gather(builder.input("ids", DType::I64, ["rows", "tgt"])).linear(table, None),
        );
        let recipe = Recipe::generated(Arc::new(Zeros), &[ROWS, 32]);
        let weights = [("table".to_string(), recipe)].into_iter().collect();
        let program = Program::new(builder.finish().expect("a legal graph"), weights)
            .expect("weights that fit");
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(
            file.path(),
            to_onnx_bytes(&program, &Metadata::default()).expect("an export"),
        )
        .expect("written");
        let proto = operators::reader().proto_model_for_path(file.path()).expect("a file of ONNX");
        let planned = Planned::read(
            file.path(),
            proto,
            None,
            huge_pages::Before::loading(&Options::default()),
        )
        .expect("a legal file");
        let model = planned.plan.model();
        let packs_a_constant = |node: &&TypedNode| {
            node.op_is::<OptMatMulPack>() && model.node(node.inputs[0].node).op_is::<Const>()
        };
        let late: Vec<_> = planned
            .plan
            .order_without_consts()
            .iter()
            .map(|&id| model.node(id))
            .filter(packs_a_constant)
            .collect();
        assert!(late.is_empty(), "packed at every run: {late:?}");
    }

    #[derive(Debug)]
    struct Zeros;

    impl Generator for Zeros {
        fn fill(&self, _first: usize, values: &mut [f32]) {
            values.fill(0.0);
        }
    }

    #[test]
    fn panics_and_errors_become_text() {
        let panicked = guarded::<()>(|| panic!("index {}", 3));
        assert_eq!(panicked, Err("it panicked: index 3".into()));
        let failed = guarded::<()>(|| Err(TractError::msg("inner").context("outer")));
        assert_eq!(failed, Err("outer: inner".into()));
    }
}
