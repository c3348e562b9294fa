//! Gradients of every operation against central differences in f64, and what is refused.

use cognate_eval::{Evaluator, Value};
use cognate_graph::{
    Builder, Conv, DType, Dim, Graph, Program, Statistic, Steps, Tensor, Type, Unary, Weights,
    concat,
};
use cognate_passes::gradient::gradient;
use cognate_passes::{ErrorKind, feed::feed, fold::fold};
use insta::assert_snapshot;
use ndarray::{ArrayD, IxDyn};
use std::collections::BTreeMap;

/// What a row computes from.
struct Given<'g> {
    builder: &'g Builder,
    /// `[a, 3, 4]`
    x: Tensor<'g>,
    /// `[a, 3, 4]`
    z: Tensor<'g>,
    /// `[4]`
    row: Tensor<'g>,
    /// `[a, 1, 1]`
    column: Tensor<'g>,
    /// `[3, 4]`
    matrix: Tensor<'g>,
    /// `[4, 4]`
    square: Tensor<'g>,
    /// i64 `[a, 3]`, of 0 to 2, some twice.
    ids: Tensor<'g>,
}

type Row = for<'g> fn(&Given<'g>) -> Tensor<'g>;

const TABLE: &[(&str, Row)] = &[
    ("Relu", |given| given.x.map(Unary::Relu)),
    ("Sigmoid", |given| given.x.map(Unary::Sigmoid)),
    ("Tanh", |given| given.x.map(Unary::Tanh)),
    ("Erf", |given| given.x.map(Unary::Erf)),
    ("Exp", |given| given.x.map(Unary::Exp)),
    ("Sqrt", |given| (given.x * given.x + 0.5).map(Unary::Sqrt)),
    ("Floor", |given| (given.x * 0.3 + 7.2).map(Unary::Floor) * given.x),
    ("Add", |given| given.x + given.row),
    ("Add twice", |given| given.column + given.x + given.x + given.matrix),
    ("Sub", |given| given.column - given.row),
    ("Mul", |given| given.x * given.column),
    ("Mul, both broadcast", |given| given.matrix * given.column),
    ("Mul, square", |given| given.x * given.x),
    ("Div", |given| given.matrix / (given.x * given.x + 0.5)),
    ("Div, broadcast", |given| given.x / (given.row * given.row + 0.5)),
    ("Select", |given| given.x.less_or_equal(given.z).select(given.x, given.row)),
    ("Select, broadcast condition", |given| {
        given.column.less_or_equal(given.column.number(0.1)).select(given.matrix, given.column)
    }),
    ("Select, a number", |given| {
        given.x.less_or_equal(given.row).select(given.x.number(2.0), given.x)
    }),
    ("Cast", |given| {
        given.x * given.ids.cast(DType::F32).reshape([given.ids.dim(0), 3.into(), 1.into()])
    }),
    ("Gather", |given| given.matrix.gather(given.ids)),
    ("Gather, twice and dense", |given| {
        given.matrix.gather(given.ids)
            + given.matrix.gather(given.ids.slice(1, 0, 1)) * given.x
            + given.matrix
    }),
    ("Gather of one element a row", |given| {
        let (a, one) = (given.ids.dim(0), given.builder.integer(4));
        let places =
            given.builder.range(0, &a * 3).reshape([a.clone(), 3.into()]) * one + given.ids;
        given.x.reshape([a * 12]).gather(places)
    }),
    ("MatMul", |given| given.x.matmul(given.z.t())),
    ("MatMul, one matrix", |given| given.x.matmul(given.square)),
    ("MatMul, broadcast left", |given| given.matrix.matmul(given.z.t())),
    ("MatMul, broadcast right", |given| given.x.matmul(given.matrix.t().reshape([1, 4, 3]))),
    ("MatMul, of itself", |given| given.x.t().matmul(given.x)),
    ("Linear", |given| given.x.linear(given.matrix, None)),
    ("Linear, bias", |given| given.x.linear(given.square, Some(given.row))),
    ("Linear, tied", |given| given.matrix.gather(given.ids).linear(given.matrix, None)),
    ("Conv", |given| {
        given.x.conv(
            given.matrix.reshape([4, 3, 1]),
            Some(given.row),
            Conv { strides: vec![1], pads: vec![0] },
        )
    }),
    ("Conv, padded", |given| {
        let weight = concat(0, &[given.matrix, given.square]).slice(0, 0, 6).reshape([2, 3, 4]);
        given.x.conv(weight, None, Conv { strides: vec![1], pads: vec![2] })
    }),
    ("Conv, steps", |given| {
        let weight = concat(0, &[given.matrix, given.square]).slice(0, 0, 6).reshape([4, 3, 2]);
        given.x.conv(weight, Some(given.row), Conv { strides: vec![2], pads: vec![1] })
    }),
    ("Conv, two axes", |given| {
        let x = given.x.reshape([given.x.dim(0), 1.into(), 3.into(), 4.into()]);
        let weight = given.matrix.reshape([2, 1, 2, 3]);
        x.conv(weight, None, Conv { strides: vec![2, 1], pads: vec![0, 1] })
    }),
    ("Reshape", |given| {
        given.x.reshape([Dim::from(2), given.x.dim(0), 6.into()])
            + given.column.reshape([given.x.dim(0), 1.into()])
    }),
    ("Transpose", |given| given.x.transpose(&[2, 0, 1]) * given.row.reshape([4, 1, 1])),
    ("Concat", |given| concat(1, &[given.x, given.z, given.x * given.row])),
    ("Slice", |given| given.x.slice(2, 1, 3)),
    ("Slice, from the start", |given| given.x.slice(0, 0, given.x.dim(0) - 1) * given.matrix),
    ("CumSum", |given| given.x.cumulative_sum() * given.row),
    ("Sum", |given| given.x.sum(&[0, 2])),
    ("Sum, product", |given| given.x.sum(&[1]) * given.z),
    ("Sum, reshaped", |given| given.x.sum(&[2]).reshape([given.x.dim(0), 3.into()]).softmax()),
    ("Expand", |given| given.row.expand([given.x.dim(0), 3.into(), 4.into()]) * given.x),
    ("Expand, inner", |given| {
        given.column.expand([given.x.dim(0), 3.into(), 1.into()]).softmax() + given.column
    }),
    ("ScatterAdd", |given| given.matrix.scatter_add(given.ids, given.x)),
    ("Gemm", |given| given.matrix.gemm(given.square, [false, false])),
    ("Gemm, left", |given| given.square.gemm(given.square, [true, false])),
    ("Gemm, right", |given| given.matrix.gemm(given.square, [false, true])),
    ("Gemm, both", |given| given.square.gemm(given.matrix, [true, true])),
    ("Softmax", |given| given.x.softmax()),
    ("Softmax, attention", |given| (given.x.matmul(given.z.t()) * 0.5).softmax().matmul(given.z)),
    ("LogSumExp", |given| given.x.log_sum_exp() * given.z),
    ("LayerNorm", |given| {
        given.x.layer_norm(given.row, given.square.slice(0, 0, 1).reshape([4]), 1e-3)
    }),
    ("LayerNorm, linear", |given| {
        given
            .x
            .linear(given.square, None)
            .layer_norm(given.row, given.row, 1e-3)
            .linear(given.matrix, None)
    }),
    ("Mean", |given| given.x.layer_norm_statistic(Statistic::Mean, 1e-3) * given.z),
    ("Inverse deviation", |given| {
        given.x.layer_norm_statistic(Statistic::InverseDeviation, 1e-3) * given.z
    }),
    ("RmsNorm", |given| given.x.rms_norm(given.row, 1e-3)),
];

/// The largest difference, relative to the largest element if that is above 1. Constants such as
/// erf's 2/√π are f32.
const BOUND: f64 = 1e-7;

const FLOATS: [(&str, &[usize]); 6] = [
    ("x", &[2, 3, 4]),
    ("z", &[2, 3, 4]),
    ("row", &[4]),
    ("column", &[2, 1, 1]),
    ("matrix", &[3, 4]),
    ("square", &[4, 4]),
];

/// The loss of a row: `Σ ½ y² + 0.3 y`, whose gradient differs from element to element.
fn graph(row: Row) -> Graph {
    let builder = Builder::new("row");
    let symbolic = |shape: &[usize]| -> Vec<Dim> {
        let dim = |(axis, &size): (usize, &usize)| {
            if axis == 0 && shape.len() == 3 { "a".into() } else { size.into() }
        };
        shape.iter().enumerate().map(dim).collect()
    };
    let [x, z, row_vector, column, matrix, square] =
        FLOATS.map(|(name, shape)| builder.input(name, DType::F32, symbolic(shape)));
    let ids = builder.input("ids", DType::I64, [Dim::from("a"), 3.into()]);
    let y = row(&Given { builder: &builder, x, z, row: row_vector, column, matrix, square, ids });
    let axes: Vec<_> = (0..y.ty().shape.rank()).collect();
    builder.output("loss", (y * y * 0.5 + y * 0.3).sum(&axes).reshape([] as [i64; 0]));
    builder.finish().unwrap()
}

type Floats = BTreeMap<&'static str, ArrayD<f64>>;

fn values() -> Floats {
    let mut place = 0.0;
    let mut wave = |shape: &[usize]| {
        ArrayD::from_shape_simple_fn(IxDyn(shape), || {
            place += 1.0;
            f64::sin(place * 0.83) * 1.4
        })
    };
    FLOATS.into_iter().map(|(name, shape)| (name, wave(shape))).collect()
}

fn run(evaluator: &mut Evaluator<f64>, floats: &Floats) -> BTreeMap<String, ArrayD<f64>> {
    let ids = ArrayD::from_shape_vec(IxDyn(&[2, 3]), vec![2, 0, 2, 1, 2, 0]).unwrap();
    let input = |name: &str| {
        Some(
            floats
                .get(name)
                .map_or_else(|| Value::from(ids.clone()), |array| Value::from(array.clone())),
        )
    };
    let outputs = evaluator.run(input).unwrap();
    outputs.into_iter().map(|(name, value)| (name, value.as_float().unwrap().to_owned())).collect()
}

/// What of a row's gradients is not what differences say, a line each.
fn differences(name: &str, row: Row) -> Vec<String> {
    const STEP: f64 = 1e-5;
    let graph = graph(row);
    let wanted = FLOATS.map(|(name, _)| name);
    let made = gradient(&graph, "loss", &wanted).unwrap_or_else(|error| panic!("{name}: {error}"));
    let evaluator = |graph| Evaluator::new(&Program::new(graph, Weights::default()).unwrap());
    let (mut plain, mut floats) = (evaluator(graph), values());
    let gradients = run(&mut evaluator(made), &floats);
    let mut failures = Vec::new();
    for (input, _) in FLOATS {
        let found = gradients[&format!("gradient.{input}")].clone();
        let mut expected = found.clone();
        for place in 0..found.len() {
            let mut loss = |change: f64| {
                let element = |floats: &mut Floats, change| {
                    *floats.get_mut(input).unwrap().iter_mut().nth(place).unwrap() += change
                };
                element(&mut floats, change);
                let loss = run(&mut plain, &floats)["loss"].first().copied().unwrap();
                element(&mut floats, -change);
                loss
            };
            *expected.iter_mut().nth(place).unwrap() = (loss(STEP) - loss(-STEP)) / (2.0 * STEP);
        }
        let error = (&found - &expected).iter().fold(0f64, |worst, error| {
            if error.is_nan() { f64::NAN } else { worst.max(error.abs()) }
        });
        let size = expected.iter().fold(1f64, |size, value| size.max(value.abs()));
        if error.is_nan() || error > BOUND * size {
            failures.push(format!(
                "{name}: {input}: {error:e}, found {found}, differences say {expected}"
            ));
        }
    }
    failures
}

#[test]
fn every_operation_agrees_with_differences() {
    let failures: Vec<_> = TABLE.iter().flat_map(|&(name, row)| differences(name, row)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn what_a_gradient_looks_like() {
    let builder = Builder::new("layer");
    let x = builder.input("x", DType::F32, [Dim::from("batch"), "tgt".into(), 4.into()]);
    let scope = builder.root().at("fc");
    let guard = scope.enter();
    let y = x
        .linear(scope.parameter("weight", [2, 4]), Some(scope.parameter("bias", [2])))
        .map(Unary::Relu);
    drop(guard);
    builder.output("loss", y.sum(&[0, 1, 2]).reshape([] as [i64; 0]));
    let graph = feed(&builder.finish().unwrap(), |path| path.starts_with("fc")).unwrap();
    assert_snapshot!(gradient(&graph, "loss", &["fc.weight", "fc.bias"]).unwrap(), @"
    graph layer
      input x: f32 [batch, tgt, 4]
      input fc.weight: f32 [2, 4]
      input fc.bias: f32 [2]
      in fc
      %3 = Linear x fc.weight fc.bias : f32 [batch, tgt, 2]
      %4 = Relu %3 : f32 [batch, tgt, 2]
      in layer
      %5 = Sum %4 axes=[0, 1, 2] : f32 [1, 1, 1]
      %6 = Reshape %5 : f32 []
      %7 = Constant 1.0 : f32 []
      in gradient.loss
      %8 = Reshape %7 : f32 [1, 1, 1]
      in gradient.fc
      %9 = Constant 1.1754944e-38 : f32 []
      %10 = LessOrEqual %9 %4 : bool [batch, tgt, 2]
      %11 = Cast %10 : f32 [batch, tgt, 2]
      %12 = Mul %8 %11 : f32 [batch, tgt, 2]
      %13 = Reshape %12 : f32 [batch*tgt, 2]
      %14 = Reshape x : f32 [batch*tgt, 4]
      %15 = Gemm %13 %14 left=transposed : f32 [2, 4]
      %16 = Sum %13 axes=[0] : f32 [1, 2]
      %17 = Reshape %16 : f32 [2]
      output loss = %6
      output gradient.fc.weight = %15
      output gradient.fc.bias = %17
    ");
}

#[test]
fn folding_shares_and_drops() {
    let builder = Builder::new("fold");
    let x = builder.input("x", DType::F32, [Dim::from("a"), "b".into(), 4.into()]);
    let there_and_back = x.transpose(&[2, 0, 1]).transpose(&[1, 2, 0]);
    let [left, right] = [x, there_and_back]
        .map(|x| (x * 2.0).reshape([&x.dim(0) * x.dim(1), 4.into()]).reshape(x.ty().shape));
    builder.output("y", (left + right) * 1.0 + 0.0);
    assert_snapshot!(fold(&builder.finish().unwrap()).unwrap(), @"
    graph fold
      input x: f32 [a, b, 4]
      %1 = Constant 2.0 : f32 []
      %2 = Mul x %1 : f32 [a, b, 4]
      %3 = Add %2 %2 : f32 [a, b, 4]
      output y = %3
    ");
}

#[test]
fn refused() {
    let builder = Builder::new("tiny");
    let x = builder.input("x", DType::F32, ["rows".into(), Dim::from(4)]);
    let ids = builder.input("ids", DType::I64, ["rows"]);
    let scope = builder.root().at("fc");
    let guard = scope.enter();
    let weight = builder.parameter("fc.weight", Type::new(DType::I8, [4, 4]));
    let row = scope.parameter("row", [4]);
    let y = builder.node(
        "fc/QuantizedLinear",
        cognate_graph::Op::QuantizedLinear(Steps::Row),
        &[x * row, weight, row],
    );
    drop(guard);
    builder.output("y", y);
    builder.output("loss", y.sum(&[0, 1]));
    builder.output("count", ids.sum(&[0]));
    let graph = builder.finish().unwrap();
    let refused = |loss: &str, wanted: &[&str]| {
        let error = gradient(&graph, loss, wanted).unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, message) = refused("loss", &["x", "fc.row"]);
    assert_eq!(kind, ErrorKind::NoGradient);
    assert_snapshot!(message, @"fc/QuantizedLinear: QuantizedLinear has no gradient, and x depends on it; differentiate the graph before it is lowered for inference");
    let messages = [
        refused("lost", &["x"]),
        refused("loss", &["x", "z", "fc.w"]),
        refused("y", &["x"]),
        refused("count", &["x"]),
        refused("loss", &["ids"]),
    ];
    assert!(messages.iter().all(|(kind, _)| *kind == ErrorKind::Request));
    assert_snapshot!(messages.map(|(_, message)| message).join("\n"), @"
    tiny: no output lost; expected one of y, loss, count
    tiny: no parameter or input z, fc.w
    y: expected a floating point scalar to differentiate, found f32 [rows, 4]
    count: expected a floating point scalar to differentiate, found i64 [1]
    ids: only floating point numbers have gradients, found i64 [rows]
    ");
}
