//! A custom operator for tract that runs a [`Program`](crate::program::Program).
//!
//! Files written for ONNX Runtime (`--target ort`) use operators that tract lacks. If programs
//! replace all of them, tract runs such a file. In other files, programs compute what they can, and
//! tract the rest.

use super::widen::{widen, widen_left};
use crate::Result;
use crate::error::{Error, ErrorKind};
use crate::in_memory::has_shared_caches;
use crate::program::{
    self, DOMAIN, FloatsOrHalves, Kernel, NUMBER, Substituted, Tensors, is_large, substitute,
};
use cognate_export::proto::ModelProto;
use cognate_graph::f16;
use cognate_kernels::{Parallel, Serial};
use prost::Message;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use tract_onnx::model::ParsingContext;
use tract_onnx::pb::{self, tensor_shape_proto::dimension, type_proto};
use tract_onnx::tract_hir::internal::*;

/// The file at `path` with programs in place of operators, where they apply. `plain` is as in
/// [`Options`](crate::Options::plain).
pub(super) fn substituted(path: &Path, plain: bool) -> Result<Option<Substituted>> {
    if is_large(path) {
        return Ok(None);
    }
    let model = cognate_export::read_model(path).map_err(Error::from_export)?;
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !has_shared_caches(&model) {
        return Ok(if plain { None } else { substituted_in_any(model, folder) });
    }
    let own = substitute(model, folder, 1, false);
    let nodes = own.iter().filter_map(|own| own.model.graph.as_ref()).flat_map(|graph| &graph.node);
    let foreign: BTreeSet<_> = nodes
        .filter(|node| !["", DOMAIN].contains(&&*node.domain))
        .map(|node| node.op_type.as_str())
        .collect();
    if own.is_some() && foreign.is_empty() {
        return Ok(own);
    }
    let left = if foreign.is_empty() {
        "all that this graph computes".into()
    } else {
        Vec::from_iter(foreign).join(", ")
    };
    let message = format!(
        "was exported with --target ort; tract runs such a file only if Cognate's operators replace all of ONNX Runtime's, and they do not \
         replace {left}; export it without --target ort, or choose --engine ort (`cargo xtask onnxruntime` installs the library)"
    );
    Err(Error::new(ErrorKind::Unavailable, path.display(), message))
}

/// A file of a layout for any engine with programs, in single precision.
fn substituted_in_any(mut model: ModelProto, folder: &Path) -> Option<Substituted> {
    widen(model.graph.as_mut()?);
    let mut own = substitute(model, folder, 1, false)?;
    widen_left(own.model.graph.as_mut()?, folder)?;
    Some(own)
}

/// The model in tract's types.
pub(super) fn converted(own: &Substituted) -> TractResult<pb::ModelProto> {
    Ok(pb::ModelProto::decode(&*own.model.encode_to_vec())?)
}

/// Reads a node that runs a program.
pub(super) fn read(
    context: &ParsingContext<'_>,
    node: &pb::NodeProto,
) -> TractResult<(Box<dyn InferenceOp>, Vec<String>)> {
    let number = node
        .attribute
        .iter()
        .find(|attribute| attribute.name == NUMBER)
        .map(|attribute| attribute.i);
    let kernel = number
        .and_then(Kernel::of)
        .with_context(|| format!("{}: no program of this number", node.name))?;
    let symbols = &context.template.symbols;
    let mut outputs = node
        .output
        .iter()
        .map(|name| fact(context.model, symbols, name))
        .collect::<TractResult<TVec<_>>>()?;
    // A prefill computes no logits and no attention weights.
    outputs
        .iter_mut()
        .filter(|_| kernel.own_lengths && kernel.program.supports_prefill())
        .for_each(|output| set_free(output, symbols, |_| true));
    Ok((expand(Computed { kernel, outputs }), Vec::new()))
}

/// Sets the types of inputs from the file: tract's reader leaves a product of sizes, such as
/// `batch*beams`, open. Only caches have such an axis. It gets its own symbol, because in a prefill
/// a cache has fewer rows than there are tokens.
pub(super) fn set_inputs(model: &mut InferenceModel, proto: &pb::ModelProto) -> TractResult<()> {
    for outlet in model.input_outlets()?.to_vec() {
        let mut fact = fact(proto, &model.symbols, &model.node(outlet.node).name)?;
        set_free(&mut fact, &model.symbols, |size| matches!(size, TDim::Mul(_)));
        model.set_outlet_fact(outlet, (&fact).into())?;
    }
    Ok(())
}

/// Gives axes whose size is not a constant, and for which `is_free` is true, their own symbols.
fn set_free(fact: &mut TypedFact, symbols: &SymbolScope, is_free: impl Fn(&TDim) -> bool) {
    for axis in 0..fact.rank() {
        if fact.shape[axis].as_i64().is_none() && is_free(&fact.shape[axis]) {
            fact.shape.set(axis, symbols.new_with_prefix("rows").to_dim());
        }
    }
}

/// The type and the shape of a tensor according to the file.
fn fact(proto: &pb::ModelProto, symbols: &SymbolScope, name: &str) -> TractResult<TypedFact> {
    let graph = proto.graph.as_ref().context("missing graph")?;
    let value = graph
        .input
        .iter()
        .chain(&graph.output)
        .chain(&graph.value_info)
        .find(|value| value.name == name);
    let told = value.and_then(|value| value.r#type.as_ref()?.value.as_ref());
    let type_proto::Value::TensorType(tensor) =
        told.with_context(|| format!("{name}: expected a type"))?;
    let element: DatumType = pb::tensor_proto::DataType::try_from(tensor.elem_type)?.try_into()?;
    let axes = tensor.shape.iter().flat_map(|shape| &shape.dim).map(|axis| match &axis.value {
        Some(dimension::Value::DimValue(size)) => Ok(size.to_dim()),
        Some(dimension::Value::DimParam(size)) => parse_tdim(symbols, size),
        None => bail!("{name}: expected a size of each axis"),
    });
    Ok(element.fact(axes.collect::<TractResult<TVec<TDim>>>()?))
}

/// The operation of a program.
#[derive(Clone)]
struct Computed {
    kernel: Kernel,
    outputs: TVec<TypedFact>,
}

impl Computed {
    /// The input that an output is written over.
    fn cache(&self, output: usize) -> Option<usize> {
        self.kernel.program.caches.iter().find(|cache| cache[1] == output).map(|cache| cache[0])
    }
}

impl std::fmt::Debug for Computed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(program::PROGRAM)
    }
}

impl PartialEq for Computed {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.kernel.program, &other.kernel.program)
    }
}

impl Eq for Computed {}

impl Op for Computed {
    fn name(&self) -> StaticName {
        program::PROGRAM.into()
    }

    op_as_typed_op!();
}

impl Expansion for Computed {
    fn name(&self) -> StaticName {
        Op::name(self)
    }

    fn nboutputs(&self) -> TractResult<usize> {
        Ok(self.outputs.len())
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        s: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> InferenceResult {
        check_output_arity(outputs, self.outputs.len())?;
        for (index, (output, fact)) in outputs.iter().zip(&self.outputs).enumerate() {
            s.equals(&output.datum_type, fact.datum_type)?;
            match self.cache(index) {
                Some(input) => s.equals(&output.shape, &inputs[input].shape)?,
                None => s.equals(&output.shape, fact.shape.to_tvec())?,
            }
        }
        Ok(())
    }

    fn wire(
        &self,
        name: &str,
        model: &mut TypedModel,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        model.wire_node(name, self.clone(), inputs)
    }
}

impl TypedOp for Computed {
    as_op!();

    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        let fact = |(index, fact): (usize, &TypedFact)| {
            self.cache(index).map_or(fact, |input| inputs[input]).without_value()
        };
        Ok(self.outputs.iter().enumerate().map(fact).collect())
    }
}

impl EvalOp for Computed {
    not_out_of_plan!();

    fn eval(&self, _: &EvalContext<'_>, mut inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let program = &self.kernel.program;
        let shapes: Vec<_> = inputs.iter().map(|input| input.shape().to_vec()).collect();
        let mut made: Vec<Option<Tensor>> = self.outputs.iter().map(|_| None).collect();
        for &[input, output] in &program.caches {
            // The same memory, unless the cache is shared.
            made[output] =
                Some(mem::replace(&mut inputs[input], Tensor::default().into()).into_tensor());
        }
        let outputs = made.iter_mut().map(|output| Cell::new(Some(output))).collect();
        let call = Call {
            inputs: &inputs,
            shapes,
            outputs,
            caches: &program.caches,
            threads: self.kernel.threads,
        };
        program.run(&call, self.kernel.own_lengths).map_err(TractError::msg)?;
        made.into_iter()
            .map(|output| Ok(output.context("an output was not computed")?.into_tvalue()))
            .collect()
    }
}

/// Inputs and outputs of a run.
struct Call<'c> {
    /// The inputs without caches.
    inputs: &'c [TValue],
    /// The shapes of all inputs.
    shapes: Vec<Vec<usize>>,
    /// Each output is taken once.
    outputs: Vec<Cell<Option<&'c mut Option<Tensor>>>>,
    /// Inputs and outputs that are the same memory.
    caches: &'c [[usize; 2]],
    threads: usize,
}

impl<'c> Call<'c> {
    fn input<T: Datum>(&self, index: usize) -> program::Result<(Vec<usize>, &'c [T])> {
        let input = self.inputs.get(index).ok_or_else(|| format!("input {index} is missing"))?;
        let elements = input
            .to_plain_array_view::<T>()
            .map_err(|error| format!("input {index}: {error:#}"))?;
        let elements =
            elements.to_slice().ok_or_else(|| format!("input {index} is not contiguous"))?;
        Ok((input.shape().to_vec(), elements))
    }

    fn output(&self, index: usize) -> program::Result<&'c mut Option<Tensor>> {
        self.outputs
            .get(index)
            .and_then(Cell::take)
            .ok_or_else(|| format!("output {index} is missing or requested twice"))
    }

    fn made<T: Datum + Copy>(&self, index: usize, shape: &[usize]) -> program::Result<&'c mut [T]> {
        // Filled here, where it is one call, and not by tract's loop, which is not optimised.
        // SAFETY: numbers, all of which are filled before they are read.
        let tensor = unsafe { Tensor::uninitialized::<T>(shape) }
            .map_err(|error| format!("output {index}: {error:#}"))?;
        let tensor = self.output(index)?.insert(tensor);
        tensor.as_bytes_mut().fill(0);
        elements(index, tensor)
    }
}

/// The elements of an output.
fn elements<T: Datum>(index: usize, tensor: &mut Tensor) -> program::Result<&mut [T]> {
    let elements = tensor
        .to_plain_array_view_mut::<T>()
        .map_err(|error| format!("output {index}: {error:#}"))?;
    elements.into_slice().ok_or_else(|| format!("output {index} is not contiguous"))
}

impl Parallel for Call<'_> {
    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        Serial.each(n, work);
    }

    fn threads(&self) -> usize {
        self.threads
    }
}

impl<'c> Tensors<'c> for Call<'c> {
    fn floats(&self, input: usize) -> program::Result<(Vec<usize>, &'c [f32])> {
        self.input(input)
    }

    fn bytes(&self, input: usize) -> program::Result<(Vec<usize>, &'c [u8])> {
        self.input(input)
    }

    fn integers(&self, input: usize) -> program::Result<(Vec<usize>, &'c [i64])> {
        self.input(input)
    }

    fn floats_or_halves(&self, input: usize) -> program::Result<(Vec<usize>, FloatsOrHalves<'c>)> {
        self.input(input).map(|(shape, floats)| (shape, FloatsOrHalves::Floats(floats)))
    }

    fn shape(&self, input: usize) -> program::Result<Vec<usize>> {
        self.shapes.get(input).cloned().ok_or_else(|| format!("input {input} is missing"))
    }

    fn new_floats(&self, output: usize, shape: &[usize]) -> program::Result<&'c mut [f32]> {
        self.made(output, shape)
    }

    fn new_halves(&self, output: usize, shape: &[usize]) -> program::Result<&'c mut [f16]> {
        self.made(output, shape)
    }

    fn new_bytes(&self, output: usize, shape: &[usize]) -> program::Result<&'c mut [u8]> {
        self.made(output, shape)
    }

    fn written(&self, input: usize, output: usize) -> program::Result<(Vec<usize>, &'c mut [f32])> {
        let tensor =
            self.output(output)?.as_mut().filter(|_| self.caches.contains(&[input, output]));
        let tensor = tensor
            .ok_or_else(|| format!("output {output} is not in the memory of input {input}"))?;
        Ok((tensor.shape().to_vec(), elements(output, tensor)?))
    }
}
