//! Loops, and sizes that values give: the reference evaluator against ONNX Runtime (tract has
//! neither).

use crate::engines::{assert_close, on_ort, output};
use cognate_export::proto::{GraphProto, ModelProto, NodeProto};
use cognate_export::{Metadata, to_onnx_bytes};
use cognate_graph::{
    Builder, DType, Dim, Generator, Graph, Program, Recipe, Repeat, Scalar, Shape, Tensor, Type,
    Weights, concat,
};
use cognate_runtime::{Session, Value, Values};
use ndarray::{ArrayD, IxDyn};
use prost::Message;
use std::sync::Arc;

/// The operations that only this file tests.
pub(crate) const OPERATIONS: [&str; 3] = ["Loop", "LoopResult", "Indices"];

/// A body that adds a row and a weight to a sum, while their number is below a limit, and appends
/// each sum to all before.
pub(crate) fn counting() -> Graph {
    let builder = Builder::new("counting");
    let iteration = builder.input("iteration", DType::I64, Shape::default());
    let sum = builder.input("loop.sum", DType::F32, [Dim::from("rows"), 3.into()]);
    let seen = builder.input("loop.seen", DType::F32, [Dim::from("rows"), "past".into()]);
    let row = builder.input("loop.row", DType::F32, [3]);
    let limit = builder.input("loop.limit", DType::I64, Shape::default());
    let next = sum + row * builder.root().parameter("weight", [3]);
    // The size that grows and the one that does not, in one shape.
    let both = seen.reshape([seen.dim(0) * seen.dim(1)]).sum(&[0]);
    builder.output("loop.next.condition", (iteration + builder.integer(2)).less_or_equal(limit));
    builder.output("loop.next.sum", next + both * 0.1);
    builder.output("loop.next.seen", concat(1, &[seen, next.slice(1, 0, 1)]));
    builder.finish().unwrap()
}

fn program() -> Program {
    let builder = Builder::new("outside");
    let x = builder.input("x", DType::F32, [Dim::from("rows"), 3.into()]);
    let limit = builder.input_or("limit", Scalar::I64(4));
    let go = builder.integer(1).less_or_equal(limit);
    let empty = builder.scalar(0.0).expand([Dim::from("rows"), 0.into()]);
    let row = (x * 2.0).sum(&[0]).reshape([3]);
    let last = builder.repeat(Repeat {
        body: counting(),
        most: 6,
        condition: go,
        carried: &[x, empty],
        captured: &[row, limit],
    });
    let ids = (limit * limit).indices("n");
    builder.output("ids", ids + ids.top_k(Dim::from("n"))[1].top_k("n")[1] + builder.range(0, "n"));
    builder.output("y", last[0] * builder.root().parameter("weight", [3]));
    builder.output("seen", last[1] + builder.range(0, "past").cast(DType::F32));
    let weights: Weights =
        [("weight".to_owned(), Recipe::generated(Arc::new(Three), &[3]))].into_iter().collect();
    Program::new(builder.finish().unwrap(), weights).unwrap()
}

/// 0.5, -1, 2.
#[derive(Debug)]
struct Three;

impl Generator for Three {
    fn fill(&self, first: usize, values: &mut [f32]) {
        values.copy_from_slice(&[0.5, -1.0, 2.0][first..first + values.len()]);
    }
}

#[test]
fn loops_agree() {
    let program = program();
    let mut sessions = on_ort(&program);
    for (limit, rows) in [(0, 2), (1, 1), (3, 2), (6, 3), (100, 1)] {
        let x =
            ArrayD::from_shape_fn(IxDyn(&[rows, 3]), |at| (at[0] * 3 + at[1]) as f32 * 0.25 - 0.5);
        let mut inputs: Values = [("x", x.clone())].into_iter().collect();
        inputs.insert("limit", Value::I64(ArrayD::from_elem(IxDyn(&[]), limit)));
        // By hand.
        let (weight, row) = (
            [0.5, -1.0, 2.0],
            (0..3)
                .map(|column| x.outer_iter().map(|row| f64::from(row[column]) * 2.0).sum::<f64>())
                .collect::<Vec<_>>(),
        );
        let mut sum: Vec<Vec<f64>> =
            x.outer_iter().map(|row| row.iter().map(|&x| x.into()).collect()).collect();
        let (mut seen, mut all) = (0.0, vec![Vec::new(); rows]);
        for step in 0..limit.min(6) {
            let mut new = 0.0;
            for (line, all) in sum.iter_mut().zip(&mut all) {
                for column in 0..3 {
                    line[column] += row[column] * weight[column];
                }
                new += line[0];
                all.push(line[0] + step as f64);
                line.iter_mut().for_each(|value| *value += seen * 0.1);
            }
            seen += new;
        }
        let expected =
            sum.iter().flatten().enumerate().map(|(at, value)| value * weight[at % 3]).collect();
        let expected = ArrayD::from_shape_vec(IxDyn(&[rows, 3]), expected).unwrap();
        let size = IxDyn(&[rows, limit.min(6) as usize]);
        let seen = ArrayD::from_shape_vec(size, all.concat()).unwrap();
        for session in &mut sessions {
            let found = session.run(&inputs).unwrap();
            assert_eq!(
                output(&found, "ids").iter().map(|&id| id as i64).collect::<Vec<_>>(),
                (0..limit * limit).map(|id| 3 * id).collect::<Vec<_>>()
            );
            let name = format!("{}: limit {limit}", session.engine());
            for (output_name, expected) in [("y", &expected), ("seen", &seen)] {
                let most = expected.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
                assert_close(&output(&found, output_name), expected, 1e-5 * most, &name);
            }
        }
    }
}

/// The value after a loop that carries it alone.
fn repeated<'g>(builder: &'g Builder, body: Builder, x: Tensor<'g>) -> Tensor<'g> {
    builder.repeat(Repeat {
        body: body.finish().unwrap(),
        most: 5,
        condition: builder.integer(1).cast(DType::Bool),
        carried: &[x],
        captured: &[],
    })[0]
}

/// Matrices that loops inside of loops read are constants of the graph around the inner loop, if it
/// multiplies by them.
#[test]
fn matrices_of_nested_loops_are_constants_around_the_inner_one() {
    let body = Builder::new("steps");
    let step = body.input("steps.iteration", DType::I64, Shape::default());
    let x = body.input("steps.x", DType::F32, [Dim::from("rows"), 3.into()]);
    let [square, row] = [("square", Shape::from([3, 3])), ("weight", [3].into())]
        .map(|(name, shape)| body.root().parameter(name, shape));
    body.output("steps.next.condition", step.less_or_equal(body.integer(1)));
    body.output("steps.next.x", x.matmul(square) + row + square.gather(step.reshape([1])));
    let phase = Builder::new("phase");
    let iteration = phase.input("phase.iteration", DType::I64, Shape::default());
    let x = phase.input("phase.x", DType::F32, [Dim::from("rows"), 3.into()]);
    let last = repeated(&phase, body, x);
    phase.output("phase.next.condition", iteration.less_or_equal(phase.integer(0)));
    phase.output("phase.next.x", last * phase.root().parameter("weight", [3]));
    let builder = Builder::new("outside");
    let x = builder.input("x", DType::F32, [Dim::from("rows"), 3.into()]);
    let square = builder.root().parameter("square", [3, 3]);
    let last = repeated(&builder, phase, x);
    builder.output("y", last.matmul(square));
    let weights: Weights = [
        ("weight", Recipe::generated(Arc::new(Three), &[3])),
        ("square", Recipe::generated(Arc::new(Nine), &[3, 3])),
    ]
    .map(|(name, recipe)| (name.to_owned(), recipe))
    .into_iter()
    .collect();
    let program = Program::new(builder.finish().unwrap(), weights).unwrap();
    let bytes = to_onnx_bytes(&program, &Metadata::default()).unwrap();
    let graph = ModelProto::decode(bytes.as_slice()).unwrap().graph.unwrap();
    let in_body = |graph: &GraphProto| {
        let mut bodies = graph
            .node
            .iter()
            .flat_map(|node| &node.attribute)
            .filter_map(|attribute| attribute.g.clone());
        bodies.next().unwrap()
    };
    let readers = |graph: &GraphProto, name: &str| {
        let reads = |node: &&NodeProto| node.input.iter().any(|input| input == name);
        graph.node.iter().filter(reads).map(|node| node.op_type.clone()).collect::<Vec<_>>()
    };
    let phase = in_body(&graph);
    let steps = in_body(&phase);
    assert_eq!(readers(&graph, "square"), ["MatMul"]);
    assert_eq!(readers(&phase, "square"), ["Reshape"]);
    assert_eq!(readers(&steps, "square"), ["Gather"]);
    assert_eq!(readers(&steps, "square.phase"), ["MatMul"]);

    let mut sessions = on_ort(&program);
    let x = ArrayD::from_shape_fn(IxDyn(&[2, 3]), |at| (at[0] * 3 + at[1]) as f32 * 0.25 - 0.5);
    let inputs: Values = [("x", x)].into_iter().collect();
    let mut run = |session: &mut Box<dyn Session>| output(&session.run(&inputs).unwrap(), "y");
    let found: Vec<_> = sessions.iter_mut().map(&mut run).collect();
    for (session, other) in sessions.iter().zip(&found).skip(1) {
        let most = found[0].iter().fold(1.0, |most: f64, x| most.max(x.abs()));
        assert_close(other, &found[0], 1e-5 * most, session.engine());
    }
}

/// -0.4 to 0.4.
#[derive(Debug)]
struct Nine;

impl Generator for Nine {
    fn fill(&self, first: usize, values: &mut [f32]) {
        values.iter_mut().zip(first..).for_each(|(value, place)| *value = place as f32 * 0.1 - 0.4);
    }
}

/// What a loop refuses: names, shapes and sizes that do not fit.
#[test]
fn wrong_loops_are_refused() {
    let body = |shape: [Dim; 2], next: [Dim; 2]| {
        let builder = Builder::new("body");
        builder.input("iteration", DType::I64, Shape::default());
        let x = builder.input("x", DType::F32, shape);
        builder.output("condition", builder.integer(1).cast(DType::Bool));
        builder.output("next", x.sum(&[0, 1]).expand(next));
        builder.finish().unwrap()
    };
    let error = |body: Graph, condition: Type| {
        let builder = Builder::new("outside");
        let x = builder.input("x", DType::F32, [Dim::from("rows"), 3.into()]);
        let condition = builder.input("condition", condition.dtype, condition.shape);
        let last =
            builder.repeat(Repeat { body, most: 6, condition, carried: &[x], captured: &[] });
        last.iter().for_each(|value| builder.output("y", *value));
        builder.finish().map_or_else(|error| error.to_string(), |_| "accepted".into())
    };
    let truth = || Type::new(DType::Bool, Shape::default());
    let (rows, three) = (|| Dim::from("rows"), || Dim::from(3));
    assert_eq!(error(body([rows(), three()], [rows(), three()]), truth()), "accepted");
    insta::assert_snapshot!(error(
        body([rows(), three()], [rows(), three()]),
        Type::new(DType::I64, Shape::default())
    ));
    insta::assert_snapshot!(error(body([rows(), three()], [rows(), rows()]), truth()));
    insta::assert_snapshot!(error(
        body([rows(), "columns".into()], [rows(), Dim::from("columns") + 1]),
        truth()
    ));
    // After a loop the size of its body is known, so a second one cannot have another value.
    let builder = Builder::new("outside");
    let x = builder.input("x", DType::F32, ["rows"]);
    let empty = builder.scalar(0.0).expand([Dim::from("rows"), 0.into()]);
    let grown: Vec<_> = (0..2)
        .map(|_| {
            let inner = Builder::new("body");
            inner.input("iteration", DType::I64, Shape::default());
            let row = inner.input("row", DType::F32, ["rows"]);
            let seen = inner.input("seen", DType::F32, ["rows", "past"]);
            inner.output("condition", inner.integer(1).cast(DType::Bool));
            inner.output("next.row", row * 2.0);
            inner.output("next.seen", concat(1, &[seen, row.reshape([row.dim(0), 1.into()])]));
            builder.repeat(Repeat {
                body: inner.finish().unwrap(),
                most: 2,
                condition: builder.integer(1).cast(DType::Bool),
                carried: &[x, empty],
                captured: &[],
            })[1]
        })
        .collect();
    builder.output("y", grown[0] + grown[1]);
    insta::assert_snapshot!(builder.finish().unwrap_err());
}
