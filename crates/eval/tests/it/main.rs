//! Values worked out by hand, and inputs that are refused. Every operation is compared with other
//! engines in cognate-verify.
#![allow(clippy::unwrap_used, missing_docs)]

use cognate_eval::{Error, Evaluator, Value};
use cognate_graph::{
    Builder, DType, Dim, Generator, Program, Recipe, Tensor, Type, Unary, Weights,
};
use insta::assert_snapshot;
use ndarray::{Array2, ArrayD, array};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// The value of what `build` makes of `x: f32 [rows, 2]` and `ids: i64 [rows]`.
fn run(
    build: impl for<'g> Fn(Tensor<'g>, Tensor<'g>) -> Tensor<'g>,
    x: Option<Value<f64>>,
    ids: Option<Value<f64>>,
) -> Result<ArrayD<f64>, Error> {
    let builder = Builder::new("test");
    let inputs = (
        builder.input("x", DType::F32, [Dim::from("rows"), 2.into()]),
        builder.input("ids", DType::I64, ["rows"]),
    );
    builder.output("y", build(inputs.0, inputs.1));
    let program = Program::new(builder.finish().unwrap(), Weights::default()).unwrap();
    let outputs = Evaluator::<f64>::new(&program)
        .run(|name| if name == "x" { x.clone() } else { ids.clone() })?;
    Ok(outputs[0].1.as_float().unwrap().to_owned())
}

fn floats(values: ndarray::Array2<f64>) -> Option<Value<f64>> {
    Some(Value::from(values.into_dyn()))
}

fn integers(values: &[i64]) -> Option<Value<f64>> {
    Some(Value::from(ArrayD::from_shape_vec(vec![values.len()], values.to_vec()).unwrap()))
}

#[test]
fn values_by_hand() {
    let x = || floats(array![[1.0, 3.0], [2.0, 2.0]]);
    let ids = || integers(&[1, 0]);
    let close = |found: ArrayD<f64>, expected: ndarray::Array2<f64>| {
        assert!(
            (&found - &expected.into_dyn()).iter().all(|difference| difference.abs() < 1e-15),
            "{found}"
        );
    };
    // e¹ and e³ over their sum.
    let large = 1.0 / (1.0 + (-2f64).exp());
    close(run(|x, _| x.softmax(), x(), ids()).unwrap(), array![[1.0 - large, large], [0.5, 0.5]]);
    // Mean 2, variance 1, with an epsilon of 3: the deviation is 2. A row without variance gives
    // the bias.
    let normalised = run(
        |x, _| {
            let vector = |value: f32| x.builder().range(0, 2).cast(DType::F32) * 0.0 + value;
            x.layer_norm(vector(3.0), vector(0.25), 3.0)
        },
        x(),
        ids(),
    );
    close(normalised.unwrap(), array![[-1.25, 1.75], [0.25, 0.25]]);
    close(run(|x, ids| x.gather(ids), x(), ids()).unwrap(), array![[2.0, 2.0], [1.0, 3.0]]);
    close(run(|x, _| x.linear(x, None), x(), ids()).unwrap(), array![[10.0, 8.0], [8.0, 8.0]]);
    // erf(1), from a table (Abramowitz and Stegun 1964, table 7.1).
    close(
        run(|x, _| (x * 0.0 + 1.0).map(Unary::Erf), x(), ids()).unwrap(),
        ndarray::Array2::from_elem((2, 2), 0.842_700_792_949_715),
    );
}

#[test]
fn refused() {
    let x = || floats(array![[1.0, 3.0], [2.0, 2.0]]);
    let message = |x, ids| run(|x, ids| x.gather(ids), x, ids).unwrap_err().to_string();
    assert_snapshot!(message(x(), integers(&[1, 2])), @"Gather: id 2 is outside the table of 2 rows");
    assert_snapshot!(message(x(), integers(&[-1, 0])), @"Gather: id -1 is outside the table of 2 rows");
    assert_snapshot!(message(x(), None), @"test: input ids: expected i64 [rows], found nothing");
    assert_snapshot!(message(x(), integers(&[0])), @"test: input ids: expected [rows], found [1], but rows is 2 in another input");
    assert_snapshot!(message(floats(array![[1.0]]), integers(&[0])), @"test: input x: expected [rows, 2], found [1, 1]");
    let swapped = Some(Value::from(array![0.0, 1.0].into_dyn()));
    assert_snapshot!(message(x(), swapped), @"test: input ids: expected i64 [rows], found floating point numbers");
}

/// Element `index` is `sin(index)`.
#[derive(Debug)]
struct Sines;

impl Generator for Sines {
    fn fill(&self, first: usize, values: &mut [f32]) {
        values.iter_mut().zip(first..).for_each(|(value, index)| *value = (index as f32).sin());
    }
}

/// A weight of which each of three threads computes a part, the last a shorter one.
#[test]
fn threads_give_the_same_numbers() {
    let (outputs, width) = (701, 300);
    let builder = Builder::new("threads");
    let x = builder.input("x", DType::F32, ["rows".into(), Dim::from(width)]);
    let weight = builder.parameter("w", Type::new(DType::F32, [outputs, width]));
    builder.output("y", x.linear(weight, None));
    let weights: Weights =
        [("w".to_owned(), Recipe::generated(Arc::new(Sines), &[outputs, width]))]
            .into_iter()
            .collect();
    let program = Program::new(builder.finish().unwrap(), weights).unwrap();
    let x = Array2::from_shape_fn((5, width), |(row, column)| {
        f64::from((row * width + column) as u32).cos()
    });
    let run = |threads| {
        let mut evaluator =
            Evaluator::<f64>::new(&program).with_threads(NonZeroUsize::new(threads).unwrap());
        evaluator.run(|_| Some(Value::from(x.clone().into_dyn()))).unwrap()[0]
            .1
            .as_float()
            .unwrap()
            .clone()
    };
    let expected = Array2::from_shape_fn((5, outputs), |(row, output)| {
        (0..width)
            .map(|column| x[[row, column]] * f64::from(((output * width + column) as f32).sin()))
            .sum::<f64>()
    });
    let found = run(1);
    assert!((&found - &expected.into_dyn()).iter().all(|difference| difference.abs() < 1e-12));
    assert_eq!(run(3), found);
}
