//! The passes: graphs before and after, and the numbers of both.
#![allow(clippy::unwrap_used, missing_docs)]

mod equalize;
mod gradient;
mod join;

use cognate_eval::{Evaluator, Value};
use cognate_graph::{Builder, DType, Dim, Generator, Graph, Program, Recipe, Type, Weights};
use cognate_passes::half::{Facts, Half, LARGEST, half};
use insta::assert_snapshot;
use ndarray::{ArrayD, IxDyn};
use std::sync::Arc;

/// A wave of the given height.
#[derive(Debug)]
struct Wave(f32);

impl Generator for Wave {
    fn fill(&self, first: usize, values: &mut [f32]) {
        values
            .iter_mut()
            .zip(first..)
            .for_each(|(value, place)| *value = self.0 * (place as f32 * 0.7).sin());
    }
}

/// Embedding, linear layer, masked softmax, normalisation: a parameter of each kind, `height` for
/// that of the linear layer.
fn program(height: f32) -> Program {
    let builder = Builder::new("tiny");
    let root = builder.root();
    let ids = builder.input("ids", DType::I64, ["batch", "src"]);
    let mask = builder.input("mask", DType::I64, ["batch", "src"]);
    let state = builder.input("state", DType::F32, [Dim::from("batch"), "src".into(), 4.into()]);
    let table = root.at("embed").parameter("weight", [6, 4]);
    let x = table.gather(ids) * 2.0 + state;
    let hidden = x.linear(
        root.at("fc").parameter("weight", [4, 4]),
        Some(root.at("fc").parameter("bias", [4])),
    );
    let hidden_mask = (builder.scalar(1.0)
        - mask.cast(DType::F32).reshape(["batch".into(), Dim::from(1), "src".into()]))
        * -1e9;
    let attended = (hidden.matmul(x.t()) + hidden_mask).softmax().matmul(x);
    let norm = root.at("norm");
    builder.output("state_after", attended + x);
    builder.output(
        "y",
        (x + attended)
            .layer_norm(norm.parameter("weight", [4]), norm.parameter("bias", [4]), 1e-5)
            .linear(table, None),
    );
    let graph = builder.finish().unwrap();
    let recipe = |name: &str, ty: &Type| {
        let height = if name == "fc.weight" { height } else { 1.0 };
        Recipe::generated(Arc::new(Wave(height)), &ty.shape.as_constant().unwrap())
    };
    let weights: Weights = graph
        .parameters()
        .map(|(_, node)| (node.name.clone(), recipe(&node.name, &node.ty)))
        .collect();
    Program::new(graph, weights).unwrap()
}

fn state_group(name: &str) -> Option<String> {
    name.starts_with("state").then(|| "state".to_string())
}

fn converted(program: &Program, seen: impl Fn(&str) -> Option<f32>) -> Half {
    half(
        &[program],
        Facts {
            seen: &|_, node| seen(node),
            interface: &state_group,
            keep: &|_, _| false,
            computes_in_f32: false,
        },
    )
    .unwrap()
}

fn kept(half: &Half) -> String {
    let line = |kept: &cognate_passes::half::Kept| {
        format!("{}: {:?} {:?}", kept.node, kept.why, kept.largest)
    };
    half.kept.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn before_and_after() {
    let before = program(1.0);
    let after = converted(&before, |_| Some(3.0));
    assert_snapshot!(before.graph(), @"
    graph tiny
      input ids: i64 [batch, src]
      input mask: i64 [batch, src]
      input state: f32 [batch, src, 4]
      parameter embed.weight: f32 [6, 4]
      parameter fc.weight: f32 [4, 4]
      parameter fc.bias: f32 [4]
      parameter norm.weight: f32 [4]
      parameter norm.bias: f32 [4]
      %4 = Gather embed.weight ids : f32 [batch, src, 4]
      %5 = Constant 2.0 : f32 []
      %6 = Mul %4 %5 : f32 [batch, src, 4]
      %7 = Add %6 state : f32 [batch, src, 4]
      %10 = Linear %7 fc.weight fc.bias : f32 [batch, src, 4]
      %11 = Constant 1.0 : f32 []
      %12 = Cast mask : f32 [batch, src]
      %13 = Reshape %12 : f32 [batch, 1, src]
      %14 = Sub %11 %13 : f32 [batch, 1, src]
      %15 = Constant -1000000000.0 : f32 []
      %16 = Mul %14 %15 : f32 [batch, 1, src]
      %17 = Transpose %7 order=[0, 2, 1] : f32 [batch, 4, src]
      %18 = MatMul %10 %17 : f32 [batch, src, src]
      %19 = Add %18 %16 : f32 [batch, src, src]
      %20 = Softmax %19 : f32 [batch, src, src]
      %21 = MatMul %20 %7 : f32 [batch, src, 4]
      %22 = Add %21 %7 : f32 [batch, src, 4]
      %23 = Add %7 %21 : f32 [batch, src, 4]
      %26 = LayerNormalization %23 norm.weight norm.bias epsilon=1e-5 : f32 [batch, src, 4]
      %27 = Linear %26 embed.weight : f32 [batch, src, 6]
      output state_after = %22
      output y = %27
    ");
    assert_snapshot!(after.programs[0].graph(), @"
    graph tiny
      input ids: i64 [batch, src]
      input mask: i64 [batch, src]
      input state: f16 [batch, src, 4]
      parameter embed.weight: f16 [6, 4]
      parameter fc.weight: f16 [4, 4]
      parameter fc.bias: f16 [4]
      parameter norm.weight: f32 [4]
      parameter norm.bias: f32 [4]
      %4 = Gather embed.weight ids : f16 [batch, src, 4]
      %5 = Constant 2.0 : f16 []
      %6 = Mul %4 %5 : f16 [batch, src, 4]
      %7 = Add %6 state : f16 [batch, src, 4]
      %10 = Linear %7 fc.weight fc.bias : f16 [batch, src, 4]
      %11 = Cast mask : f32 [batch, src]
      %12 = Reshape %11 : f32 [batch, 1, src]
      %13 = Constant 1.0 : f32 []
      %14 = Sub %13 %12 : f32 [batch, 1, src]
      %15 = Constant -1000000000.0 : f32 []
      %16 = Mul %14 %15 : f32 [batch, 1, src]
      %17 = Transpose %7 order=[0, 2, 1] : f16 [batch, 4, src]
      %18 = MatMul %10 %17 : f16 [batch, src, src]
      %19 = Cast %18 : f32 [batch, src, src]
      %20 = Add %19 %16 : f32 [batch, src, src]
      %21 = Softmax %20 : f32 [batch, src, src]
      %22 = Cast %21 : f16 [batch, src, src]
      %23 = MatMul %22 %7 : f16 [batch, src, 4]
      %24 = Add %23 %7 : f16 [batch, src, 4]
      %25 = Add %7 %23 : f16 [batch, src, 4]
      %28 = Cast %25 : f32 [batch, src, 4]
      %29 = LayerNormalization %28 norm.weight norm.bias epsilon=1e-5 : f32 [batch, src, 4]
      %30 = Cast %29 : f16 [batch, src, 4]
      %31 = Linear %30 embed.weight : f16 [batch, src, 6]
      %32 = Cast %31 : f32 [batch, src, 6]
      output state_after = %24
      output y = %32
    ");
    assert_snapshot!(kept(&after), @"
    Mul_1: Mask Some(3.0)
    Add_1: Mask Some(3.0)
    Softmax: Softmax Some(3.0)
    LayerNormalization: Normalisation Some(3.0)
    ");
}

#[test]
fn what_does_not_fit_stays() {
    // The linear layer's sums were seen near the limit.
    let near =
        converted(&program(1.0), |node| Some(if node == "Linear" { LARGEST / 3.0 } else { 3.0 }));
    assert_snapshot!(kept(&near), @"
    Linear: Range Some(21834.666)
    Mul_1: Mask Some(3.0)
    MatMul: Reads Some(3.0)
    Add_1: Mask Some(3.0)
    Softmax: Softmax Some(3.0)
    LayerNormalization: Normalisation Some(3.0)
    ");
    // A weight beyond it; and a state that nobody has seen, with which the other of its group
    // stays.
    let beyond = converted(&program(2.0 * LARGEST), |node| (node != "state").then_some(3.0));
    assert_snapshot!(kept(&beyond), @"
    state: Unseen None
    Add: Reads Some(3.0)
    fc.weight: Weight Some(129457.94)
    Linear: Reads Some(3.0)
    Mul_1: Mask Some(3.0)
    Add_1: Mask Some(3.0)
    Softmax: Softmax Some(3.0)
    LayerNormalization: Normalisation Some(3.0)
    state_after: Reads Some(3.0)
    ");
    let dtype = |graph: &Graph, name: &str| {
        graph.nodes().iter().find(|node| node.name == name).unwrap().ty.dtype
    };
    let graph = beyond.programs[0].graph();
    assert_eq!(
        ["fc.weight", "fc.bias", "embed.weight", "state"].map(|name| dtype(graph, name)),
        [DType::F32, DType::F32, DType::F16, DType::F32]
    );
    assert_eq!(graph.output("state_after").unwrap().ty.dtype, DType::F32);
}

#[test]
fn half_is_not_made_of_half() {
    let once = converted(&program(1.0), |_| Some(3.0));
    let facts = Facts {
        seen: &|_, _| None,
        interface: &|_| None,
        keep: &|_, _| false,
        computes_in_f32: false,
    };
    let error = half(&[&once.programs[0]], facts).unwrap_err();
    assert_snapshot!(error, @"tiny: state: is already f16; expected a program in f32");
}

#[test]
fn numbers_stay_near() {
    let before = program(1.0);
    let after = converted(&before, |_| Some(3.0));
    let state = |shape: &[usize]| {
        let mut place = 0.0;
        ArrayD::from_shape_simple_fn(IxDyn(shape), || {
            place += 1.0;
            f64::sin(place)
        })
    };
    let run = |program: &Program| {
        let integers =
            |values: Vec<i64>| Value::from(ArrayD::from_shape_vec(IxDyn(&[2, 3]), values).unwrap());
        let input = |name: &str| match name {
            "ids" => Some(integers(vec![0, 5, 2, 3, 1, 4])),
            "mask" => Some(integers(vec![1, 1, 1, 1, 1, 0])),
            _ => Some(Value::from(state(&[2, 3, 4]))),
        };
        Evaluator::<f64>::new(program).run(input).unwrap()
    };
    for ((name, exact), (_, rounded)) in run(&before).into_iter().zip(run(&after.programs[0])) {
        let (exact, rounded) =
            (exact.as_float().unwrap().clone(), rounded.as_float().unwrap().clone());
        let norm =
            |values: &ArrayD<f64>| values.iter().map(|value| value * value).sum::<f64>().sqrt();
        let error = norm(&(&rounded - &exact).to_owned()) / norm(&exact.to_owned());
        // Some roundings of 5e-4 each; were nothing rounded, the graph would not be in f16.
        assert!((1e-5..2e-3).contains(&error), "{name}: {error:e}");
    }
}
