//! Decoders whose caches stay in a GPU's memory: steps write them in place, and find the best
//! tokens there, so that a step moves a few hundred bytes for each hypothesis.
//!
//! CUDA's attention to shared caches reads keys in another order than the graph declares:
//! `[rows, heads, d_k / n, places, n]`, where `n` elements have 16 bytes. Values on the host have
//! the declared order.

mod best;
mod form;
mod memory;
mod order;
mod replay;
mod rows;
mod step;

use super::Shared;
use super::tensor::{OrtTensor, brought};
use crate::signature::{self, Signature};
use crate::{BEST, Result, Value};
use ::ort::memory::AllocationDevice;
use ::ort::value::{DynTensor, Tensor, TensorElementType};
use cognate_graph::f16;
use form::{ALWAYS, ALWAYS_SCORES, COUNT, PLACES, SCORES, TOKENS};
use order::{interleave, interleaved};
use replay::Replays;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

pub(super) use form::{Form, of as form_of};
pub(super) use memory::{Gpu, Memory};
pub(super) use order::{Order, in_declared_order};
pub(super) use replay::undisturbed;
pub(super) use rows::RowOperations;
pub(super) use step::{run, run_in_place};

/// The caches of a decoder in a GPU's memory.
pub(super) struct Caches {
    /// The inputs and outputs that contain keys.
    keys: BTreeSet<String>,
    has_places: bool,
    /// Number of logits of a row, if the graph finds the best.
    vocab: Option<usize>,
    number: u16,
    gpu: Gpu,
    replays: Mutex<Replays>,
}

impl Caches {
    /// The caches of a decoder in this form.
    pub(super) fn new(number: u16, gpu: Gpu, form: Form) -> Result<Self> {
        let Form { keys, has_places, vocab, .. } = form;
        let replays = Mutex::new(Replays::new().map_err(brought)?);
        Ok(Self { keys, has_places, vocab, number, gpu, replays })
    }

    /// The inputs and outputs of the graph as its file declares them, and [`BEST`].
    pub(super) fn signature(
        &self,
        place: String,
        mut inputs: Vec<signature::Input>,
        mut outputs: Vec<String>,
    ) -> Signature {
        inputs.retain(|input| is_declared(&input.name));
        outputs.retain(|name| is_declared(name));
        if self.vocab.is_none() {
            return Signature::new(place, inputs, outputs);
        }
        let axes = Some(vec![signature::Axis::Open]);
        inputs.push(signature::Input { name: BEST.into(), element: "i64".into(), axes });
        Signature::new(place, inputs, outputs).with_own(1)
    }

    fn order(&self, name: &str) -> Order {
        if self.keys.contains(name) { Order::Interleaved } else { Order::Declared }
    }

    /// Memory for an input, with any contents.
    pub(super) fn reserve(
        &self,
        shared: &Shared,
        memory: &mut Memory,
        input: &str,
        shape: &[usize],
    ) -> Result<Value> {
        let elements = match shared.signature.takes_half(input) {
            true => TensorElementType::Float16,
            false => TensorElementType::Float32,
        };
        let tensor = memory.place(&self.gpu, input, elements, shape)?;
        Ok(tensor.with_order(self.order(input)).into())
    }

    /// A value of [`Caches::reserve`] with these rows, which are on the GPU, from `first` on.
    pub(super) fn with_rows(&self, whole: Value, first: usize, rows: &Value) -> Result<Value> {
        match (own(&whole), own(rows)) {
            (Some(to), Some(from)) if to.is_kept() && from.is_on_device() => {
                self.gpu.copy(from, to, first)?;
            }
            _ => return Err(brought("rows: expected values on the GPU")),
        }
        Ok(whole)
    }

    /// The value in the decoder's memory on the GPU; alone if it `is_written`.
    fn kept(
        &self,
        shared: &Shared,
        memory: &mut Memory,
        input: &str,
        value: Value,
        is_written: bool,
    ) -> Result<Value> {
        let is_alone = match &value {
            Value::Engine(held) => Arc::strong_count(held) == 1,
            _ => false,
        };
        if own(&value).is_some_and(OrtTensor::is_kept) && (is_alone || !is_written) {
            return Ok(value);
        }
        if let Some(own) = own(&value).filter(|own| own.is_on_device()) {
            return Ok(memory.copied(&self.gpu, input, own)?.into());
        }
        let (order, half) = (self.order(input), shared.signature.takes_half(input));
        let array = match value.into_host()? {
            Value::I64(array) => {
                let host = Tensor::from_array(array).map_err(brought)?.upcast();
                return self.copied_there(memory, input, &host);
            }
            Value::F32(array) => array,
            other => other.to_f32()?,
        };
        let array = match order {
            Order::Interleaved => interleave(array, if half { 8 } else { 4 }),
            Order::Declared => array,
        };
        let host = match half {
            true => Tensor::from_array(array.mapv(f16::from_f32)).map_err(brought)?.upcast(),
            false => Tensor::from_array(array).map_err(brought)?.upcast(),
        };
        self.copied_there(memory, input, &host)
    }

    /// A copy of a tensor of the host in the decoder's memory.
    fn copied_there(&self, memory: &mut Memory, input: &str, host: &DynTensor) -> Result<Value> {
        let there = {
            let _undisturbed = undisturbed();
            host.to(AllocationDevice::CUDA, self.number.into()).map_err(brought)?
        };
        let there = OrtTensor::new(there).with_order(self.order(input));
        Ok(memory.copied(&self.gpu, input, &there)?.into())
    }
}

/// The given rows of a value, with the sizes `leading` of the axes that count them; `None` if it is
/// not in the GPU's memory.
pub(super) fn select(
    rows_of: &RowOperations,
    value: &Value,
    leading: &[usize],
    rows: &[usize],
) -> Result<Option<Value>> {
    let Some(own) = own(value).filter(|own| own.is_on_device()) else { return Ok(None) };
    let (before, rest) = own.shape.split_at(leading.len());
    let shape = [leading, rest].concat();
    let found = rows_of.select(&own.tensor, before.iter().product(), rows, &shape)?;
    Ok(Some(OrtTensor::new(found).with_order(own.order).into()))
}

/// A cache with this number of places; `None` if it is not in the GPU's memory.
pub(super) fn widened(
    rows_of: &RowOperations,
    value: &Value,
    places: usize,
) -> Result<Option<Value>> {
    let Some(own) = own(value).filter(|own| own.is_on_device()) else { return Ok(None) };
    let &[rows, heads, old, d_k] = own.shape.as_slice() else { return Ok(None) };
    let size = match own.order {
        Order::Declared => d_k,
        Order::Interleaved => interleaved(&own.tensor),
    };
    let blocks = [rows * heads * d_k / size, old, size];
    let shape = [rows, heads, places, d_k];
    let more = places.saturating_sub(old);
    let found = rows_of.widen(&own.tensor, blocks, more, &shape)?;
    Ok(Some(OrtTensor::new(found).with_order(own.order).into()))
}

/// Whether the file declares this input or output, which the form for a GPU did not add.
fn is_declared(name: &str) -> bool {
    ![COUNT, ALWAYS, PLACES, SCORES, TOKENS, ALWAYS_SCORES].contains(&name)
}

fn own(value: &Value) -> Option<&OrtTensor> {
    match value {
        Value::Engine(held) => held.as_any().downcast_ref(),
        _ => None,
    }
}
