//! Tensors in one block of memory, and runs that write to them.
#![allow(clippy::unwrap_used)]

use crate::example::{ort, tests_cuda};
use cognate_graph::{Builder, DType, Program, Shape, Weights};
use cognate_runtime::{Device, Options, Runtime, Session, Source, Value, Values};
use ndarray::{ArrayD, IxDyn};

/// `next.NAME = 2 NAME + 1` for each input, and their `count`.
fn session(ort: &dyn Runtime, device: Device, inputs: &[(&str, &[usize])]) -> Box<dyn Session> {
    let builder = Builder::new("doubled");
    for (name, shape) in inputs {
        let x = builder.input(name, DType::F32, Shape::from(*shape));
        builder.output(&format!("next.{name}"), x + x + 1.0);
    }
    builder.output("count", builder.integer(inputs.len() as i64));
    let program = Program::new(builder.finish().unwrap(), Weights::default()).unwrap();
    ort.load(&Source::Graph(program), &Options { device, ..Options::default() }).unwrap()
}

#[test]
fn what_is_written_to_a_part_is_seen_in_the_whole() {
    let Some(ort) = ort() else { return };
    let cuda = tests_cuda().then_some(Device::CUDA);
    for device in [Device::Cpu].into_iter().chain(cuda) {
        let shapes: [(&str, &[usize]); 2] = [("a", &[2, 3]), ("b", &[70])];
        let mut of_parts = session(&ort, device, &shapes);
        let arrays = shapes.map(|(_, shape)| ArrayD::from_elem(IxDyn(shape), shape[0] as f32));
        let made = of_parts.reserve_together(&arrays).unwrap().unwrap();
        let inputs: Values = shapes.map(|(name, _)| name).into_iter().zip(made.parts).collect();
        let over: Values =
            inputs.iter().map(|(name, part)| (format!("next.{name}"), part.clone())).collect();
        let found = of_parts.run_over(&inputs, &over).unwrap();
        assert_eq!(found.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["count"]);
        // Parts begin at multiples of 64.
        let n = made.whole.shape()[0];
        let mut expected = vec![0.0; n];
        expected[..6].fill(5.0);
        expected[64..134].fill(141.0);
        assert_eq!(made.whole.to_f32().unwrap().into_raw_vec_and_offset().0, expected);

        let mut of_whole = session(&ort, device, &[("all", &[n])]);
        let all: Values = [("all", made.whole.clone())].into_iter().collect();
        let over: Values = [("next.all", made.whole)].into_iter().collect();
        of_whole.run_over(&all, &over).unwrap();
        let part = inputs.get("b").unwrap();
        assert_eq!(part.to_f32().unwrap(), ArrayD::from_elem(IxDyn(&[70]), 283.0));
    }
}

#[test]
fn only_memory_that_was_reserved_is_written() {
    let Some(ort) = ort() else { return };
    let mut session = session(&ort, Device::Cpu, &[("a", &[2])]);
    let array = ArrayD::<f32>::zeros(IxDyn(&[2]));
    let inputs: Values = [("a", array.clone())].into_iter().collect();
    let over: Values = [("next.a", Value::F32(array))].into_iter().collect();
    let error = session.run_over(&inputs, &over).unwrap_err().to_string();
    assert!(error.contains("next.a") && error.contains("memory"), "{error}");
}
