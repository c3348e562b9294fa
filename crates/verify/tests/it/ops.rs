//! Every operation of the language, one row each: the reference evaluator against tract and ONNX
//! Runtime.

use crate::engines::{assert_close, everywhere, output};
use crate::{fast, loops};
use cognate_graph::{
    Binary, Builder, CachedAttention, Conv, DType, Dim, Op, Program, Statistic, Steps, Tensor,
    Unary, Weights, concat,
};
use cognate_runtime::{Value, Values};
use ndarray::{ArrayD, IxDyn};

/// What a row computes from `x: [rows, 6]`, `square: [6, 6]`, `row: [6]`, all f32 or all f16, and
/// `ids: i64 [rows, 2]`.
struct Given<'g> {
    builder: &'g Builder,
    x: Tensor<'g>,
    square: Tensor<'g>,
    row: Tensor<'g>,
    ids: Tensor<'g>,
}

type Row = for<'g> fn(&Given<'g>) -> Tensor<'g>;

const TABLE: &[(&str, Row)] = &[
    ("Input", |given| given.x),
    ("Constant", |given| given.builder.scalar(0.75)),
    ("Integers", |given| given.builder.integers(vec![3, -1, 4]).cast(DType::F32)),
    ("Range", |given| given.builder.range(3, Dim::from("rows") * 2 + 1).cast(DType::F32)),
    ("Relu", |given| given.x.map(Unary::Relu)),
    ("Sigmoid", |given| given.x.map(Unary::Sigmoid)),
    ("Tanh", |given| given.x.map(Unary::Tanh)),
    ("Erf", |given| given.x.map(Unary::Erf)),
    ("Add", |given| given.x + given.row),
    ("Sub", |given| given.x - given.row),
    ("Mul", |given| given.x * given.row),
    ("Mul", |given| (given.ids * given.ids).cast(DType::F32)),
    ("Mul", |given| {
        ((given.ids + given.builder.integer(1)) * (given.ids + given.builder.integer(1)))
            .cast(DType::F32)
    }),
    ("Div", |given| given.x / (given.row * given.row + 0.5)),
    ("Mod", |given| {
        ((given.ids - given.builder.integer(3)) % given.builder.integer(4)).cast(DType::F32)
    }),
    // To tract a cast makes sizes of shapes of them.
    ("Mod", |given| ((given.x * 3.0).cast(DType::I64) % given.builder.integer(4)).cast(DType::F32)),
    ("LessOrEqual", |given| given.x.less_or_equal(given.row).cast(DType::F32)),
    ("Equal", |given| given.ids.equal(given.builder.integer(5)).cast(DType::F32)),
    ("Where", |given| given.x.less_or_equal(given.row).select(given.x, given.x.number(-1e4))),
    ("Cast", |given| (given.x * 3.0).cast(DType::I64).cast(DType::F32)),
    ("Cast", |given| given.x.cast(DType::F16).cast(DType::F32)),
    ("Cast", |given| given.ids.cast(DType::F16) * 0.25),
    ("Gather", |given| given.square.gather(given.ids)),
    ("MatMul", |given| given.square.gather(given.ids).matmul(given.square)),
    ("GatherElements", |given| given.x.gather_elements(given.ids)),
    ("ScatterElements", |given| {
        given
            .x
            .cast(DType::F32)
            .scatter_elements(given.ids, given.x.cast(DType::F32).gather_elements(given.ids))
    }),
    ("TopK", |given| given.x.top_k(3)[0]),
    ("TopKPositions", |given| (given.x * 0.7).map(Unary::Floor).top_k(6)[1].cast(DType::F32)),
    ("TopKPositions", |given| given.x.gather_elements(given.x.top_k(4)[1]) + given.x.top_k(4)[0]),
    ("Log", |given| (given.x * given.x + 0.5).map(Unary::Log)),
    ("Not", |given| given.x.less_or_equal(given.row).map(Unary::Not).cast(DType::F32)),
    ("Min", |given| given.x.with(Binary::Min, given.row)),
    ("Max", |given| given.ids.with(Binary::Max, given.builder.integer(2)).cast(DType::F32)),
    ("Pow", |given| (given.x * given.x + 0.5).with(Binary::Pow, given.row)),
    ("And", |given| {
        given
            .x
            .less_or_equal(given.row)
            .with(Binary::And, given.row.less_or_equal(given.x.number(0.0)))
            .cast(DType::F32)
    }),
    ("Or", |given| {
        given
            .x
            .less_or_equal(given.row)
            .with(Binary::Or, given.row.less_or_equal(given.x.number(0.0)))
            .cast(DType::F32)
    }),
    ("LogSoftmax", |given| given.x.log_softmax()),
    ("Linear", |given| given.square.gather(given.ids).linear(given.square, Some(given.row))),
    ("Reshape", |given| given.x.reshape([Dim::from(2), Dim::from("rows"), Dim::from(3)])),
    ("LayerNormalization", |given| {
        given.square.gather(given.ids).layer_norm(given.row, given.row, 1e-5)
    }),
    ("RMSNormalization", |given| given.square.gather(given.ids).rms_norm(given.row, 1e-6)),
    ("Slice", |given| {
        given.square.gather(given.ids).slice(0, Dim::from("rows") - 1, "rows").slice(2, 1, 4)
    }),
    ("CumSum", |given| given.ids.cumulative_sum().cast(DType::F32)),
    ("Transpose", |given| given.square.gather(given.ids).transpose(&[2, 0, 1])),
    ("Concat", |given| concat(1, &[given.x, given.x * 2.0])),
    ("Softmax", |given| given.x.softmax()),
    ("LogSumExp", |given| (given.x * 3.0).log_sum_exp()),
    ("LogSumExp", |given| given.square.gather(given.ids).linear(given.square, None).log_sum_exp()),
    ("ShiftedExp", |given| given.x.shifted_exp()),
    ("ShiftedExp", |given| {
        let x = given.square.gather(given.ids).linear(given.square, None);
        x.shifted_exp() / x.log_sum_exp()
    }),
    // A value that is far from the largest stands first.
    ("LogSumExp", |given| concat(1, &[given.x.slice(1, 0, 1) - 1e4, given.x]).log_sum_exp()),
    // The same elements in rows of other lengths.
    ("LogSumExp", |given| {
        let pairs = given.x.reshape([Dim::from("rows"), 3.into(), 2.into()]);
        (given.x.shifted_exp().reshape([Dim::from("rows"), 3.into(), 2.into()])
            + pairs.shifted_exp())
        .sum(&[2])
            + pairs.log_sum_exp()
    }),
    ("Exp", |given| given.x.map(Unary::Exp)),
    ("Sqrt", |given| (given.x * given.x).map(Unary::Sqrt)),
    ("Floor", |given| (given.x * 3.0).map(Unary::Floor)),
    ("Sum", |given| given.x.sum(&[0])),
    ("Sum", |given| given.square.gather(given.ids).sum(&[0, 2])),
    ("Sum", |given| given.square.gather(given.ids).linear(given.square, None).sum(&[2])),
    ("Sum", |given| given.ids.sum(&[1]).cast(DType::F32)),
    ("Expand", |given| {
        given.x.reshape([Dim::from("rows"), 1.into(), 6.into()]).expand([
            Dim::from("rows"),
            2.into(),
            6.into(),
        ])
    }),
    ("Expand", |given| {
        given.square.matmul(given.square.expand([Dim::from("rows"), 6.into(), 6.into()]))
    }),
    // The product has an axis of which only the repeated side knows.
    ("Expand", |given| {
        given.x.expand([Dim::from("rows"), Dim::from("rows"), 6.into()]).linear(given.square, None)
    }),
    ("Expand", |given| {
        given.row.reshape([1, 6]).expand([Dim::from("rows"), 6.into()]).matmul(given.square)
    }),
    ("Expand", |given| given.x.number(0.5).expand([Dim::from("rows"), 3.into()])),
    ("ScatterAdd", |given| added_rows(given, given.square)),
    ("ScatterAdd", |given| added_rows(given, given.row)),
    ("Conv", |given| {
        let x = given.x.reshape([Dim::from("rows"), 2.into(), 3.into()]);
        x.conv(
            given.square.reshape([6, 2, 3]),
            Some(given.row),
            Conv { strides: vec![1], pads: vec![1] },
        )
    }),
    ("Conv", |given| {
        let x = given.x.reshape([Dim::from(1), 3.into(), Dim::from("rows") * 2]);
        x.conv(given.square.reshape([4, 3, 3]), None, Conv { strides: vec![2], pads: vec![1] })
    }),
    ("Conv", |given| {
        let x = given.square.gather(given.ids).reshape([
            Dim::from("rows"),
            1.into(),
            3.into(),
            4.into(),
        ]);
        x.conv(
            given.square.reshape([9, 1, 2, 2]),
            None,
            Conv { strides: vec![1, 2], pads: vec![0, 1] },
        )
    }),
    ("Gemm", |given| given.x.gemm(given.square, [false, false])),
    ("Gemm", |given| given.x.gemm(given.square, [false, true])),
    ("Gemm", |given| given.x.gemm(given.x, [true, false])),
    ("Gemm", |given| given.square.gemm(given.x, [true, true])),
    ("LayerNormMean", |given| normalised(given, Statistic::Mean)),
    ("LayerNormInverseDeviation", |given| normalised(given, Statistic::InverseDeviation)),
    ("LayerNormMean", |given| given.x.cast(DType::F32).layer_norm_statistic(Statistic::Mean, 1e-5)),
    ("LayerNormInverseDeviation", |given| {
        given.x.cast(DType::F32).layer_norm_statistic(Statistic::InverseDeviation, 1e-5)
    }),
];

/// A table with some of its rows added once more.
fn added_rows<'g>(given: &Given<'g>, table: Tensor<'g>) -> Tensor<'g> {
    let table = table.cast(DType::F32);
    table.scatter_add(given.ids, table.gather(given.ids))
}

/// A normalisation of rows and what it finds out about them, which are one node of ONNX.
fn normalised<'g>(given: &Given<'g>, statistic: Statistic) -> Tensor<'g> {
    let [square, row] = [given.square, given.row].map(|given| given.cast(DType::F32));
    let x = square.gather(given.ids).linear(square, None);
    x.layer_norm(row, row, 1e-5) + x.layer_norm_statistic(statistic, 1e-5)
}

fn wave(shape: &[usize], phase: f32) -> ArrayD<f32> {
    let mut place = 0.0;
    ArrayD::from_shape_simple_fn(IxDyn(shape), || {
        place += 1.0;
        (place * 0.7 + phase).sin() * 2.0
    })
}

/// The largest difference in f32.
const SINGLE_ROUNDING: f64 = 5e-6;

/// The same in f16, whose neighbours lie 1e-3 apart at 1: engines may round in between, or not at
/// all.
const HALF_ROUNDING: f64 = 2e-2;

#[test]
fn every_operation_agrees() {
    agree(DType::F32, SINGLE_ROUNDING);
}

#[test]
fn every_operation_agrees_in_f16() {
    agree(DType::F16, HALF_ROUNDING);
}

/// An output that is an input under another shape, and an operation that reads it so: two nodes, of
/// which none may have the input's name.
#[test]
fn other_forms_of_inputs_have_names_of_their_own() {
    let builder = Builder::new("forms");
    let x = builder.input("x", DType::F32, [Dim::from("rows"), 6.into()]);
    builder.output("y", x.reshape([1.into(), Dim::from("rows"), 6.into()]));
    builder.output("z", x.expand([Dim::from(2), "rows".into(), 6.into()]).matmul(x.t()));
    let program = Program::new(builder.finish().unwrap(), Weights::default()).unwrap();
    let inputs: Values = [("x", wave(&[3, 6], 0.0))].into_iter().collect();
    let mut sessions = everywhere(&program);
    let expected = sessions[0].run(&inputs).unwrap();
    for session in &mut sessions[1..] {
        let found = session.run(&inputs).unwrap();
        for name in ["y", "z"] {
            assert_close(
                &output(&found, name),
                &output(&expected, name),
                SINGLE_ROUNDING,
                &format!("{}: {name}", session.engine()),
            );
        }
    }
}

fn agree(dtype: DType, bound: f64) {
    let mut seen = std::collections::BTreeSet::new();
    for &(name, row) in TABLE {
        let builder = Builder::new("row");
        let given = Given {
            builder: &builder,
            x: builder.input("x", dtype, [Dim::from("rows"), 6.into()]),
            square: builder.input("square", dtype, [6, 6]),
            row: builder.input("row", dtype, [6]),
            ids: builder.input("ids", DType::I64, [Dim::from("rows"), 2.into()]),
        };
        builder.output("y", row(&given));
        let program = Program::new(builder.finish().unwrap(), Weights::default()).unwrap();
        seen.extend(program.graph().nodes().iter().map(|node| node.op.name()));
        assert!(
            program.graph().nodes().iter().any(|node| node.op.name() == name),
            "{name}: the row lacks the operation"
        );
        let mut sessions = everywhere(&program);
        for rows in [4, 1] {
            let ids = ArrayD::from_shape_vec(
                IxDyn(&[rows, 2]),
                (0..2 * rows as i64).map(|id| id * 5 % 6).collect(),
            )
            .unwrap();
            let floats = [
                ("x", wave(&[rows, 6], 0.0)),
                ("square", wave(&[6, 6], 1.0)),
                ("row", wave(&[6], 2.0)),
            ];
            let mut inputs: Values = floats.into_iter().collect();
            inputs.insert("ids", Value::I64(ids));
            let expected = output(&sessions[0].run(&inputs).unwrap(), "y");
            for session in &mut sessions[1..] {
                let found = output(&session.run(&inputs).unwrap(), "y");
                assert_close(
                    &found,
                    &expected,
                    bound,
                    &format!("{}: {name}, {dtype}, {rows} rows", session.engine()),
                );
            }
        }
    }
    // Parameters are in every model that is compared whole.
    let elsewhere = |name: &str| {
        name == "Parameter" || fast::OPERATIONS.contains(&name) || loops::OPERATIONS.contains(&name)
    };
    let missing: Vec<_> = all()
        .iter()
        .map(Op::name)
        .filter(|name| !seen.contains(name) && !elsewhere(name))
        .collect();
    assert!(missing.is_empty(), "operations without a row: {missing:?}");
}

/// One of each operation. The match makes the compiler ask for a new one here, and the test then
/// for its row.
fn all() -> Vec<Op> {
    use cognate_graph::{Bits, Blocks, Loop, Ranked, Scalar, Shape, Type};
    use {Binary::*, Unary::*};
    let binary = [Add, Sub, Mul, Div, Rem, Min, Max, Pow, And, Or].map(Op::Binary);
    let unary = [Relu, Sigmoid, Tanh, Erf, Exp, Sqrt, Floor, Log, Not].map(Op::Unary);
    let mut all = vec![Op::Input];
    while let Some(next) = match all.last().unwrap() {
        Op::Input => Some(Op::Parameter),
        Op::Parameter => Some(Op::Scalar(Scalar::F32(0.0))),
        Op::Scalar(_) => Some(Op::Integers(Vec::new())),
        Op::Integers(_) => Some(Op::Range { start: 0.into(), end: 1.into() }),
        Op::Range { .. } => Some(Op::Indices("n".into())),
        Op::Indices(_) => Some(Op::GatherElements),
        Op::GatherElements => Some(Op::ScatterElements),
        Op::ScatterElements => Some(Op::TopK { count: 1.into(), result: Ranked::Values }),
        Op::TopK { count, result: Ranked::Values } => {
            Some(Op::TopK { count: count.clone(), result: Ranked::Positions })
        }
        Op::TopK { .. } => Some(Op::LogSoftmax),
        Op::LogSoftmax => Some(Op::LessOrEqual),
        Op::LessOrEqual => Some(Op::Equal),
        Op::Equal => Some(Op::Select),
        Op::Select => Some(Op::Cast(DType::F32)),
        Op::Cast(_) => Some(Op::Gather),
        Op::Gather => Some(Op::MatMul),
        Op::MatMul => Some(Op::Linear),
        Op::Linear => Some(Op::Reshape(Shape::default())),
        Op::Reshape(_) => Some(Op::Transpose(Vec::new())),
        Op::Transpose(_) => Some(Op::Concat { axis: 0 }),
        Op::Concat { .. } => Some(Op::Slice { axis: 0, start: 0.into(), end: 1.into() }),
        Op::Slice { .. } => Some(Op::CumSum),
        Op::CumSum => Some(Op::Sum(Vec::new())),
        Op::Sum(_) => Some(Op::Expand(Shape::default())),
        Op::Expand(_) => Some(Op::ScatterAdd),
        Op::ScatterAdd => Some(Op::Gemm { transposed: [false; 2] }),
        Op::Gemm { .. } => Some(Op::Conv(Conv { strides: vec![1], pads: vec![0] })),
        Op::Conv(_) => Some(Op::Softmax),
        Op::Softmax => Some(Op::LogSumExp),
        Op::LogSumExp => Some(Op::ShiftedExp),
        Op::ShiftedExp => Some(Op::LayerNorm { epsilon: 0.0 }),
        Op::LayerNorm { .. } => {
            Some(Op::LayerNormStatistic { statistic: Statistic::Mean, epsilon: 0.0 })
        }
        Op::LayerNormStatistic { statistic: Statistic::Mean, epsilon } => {
            Some(Op::LayerNormStatistic {
                statistic: Statistic::InverseDeviation,
                epsilon: *epsilon,
            })
        }
        Op::LayerNormStatistic { .. } => Some(Op::RmsNorm { epsilon: 0.0 }),
        Op::RmsNorm { .. } => Some(Op::QuantizedLinear(Steps::Row)),
        Op::QuantizedLinear(_) => Some(Op::BlockLinear(Blocks { bits: Bits::Four, size: 32 })),
        Op::BlockLinear(_) => Some(Op::LargestMagnitude),
        Op::LargestMagnitude => Some(Op::CacheWrite { at: 0.into() }),
        Op::CacheWrite { .. } => Some(Op::CachedAttention(CachedAttention::new(1, 1.0))),
        Op::CachedAttention(_) => {
            Some(Op::LoopResult { index: 0, ty: Box::new(Type::new(DType::F32, [1])) })
        }
        Op::LoopResult { .. } => {
            Some(Op::Loop(Box::new(Loop { body: loops::counting(), carried: 1, most: 1 })))
        }
        Op::Loop(_) | Op::Unary(_) | Op::Binary(_) => None,
    } {
        all.push(next);
    }
    all.into_iter().chain(binary).chain(unary).collect()
}
