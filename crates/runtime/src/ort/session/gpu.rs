//! Decoders whose caches stay in a GPU's memory: steps write them in place, and find the best
//! tokens there, so that a step moves a few hundred bytes for each hypothesis.
//!
//! CUDA's attention to shared caches reads keys in another order than the graph declares:
//! `[rows, heads, d_k / n, places, n]`, where `n` elements have 16 bytes. Values on the host have
//! the declared order.

mod form;
mod rows;

use super::tensor::{self, OrtTensor, brought, sizes};
use super::{Shared, one_line};
use crate::program::LOGITS;
use crate::signature::{self, Element, Given, Signature};
use crate::{BEST, Device, Error, ErrorKind, Result, Value, Values};
use ::ort::AsPointer;
use ::ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ::ort::session::SessionInputValue;
use ::ort::sys::OrtValue;
use ::ort::value::{DynTensor, Tensor, TensorElementType};
use cognate_graph::f16;
use form::{ALWAYS, ALWAYS_SCORES, COUNT, SCORES, TOKENS};
use ndarray::{ArrayD, Axis};
pub(super) use rows::RowOperations;
use std::collections::BTreeSet;
use std::ptr;
use std::sync::Arc;

pub(super) use form::{Form, of as form_of};

/// The caches of a decoder in a GPU's memory.
pub(super) struct Caches {
    /// The inputs and outputs that contain keys.
    keys: BTreeSet<String>,
    /// Number of logits of a row, if the graph finds the best.
    vocab: Option<usize>,
    number: u16,
}

/// The order of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Declared,
    /// That of keys on a GPU.
    Interleaved,
}

impl Caches {
    pub(super) fn new(number: u16, keys: BTreeSet<String>, vocab: Option<usize>) -> Self {
        Self { keys, vocab, number }
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
    pub(super) fn reserve(&self, shared: &Shared, input: &str, shape: &[usize]) -> Result<Value> {
        let elements = match shared.signature.takes_half(input) {
            true => TensorElementType::Float16,
            false => TensorElementType::Float32,
        };
        let make = || -> ::ort::Result<DynTensor> {
            let (kind, memory) = (AllocatorType::Device, MemoryType::Default);
            let gpu = MemoryInfo::new(AllocationDevice::CUDA, self.number.into(), kind, memory)?;
            let allocator = Allocator::new(&shared.alone(), gpu)?;
            DynTensor::new(&allocator, elements, shape.to_vec())
        };
        let tensor = make().map_err(|error| {
            let message = format!("cannot reserve {shape:?} on the GPU: {}", one_line(&error));
            Error::new(ErrorKind::Run, shared.signature.place(), message)
        })?;
        Ok(OrtTensor::new(tensor).with_order(self.order(input)).into())
    }

    /// The value in the GPU's memory, alone.
    fn on_device(&self, shared: &Shared, input: &str, value: Value) -> Result<Value> {
        let is_alone = |value: &Value| match value {
            Value::Engine(held) => Arc::strong_count(held) == 1,
            _ => false,
        };
        if own(&value).is_some_and(OrtTensor::is_on_device) && is_alone(&value) {
            return Ok(value);
        }
        let (order, half) = (self.order(input), shared.signature.takes_half(input));
        let array = match value.into_host()? {
            Value::F32(array) => array,
            other => other.to_f32()?,
        };
        let array = match order {
            Order::Interleaved => interleave(array, if half { 8 } else { 4 }),
            Order::Declared => array,
        };
        let to_gpu = || -> ::ort::Result<DynTensor> {
            let number = self.number.into();
            Ok(if half {
                let host = Tensor::from_array(array.mapv(f16::from_f32))?;
                host.upcast().to(AllocationDevice::CUDA, number)?
            } else {
                Tensor::from_array(array)?.upcast().to(AllocationDevice::CUDA, number)?
            })
        };
        Ok(OrtTensor::new(to_gpu().map_err(brought)?).with_order(order).into())
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
    ![COUNT, ALWAYS, SCORES, TOKENS, ALWAYS_SCORES].contains(&name)
}

/// The elements of keys that are together on a GPU.
fn interleaved(tensor: &DynTensor) -> usize {
    if *tensor.data_type() == TensorElementType::Float16 { 8 } else { 4 }
}

fn own(value: &Value) -> Option<&OrtTensor> {
    match value {
        Value::Engine(held) => held.as_any().downcast_ref(),
        _ => None,
    }
}

/// `[rows, heads, places, d_k]` in the order of keys on a GPU, with `n` elements together.
fn interleave(keys: ArrayD<f32>, n: usize) -> ArrayD<f32> {
    reordered(keys, |[rows, heads, places, d_k]| [rows, heads, places, d_k / n, n])
}

/// The opposite of [`interleave`].
pub(super) fn in_declared_order(keys: ArrayD<f32>, tensor: &DynTensor) -> ArrayD<f32> {
    let n = interleaved(tensor);
    reordered(keys, |[rows, heads, places, d_k]| [rows, heads, d_k / n, places, n])
}

/// Exchanges two of five axes.
fn reordered(keys: ArrayD<f32>, axes: impl Fn([usize; 4]) -> [usize; 5]) -> ArrayD<f32> {
    let shape: [usize; 4] = keys.shape().try_into().expect("keys have four axes");
    let parts = keys.into_shape_with_order(axes(shape)).expect("as many elements");
    let turned = parts.permuted_axes([0, 1, 3, 2, 4]).as_standard_layout().into_owned();
    turned.into_shape_with_order(shape).expect("as many elements").into_dyn()
}

/// As [`Session::run`](crate::Session::run): caches are copied.
pub(super) fn run(shared: &Shared, caches: &Caches, inputs: &Values) -> Result<Values> {
    let names = shared.signature.output_names();
    // The operator writes each cache over the input.
    let pairs: Vec<(String, String)> = names
        .iter()
        .filter_map(|output| {
            let input = output.strip_prefix("present.").map(|rest| format!("past.{rest}"))?;
            Some((input, output.clone()))
        })
        .collect();
    let mut state = inputs.clone();
    let mut outputs = run_in_place(shared, caches, &mut state, &pairs)?;
    for (input, output) in pairs {
        outputs.extend(state.remove(&input).map(|value| (output, value)));
    }
    Ok(outputs)
}

/// As [`Session::run_in_place`](crate::Session::run_in_place).
pub(super) fn run_in_place(
    shared: &Shared,
    caches: &Caches,
    state: &mut Values,
    pairs: &[(String, String)],
) -> Result<Values> {
    let mut written = Vec::with_capacity(pairs.len());
    for (input, output) in pairs {
        if let Some(value) = state.remove(input) {
            written.push((input, output, caches.on_device(shared, input, value)?));
        }
    }
    // Others that come from the host, such as the states of several windows of audio, are copied at
    // the first step only.
    let is_distant =
        |(name, value): (&str, &Value)| matches!(value, Value::F32(_)).then(|| name.to_owned());
    for name in state.iter().filter_map(is_distant).collect::<Vec<_>>() {
        if let Some(value) = state.remove(&name) {
            state.insert(&name, caches.on_device(shared, &name, value)?);
        }
    }
    let outputs = run_over(shared, caches, state, &written);
    written.into_iter().for_each(|(input, _, value)| state.insert(input, value));
    outputs
}

fn run_over(
    shared: &Shared,
    caches: &Caches,
    state: &Values,
    written: &[(&String, &String, Value)],
) -> Result<Values> {
    let Shared { signature, engine, .. } = shared;
    let failed = |error: ::ort::Error| {
        let message = format!("{engine} failed: {}", one_line(&error));
        Error::new(ErrorKind::Run, signature.place(), message)
    };
    let mut given = Vec::new();
    for (input, _, value) in written {
        given.push((input.as_str(), Input::Cache(own(value).expect("in the GPU's memory"))));
    }
    let device = Device::Cuda(caches.number);
    for (name, value) in state.iter() {
        given.push((name, Input::Read(tensor::given(value, device, signature.takes_half(name))?)));
    }
    let arranged = signature.arrange(given)?;
    let best = Best::wanted(state, caches.vocab);
    let numbers = |numbers: Vec<i64>| -> Result<Tensor<i64>> {
        Tensor::from_array((vec![numbers.len()], numbers)).map_err(brought)
    };
    let count = numbers(vec![best.as_ref().map_or(1, |best| best.count as i64)])?;
    let always = numbers(best.as_ref().map_or(Vec::new(), |best| best.always.clone()))?;
    let given: Vec<*const OrtValue> = shared.names[0]
        .iter()
        .map(|name| match name.to_str() {
            Ok(COUNT) => count.ptr(),
            Ok(ALWAYS) => always.ptr(),
            name => {
                let place =
                    signature.input_names().iter().position(|known| Ok(known.as_str()) == name);
                arranged[place.expect("the signature has the graph's inputs")].ptr()
            }
        })
        .collect();
    let mut outputs = Vec::new();
    for name in &shared.names[1] {
        let text = name.to_str().unwrap_or_default();
        let is_wanted = match &best {
            Some(_) => text != LOGITS,
            None => is_declared(text),
        };
        let cache = written.iter().find(|(_, output, _)| *output == text);
        let over =
            cache.and_then(|(.., value)| own(value)).map(|cache| cache.tensor.ptr().cast_mut());
        if is_wanted {
            outputs.push((name.as_c_str(), over.unwrap_or(ptr::null_mut())));
        }
    }
    // SAFETY: all values live to the end of this function; a cache is only this call's, because
    // its tensor is not shared.
    let found = unsafe { shared.run_named(&given, &outputs) }.map_err(failed)?;
    let mut found: Values = found.into_iter().collect();
    if let Some(best) = best {
        let logits = best.logits(&mut found)?;
        found.insert(LOGITS, logits);
    }
    Ok(found)
}

/// An input that is only read, or a cache that the call overwrites.
enum Input<'a> {
    Read(SessionInputValue<'a>),
    Cache(&'a OrtTensor),
}

impl Input<'_> {
    fn ptr(&self) -> *const OrtValue {
        match self {
            Input::Read(value) => value.ptr(),
            Input::Cache(cache) => cache.tensor.ptr(),
        }
    }
}

impl Given for Input<'_> {
    fn element(&self) -> Element {
        match self {
            Input::Read(value) => value.element(),
            Input::Cache(cache) => tensor::element_name(*cache.tensor.data_type()),
        }
    }

    fn shape(&self) -> Vec<usize> {
        match self {
            Input::Read(value) => value.shape(),
            Input::Cache(cache) => sizes(cache.tensor.shape()),
        }
    }

    fn no_tokens() -> Result<Self> {
        SessionInputValue::no_tokens().map(Input::Read)
    }
}

/// The request of an input [`BEST`].
struct Best {
    count: usize,
    softmax: bool,
    always: Vec<i64>,
    vocab: usize,
}

impl Best {
    fn wanted(state: &Values, vocab: Option<usize>) -> Option<Self> {
        let Some(Value::I64(wanted)) = state.get(BEST) else { return None };
        let wanted: Vec<i64> = wanted.iter().copied().collect();
        let (&[count, softmax], always) = wanted.split_first_chunk()?;
        let vocab = vocab?;
        let count = usize::try_from(count).unwrap_or(1).clamp(1, vocab);
        Some(Self { count, softmax: softmax == 1, always: always.to_vec(), vocab })
    }

    /// Tokens in ascending order and their logits, as of
    /// [`Session::finds_best`](crate::Session::finds_best). They are log-probabilities, which
    /// differ from logits by a constant of each row.
    fn logits(&self, found: &mut Values) -> Result<Value> {
        let mut take = |name: &str| {
            found.remove(name).ok_or_else(|| brought(format!("expected {name}, found nothing")))
        };
        let (scores, always) = (take(SCORES)?.to_f32()?, take(ALWAYS_SCORES)?.to_f32()?);
        let Value::I64(tokens) = take(TOKENS)?.into_host()? else {
            return Err(brought(format!("expected integers of {TOKENS}")));
        };
        let n = self.count + self.always.len();
        let width = 2 * n + if self.softmax { 2 } else { 0 };
        let n_rows = scores.len_of(Axis(0));
        let mut logits = Vec::with_capacity(n_rows * width);
        let rows = scores.outer_iter().zip(tokens.outer_iter()).zip(always.outer_iter());
        let mut row: Vec<(i64, f32)> = Vec::with_capacity(n);
        for ((scores, tokens), always) in rows {
            row.clear();
            row.extend(tokens.iter().copied().zip(scores.iter().copied()));
            for (&token, &score) in self.always.iter().zip(always) {
                if row.iter().all(|(known, _)| *known != token) {
                    row.push((token, score));
                }
            }
            row.sort_unstable_by_key(|(token, _)| *token);
            row.resize(n, (self.vocab as i64, f32::NEG_INFINITY));
            logits.extend(row.iter().map(|(token, _)| *token as f32));
            logits.extend(row.iter().map(|(_, score)| *score));
            if self.softmax {
                let largest = scores.first().copied().unwrap_or_default();
                logits.extend([largest, -largest]);
            }
        }
        let logits = ArrayD::from_shape_vec(vec![n_rows, width], logits);
        Ok(logits.map_err(brought)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    /// As ONNX Runtime's BeamSearch orders keys for the operator: `n` numbers of a position follow
    /// those of the position before.
    #[test]
    fn keys_are_interleaved_and_back() {
        let keys = array![[[[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]]].into_dyn();
        let expected = array![[[[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0]]]].into_dyn();
        let found = interleave(keys.clone(), 2);
        assert_eq!(found, expected);
        let back = reordered(found, |[rows, heads, places, d_k]| [rows, heads, d_k / 2, places, 2]);
        assert_eq!(back, keys);
    }

    #[test]
    fn best_tokens_are_in_ascending_order() {
        let state: Values = [(BEST, array![2i64, 1, 7, 4].into_dyn())].into_iter().collect();
        let best = Best::wanted(&state, Some(10)).expect("a request");
        let mut found: Values = [
            (SCORES, Value::from(array![[-0.5f32, -1.0], [-0.25, -2.0]].into_dyn())),
            (TOKENS, array![[8i64, 4], [1, 9]].into_dyn().into()),
            (ALWAYS_SCORES, array![[-3.0f32, -1.0], [-4.0, -5.0]].into_dyn().into()),
        ]
        .into_iter()
        .collect();
        let logits = best.logits(&mut found).expect("logits").to_f32().expect("floats");
        let none = f32::NEG_INFINITY;
        let expected = array![
            [4.0, 7.0, 8.0, 10.0, -1.0, -3.0, -0.5, none, -0.5, 0.5],
            [1.0, 4.0, 7.0, 9.0, -0.25, -5.0, -4.0, -2.0, -0.25, 0.25]
        ];
        assert_eq!(logits, expected.into_dyn());
        assert!(Best::wanted(&Values::new(), Some(10)).is_none());
    }
}
