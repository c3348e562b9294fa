//! Runs that write outputs over inputs in the host's memory.

use super::tensor::{given, sizes};
use super::{Shared, one_line};
use crate::signature::{Element, Given};
use crate::{Device, Error, ErrorKind, Result, Value, Values};
use ::ort::memory::MemoryInfo;
use ::ort::session::SessionInputValue;
use ::ort::value::{Shape, TensorRefMut};
use ::ort::{AsPointer, sys::OrtValue};
use ndarray::ArrayViewMutD;
use std::ptr;

/// Runs once; each output of `pairs` (input, output) overwrites its input.
pub(super) fn run(
    shared: &Shared,
    state: &mut Values,
    pairs: &[(String, String)],
) -> Result<Values> {
    let mut written = Vec::with_capacity(pairs.len());
    for (input, output) in pairs {
        let Some(mut value) = state.remove(input) else { continue };
        if value.as_f32_mut().is_none_or(|array| !array.is_standard_layout()) {
            value = Value::F32(value.to_f32()?.as_standard_layout().into_owned());
        }
        written.push((input, output, value));
    }
    let outputs = run_over(shared, state, &mut written);
    written.into_iter().for_each(|(input, _, value)| state.insert(input, value));
    outputs
}

fn run_over(
    shared: &Shared,
    state: &Values,
    written: &mut [(&String, &String, Value)],
) -> Result<Values> {
    let failed = |error: ::ort::Error| {
        Error::new(
            ErrorKind::Run,
            shared.signature.place(),
            format!("{} failed: {}", shared.engine, one_line(&error)),
        )
    };
    let (mut values, mut outputs) =
        (Vec::new(), vec![ptr::null_mut(); shared.signature.output_names().len()]);
    for (input, output, value) in written {
        let place = shared.signature.output_names().iter().position(|name| name == *output);
        let array = value.as_f32_mut().expect("converted to an array of the host");
        let tensor = lent(array).map_err(failed)?;
        let place = place.ok_or_else(|| {
            let message = format!(
                "output {output}: expected one of {}",
                shared.signature.output_names().join(", ")
            );
            Error::new(ErrorKind::Run, shared.signature.place(), message)
        })?;
        outputs[place] = tensor.ptr().cast_mut();
        values.push((input.as_str(), Input::Written(tensor)));
    }
    for (name, value) in state.iter() {
        values.push((
            name,
            Input::Read(given(value, Device::Cpu, shared.signature.takes_half(name))?),
        ));
    }
    let arranged = shared.signature.arrange(values)?;
    let pointers: Vec<*const OrtValue> = arranged.iter().map(Input::ptr).collect();
    // SAFETY: `arranged` lives to the end of this function and borrows all memory; outputs are
    // borrowed only once.
    unsafe { shared.run_given(&pointers, outputs) }.map_err(failed)
}

/// A tensor that borrows the array's memory.
fn lent(mut array: ArrayViewMutD<'_, f32>) -> ::ort::Result<TensorRefMut<'_, f32>> {
    let shape = Shape::new(array.shape().iter().map(|&size| size as i64));
    // SAFETY: the memory is on the host, contains the shape's number of elements in this order, and
    // stays borrowed while the tensor lives.
    unsafe { TensorRefMut::from_raw(MemoryInfo::default(), array.as_mut_ptr().cast(), shape) }
}

/// An input that is only read, or one that an output overwrites.
enum Input<'a> {
    Read(SessionInputValue<'a>),
    Written(TensorRefMut<'a, f32>),
}

impl Input<'_> {
    fn ptr(&self) -> *const OrtValue {
        match self {
            Input::Read(value) => value.ptr(),
            Input::Written(tensor) => tensor.ptr(),
        }
    }
}

impl Given for Input<'_> {
    fn element(&self) -> Element {
        match self {
            Input::Read(value) => value.element(),
            Input::Written(_) => "f32".into(),
        }
    }

    fn shape(&self) -> Vec<usize> {
        match self {
            Input::Read(value) => value.shape(),
            Input::Written(tensor) => sizes(tensor.shape()),
        }
    }

    fn no_tokens() -> Result<Self> {
        SessionInputValue::no_tokens().map(Input::Read)
    }
}
