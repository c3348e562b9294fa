//! Steps of a decoder whose caches are in a GPU's memory.

use super::best::Best;
use super::form::{ALWAYS, ALWAYS_SCORES, COUNT, PLACES, SCORES, TOKENS};
use super::memory::{Memory, Results};
use super::replay::undisturbed;
use super::{Caches, is_declared, own};
use crate::ort::session::tensor::{self, OrtTensor, brought, sizes};
use crate::ort::session::{Shared, one_line};
use crate::program::LOGITS;
use crate::signature::{Element, Given};
use crate::{BEST, Device, Error, ErrorKind, Result, Value, Values};
use ::ort::AsPointer;
use ::ort::session::SessionInputValue;
use ::ort::sys::OrtValue;
use ::ort::value::{Tensor, TensorElementType};
use std::ffi::CStr;
use std::ptr;
use std::sync::PoisonError;

/// As [`Session::run`](crate::Session::run): caches are copied.
pub(in crate::ort::session) fn run(
    shared: &Shared,
    caches: &Caches,
    memory: &mut Memory,
    inputs: &Values,
) -> Result<Values> {
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
    let mut outputs = run_in_place(shared, caches, memory, &mut state, &pairs)?;
    for (input, output) in pairs {
        outputs.extend(state.remove(&input).map(|value| (output, value)));
    }
    Ok(outputs)
}

/// As [`Session::run_in_place`](crate::Session::run_in_place).
pub(in crate::ort::session) fn run_in_place(
    shared: &Shared,
    caches: &Caches,
    memory: &mut Memory,
    state: &mut Values,
    pairs: &[(String, String)],
) -> Result<Values> {
    let mut written = Vec::with_capacity(pairs.len());
    for (input, output) in pairs {
        if let Some(value) = state.remove(input) {
            written.push((input, output, caches.kept(shared, memory, input, value, true)?));
        }
    }
    // Others come from elsewhere at the first step only.
    let is_constant = |name: &&str| !OF_A_STEP.contains(name) && *name != BEST;
    let names = state.iter().map(|(name, _)| name).filter(is_constant);
    for name in names.map(str::to_owned).collect::<Vec<_>>() {
        if let Some(value) = state.remove(&name) {
            let value = caches.kept(shared, memory, &name, value, false)?;
            state.insert(&name, value);
        }
    }
    let outputs = run_over(shared, caches, memory, state, &written);
    written.into_iter().for_each(|(input, _, value)| state.insert(input, value));
    outputs
}

/// The inputs that each step has anew: tokens and who holds the positions before them.
const OF_A_STEP: [&str; 2] = ["input_ids", "cache_beams"];

/// A cache that the call overwrites: input, output and value.
type Written<'a> = (&'a String, &'a String, Value);

fn run_over(
    shared: &Shared,
    caches: &Caches,
    memory: &mut Memory,
    state: &Values,
    written: &[Written<'_>],
) -> Result<Values> {
    let Shared { signature, engine, .. } = shared;
    let failed = |error: ::ort::Error| {
        let message = format!("{engine} failed: {}", one_line(&error));
        Error::new(ErrorKind::Run, signature.place(), message)
    };
    let best = Best::wanted(state, caches.vocab);
    let given = StepInputs::new(caches, memory, state, written, best.as_ref())?;
    let results =
        best.as_ref().map(|best| results(caches, memory, best, given.n_rows())).transpose()?;
    let mut call = Call { inputs: Vec::new(), outputs: Vec::new(), step: None };
    call.step = best.as_ref().map(|best| vec![best.count]);
    let arranged = arranged(shared, caches, state, written, &given)?;
    for name in &shared.names[0] {
        let place = |name| signature.input_names().iter().position(|known| known == name);
        match name.to_str().unwrap_or_default() {
            COUNT => call.inputs.push(given.count.ptr()),
            ALWAYS => call.read(&Input::Kept(&given.always)),
            PLACES => call.read(&Input::Kept(&given.places)),
            name => {
                call.read(&arranged[place(name).expect("the signature has the graph's inputs")])
            }
        }
    }
    for name in &shared.names[1] {
        let text = name.to_str().unwrap_or_default();
        let is_wanted = if best.is_some() { text != LOGITS } else { is_declared(text) };
        if is_wanted {
            let result = [SCORES, TOKENS, ALWAYS_SCORES].iter().position(|known| *known == text);
            let result = result.zip(results.as_ref()).map(|(place, found)| &found.tensors[place]);
            let cache = written.iter().find(|(_, output, _)| *output == text);
            call.write(name, result.or_else(|| own(&cache?.2)));
        }
    }
    let mut replays = caches.replays.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = replays.plan(call.step).map_err(failed)?;
    drop(replays);
    let undisturbed = (!plan.is_recorded()).then(undisturbed);
    // SAFETY: all values live to the end of this function; a cache is only this call's, because
    // its tensor is not shared.
    let found = unsafe { shared.run_named(plan.options(), &call.inputs, &call.outputs) };
    let mut found: Values = found.map_err(failed)?.into_iter().collect();
    drop((undisturbed, plan));
    if let Some((best, results)) = best.zip(results) {
        let mut host = Vec::new();
        let bytes = results.read(&caches.gpu, &mut host)?;
        found.insert(LOGITS, best.logits(bytes, given.n_rows())?);
    }
    Ok(found)
}

/// What the host gives to a step: all but the count is copied to the GPU together.
struct StepInputs {
    tokens: OrtTensor,
    always: OrtTensor,
    places: OrtTensor,
    beams: OrtTensor,
    count: Tensor<i64>,
}

impl StepInputs {
    fn new(
        caches: &Caches,
        memory: &mut Memory,
        state: &Values,
        written: &[Written<'_>],
        best: Option<&Best>,
    ) -> Result<Self> {
        let arrays = OF_A_STEP.map(|name| match state.get(name) {
            Some(Value::I64(array)) => Some(array.as_standard_layout()),
            _ => None,
        });
        let [token_shape, beam_shape] = arrays
            .each_ref()
            .map(|array| array.as_ref().map_or(vec![0], |array| array.shape().to_vec()));
        let [tokens, beams] = arrays.each_ref().map(|array| {
            array.as_ref().map_or(&[][..], |array| array.as_slice().expect("in standard order"))
        });
        let capacity = written.first().and_then(|(.., cache)| cache.shape().get(2).copied());
        let place_shape = match beam_shape[..] {
            [batch, beams, _] if caches.has_places => [batch, beams, capacity.unwrap_or(0)],
            _ => [0; 3],
        };
        let always = best.map_or(&[][..], |best| &best.always);
        // Of beams a graph that has their places reads only the shape.
        let read_beams = if caches.has_places { &[] } else { beams };
        let integers = TensorElementType::Int64;
        let [tokens, always, places, beams] = memory.write(
            &caches.gpu,
            [
                (integers, &token_shape, &|to| put(to, tokens)),
                (integers, &[always.len()], &|to| put(to, always)),
                (TensorElementType::Int32, &place_shape, &|to| put_places(to, beams, place_shape)),
                (integers, &beam_shape, &|to| put(to, read_beams)),
            ],
        )?;
        let count = vec![best.map_or(1, |best| best.count as i64)];
        let count = Tensor::from_array((vec![1], count)).map_err(brought)?;
        Ok(Self { tokens, always, places, beams, count })
    }

    fn n_rows(&self) -> usize {
        self.tokens.shape.iter().product()
    }
}

/// Appends the holders of the past in 32 bits, and zero for each place behind it.
fn put_places(to: &mut Vec<u8>, holders: &[i64], shape: [usize; 3]) {
    const SIZE: usize = size_of::<i32>();
    let [batch, beams, capacity] = shape;
    let start = to.len();
    to.resize(start + batch * beams * capacity * SIZE, 0);
    let past = holders.len() / (batch * beams).max(1);
    let places = to[start..].chunks_exact_mut((capacity * SIZE).max(1));
    for (places, past) in places.zip(holders.chunks_exact(past.max(1))) {
        let places = places.as_chunks_mut().0.iter_mut();
        places.zip(past).for_each(|(place, &beam)| *place = (beam as i32).to_ne_bytes());
    }
}

/// Appends integers.
fn put(to: &mut Vec<u8>, numbers: &[i64]) {
    let start = to.len();
    to.resize(start + size_of_val(numbers), 0);
    let places = to[start..].as_chunks_mut().0.iter_mut();
    places.zip(numbers).for_each(|(place, number)| *place = number.to_ne_bytes());
}

/// Memory for the best tokens of each row.
fn results(caches: &Caches, memory: &mut Memory, best: &Best, n_rows: usize) -> Result<Results<3>> {
    let floats = TensorElementType::Float32;
    let shapes =
        [(floats, best.count), (TensorElementType::Int64, best.count), (floats, best.always.len())];
    memory.results(&caches.gpu, shapes.map(|(elements, n)| (elements, [n_rows, n])))
}

/// The inputs in the order of the signature.
fn arranged<'a>(
    shared: &Shared,
    caches: &Caches,
    state: &'a Values,
    written: &'a [Written<'_>],
    step: &'a StepInputs,
) -> Result<Vec<Input<'a>>> {
    let signature = &shared.signature;
    let mut given = Vec::new();
    for (input, _, value) in written {
        given.push((input.as_str(), Input::Kept(own(value).expect("in the GPU's memory"))));
    }
    for (name, value) in state.iter() {
        let place = OF_A_STEP.iter().position(|known| *known == name);
        let input = match (place, value, own(value)) {
            (Some(place), Value::I64(_), _) => Input::Kept([&step.tokens, &step.beams][place]),
            (_, _, Some(own)) if own.is_kept() => Input::Kept(own),
            _ => {
                let device = Device::Cuda(caches.number);
                Input::Read(tensor::given(value, device, signature.takes_half(name))?)
            }
        };
        given.push((name, input));
    }
    signature.arrange(given)
}

/// The pointers of a call, and what distinguishes its step from others, if it may be replayed: the
/// addresses and shapes of all tensors, and the number of best tokens.
struct Call<'a> {
    inputs: Vec<*const OrtValue>,
    outputs: Vec<(&'a CStr, *mut OrtValue)>,
    step: Option<Vec<usize>>,
}

impl<'a> Call<'a> {
    fn read(&mut self, input: &Input<'_>) {
        self.inputs.push(input.ptr());
        match input {
            Input::Kept(own) => self.distinguish(own),
            Input::Read(_) => self.step = None,
        }
    }

    /// Adds an output over a tensor, or with new memory.
    fn write(&mut self, name: &'a CStr, over: Option<&OrtTensor>) {
        let pointer = over.map(|own| own.tensor.ptr().cast_mut());
        self.outputs.push((name, pointer.unwrap_or(ptr::null_mut())));
        match over {
            Some(own) => self.distinguish(own),
            None => self.step = None,
        }
    }

    fn distinguish(&mut self, own: &OrtTensor) {
        if let Some(step) = &mut self.step {
            step.push(own.tensor.data_ptr() as usize);
            step.extend(&own.shape);
        }
    }
}

/// An input that is only read, or one in the decoder's memory.
enum Input<'a> {
    Read(SessionInputValue<'a>),
    Kept(&'a OrtTensor),
}

impl Input<'_> {
    fn ptr(&self) -> *const OrtValue {
        match self {
            Input::Read(value) => value.ptr(),
            Input::Kept(own) => own.tensor.ptr(),
        }
    }
}

impl Given for Input<'_> {
    fn element(&self) -> Element {
        match self {
            Input::Read(value) => value.element(),
            Input::Kept(own) => tensor::element_name(*own.tensor.data_type()),
        }
    }

    fn shape(&self) -> Vec<usize> {
        match self {
            Input::Read(value) => value.shape(),
            Input::Kept(own) => sizes(own.tensor.shape()),
        }
    }

    fn no_tokens() -> Result<Self> {
        SessionInputValue::no_tokens().map(Input::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_behind_the_past_are_held_by_the_first_beam() {
        let mut bytes = vec![];
        put_places(&mut bytes, &[0, 1, -1, 0, 1, 1, 0, 0], [2, 2, 3]);
        let found: Vec<_> =
            bytes.as_chunks().0.iter().map(|bytes| i32::from_ne_bytes(*bytes)).collect();
        assert_eq!(found, [0, 1, 0, -1, 0, 0, 1, 1, 0, 0, 0, 0]);
        bytes.clear();
        put_places(&mut bytes, &[], [2, 2, 3]);
        assert_eq!(bytes, [0; 4 * 12]);
    }
}
