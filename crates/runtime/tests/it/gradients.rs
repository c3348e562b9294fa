//! Gradients by Cognate's operators, by ONNX Runtime's, and by the reference.
#![allow(clippy::unwrap_used)]

use crate::example::{ort, relative_error};
use cognate_graph::{Builder, DType, Dim, Program, Shape, Weights};
use cognate_passes::gradient::gradient;
use cognate_runtime::{Options, Reference, Runtime, Source, Values};
use ndarray::{ArrayD, IxDyn};
use std::num::NonZeroUsize;

/// The loss `Σ g · ln Σ exp(x Vᵀ Wᵀ + b)` and its gradients.
fn program(width: usize, vocab: usize) -> Program {
    let builder = Builder::new("loss");
    let input = |name: &str, shape: Shape| builder.input(name, DType::F32, shape);
    let x = input("x", Shape::from([Dim::symbol("rows"), width.into()]));
    let [inner, weight] = ["V", "W"].map(|name| {
        let rows = if name == "V" { width } else { vocab };
        input(name, Shape::from([rows, width].as_slice()))
    });
    let bias = input("b", Shape::from([vocab].as_slice()));
    let factors = input("g", Shape::from([Dim::symbol("rows"), 1.into()]));
    let logits = x.linear(inner, None).linear(weight, Some(bias));
    let loss = (logits.log_sum_exp() * factors).sum(&[0, 1]).reshape(Shape::default());
    builder.output("loss", loss);
    let graph = gradient(&builder.finish().unwrap(), "loss", &["x", "V", "W", "b"]).unwrap();
    Program::new(graph, Weights::default()).unwrap()
}

#[test]
fn gradients_by_our_operators_agree_with_the_reference() {
    let Some(ort) = ort() else { return };
    // Sizes of which tiles are made, and sizes of which they are not.
    for [rows, width, vocab] in [[5, 7, 9], [70, 48, 300]] {
        let source = Source::Graph(program(width, vocab));
        let array = |shape: &[usize], step: f32| {
            let mut place = 0.0;
            ArrayD::from_shape_simple_fn(IxDyn(shape), || {
                place += step;
                // Without a period, so that sums do not cancel.
                f32::sin(place * place)
            })
        };
        let inputs: Values = [
            ("x", array(&[rows, width], 0.7)),
            ("V", array(&[width, width], 1.1) / (width as f32).sqrt()),
            ("W", array(&[vocab, width], 1.3) / (width as f32).sqrt()),
            ("b", array(&[vocab], 0.9)),
            ("g", array(&[rows, 1], 0.4) + 2.0),
        ]
        .into_iter()
        .collect();
        let mut reference = Reference::F64.load(&source, &Options::default()).unwrap();
        let expected = reference.run(&inputs).unwrap();
        for (threads, plain, in_bf16) in [
            (1, false, false),
            (2, false, false),
            (1, true, false),
            (1, false, true),
            (2, false, true),
        ] {
            let options = Options {
                threads: NonZeroUsize::new(threads),
                plain,
                training: true,
                in_bf16,
                ..Options::default()
            };
            let mut session = ort.load(&source, &options).unwrap();
            assert_eq!(session.engine().contains("Cognate's operators"), !plain);
            let found = session.run(&inputs).unwrap();
            for (name, value) in found.iter() {
                let expected = expected.get(name).unwrap().to_f64().unwrap();
                let error = relative_error(&value.to_f64().unwrap(), &expected);
                // Numbers of bfloat16 have 8 bits.
                let bound = if in_bf16 { 2.0 / 256.0 } else { 1e-5 };
                assert!(error < bound, "{rows} {width} {vocab} {options:?}: {name}: {error:e}");
            }
            let again = session.run(&inputs).unwrap();
            for (name, value) in found.iter() {
                let again = again.get(name).unwrap().to_f32().unwrap();
                assert_eq!(again, value.to_f32().unwrap(), "{name} changes from run to run");
            }
        }
    }
}
