//! Errors at the builder's scope path, the grammar, canonical text, bindings and weights.
#![allow(clippy::unwrap_used, missing_docs)]

mod dims;
mod operations;
mod recipes;

use cognate_graph::{
    Builder, DType, Dim, Generator, Program, Recipe, Scope, Storage, Tensor, Unary, Weights, concat,
};
use insta::assert_snapshot;
use std::sync::Arc;

/// The error of building with `build`, called in the scope `layers.0.fc1` with
/// `x: f32 [batch, src, 8]` and `ids: i64 [batch, src]`.
fn refused(build: impl for<'g> Fn(&Scope<'g>, Tensor<'g>, Tensor<'g>) -> Tensor<'g>) -> String {
    let builder = Builder::new("test");
    let x = builder.input("x", DType::F32, [Dim::from("batch"), "src".into(), 8.into()]);
    let ids = builder.input("ids", DType::I64, ["batch", "src"]);
    let scope = builder.root().at("layers").at(0).at("fc1");
    let guard = scope.enter();
    build(&scope, x, ids);
    drop(guard);
    builder.output("y", x);
    builder.finish().unwrap_err().to_string()
}

#[test]
fn shapes_and_types() {
    assert_snapshot!(refused(|scope, x, _| x.linear(scope.parameter("weight", [4, 9]), None)), @"layers.0.fc1/Linear: weight [4, 9]: expected inputs of width 9, found [batch, src, 8]");
    assert_snapshot!(refused(|scope, x, _| x.linear(scope.parameter("weight", [4, 8]), Some(scope.parameter("bias", [8])))), @"layers.0.fc1/Linear: bias: expected f32 [4], found f32 [8]");
    assert_snapshot!(refused(|_, x, _| x.matmul(x)), @"layers.0.fc1/MatMul: inner sizes differ: [batch, src, 8] x [batch, src, 8] (8 against src)");
    assert_snapshot!(refused(|_, x, _| x.reshape([Dim::from("batch"), "src".into(), 3.into(), 3.into()])), @"layers.0.fc1/Reshape: cannot reshape [batch, src, 8] to [batch, src, 3, 3]: 8*batch*src elements against 9*batch*src");
    assert_snapshot!(refused(|_, x, _| x.transpose(&[0, 0, 1])), @"layers.0.fc1/Transpose: order [0, 0, 1] is not a permutation of the axes of [batch, src, 8]");
    assert_snapshot!(refused(|_, x, ids| x + ids), @"layers.0.fc1/Add: element types differ: f32 [batch, src, 8] and i64 [batch, src]");
    assert_snapshot!(refused(|_, x, _| x + x.t()), @"layers.0.fc1/Add: shapes do not broadcast: [batch, src, 8] and [batch, 8, src]");
    assert_snapshot!(refused(|_, x, _| x.gather(x)), @"layers.0.fc1/Gather: ids: expected i64, found f32");
    assert_snapshot!(refused(|_, _, ids| ids.map(Unary::Relu)), @"layers.0.fc1/Relu: input: expected f32 or f16, found i64");
    assert_snapshot!(refused(|_, x, _| x.select(x, x)), @"layers.0.fc1/Where: condition: expected bool, found f32");
    assert_snapshot!(refused(|_, x, _| concat(3, &[x, x])), @"layers.0.fc1/Concat: axis 3 does not exist in [batch, src, 8]");
    assert_snapshot!(refused(|_, x, _| concat(2, &[x, x.t()])), @"layers.0.fc1/Concat: cannot join [batch, 8, src] to [batch, src, 8] along axis 2");
    assert_snapshot!(refused(|scope, x, _| x.layer_norm(scope.parameter("weight", [8]), scope.parameter("bias", [7]), 1e-5)), @"layers.0.fc1/LayerNormalization: bias: expected f32 [8], found f32 [7]");
    assert_snapshot!(refused(|scope, _, _| {
        scope.parameter("weight", [8]);
        scope.parameter("weight", [9])
    }), @"layers.0.fc1.weight: declared as f32 [8], then as f32 [9]");
    assert_snapshot!(refused(|scope, x, _| {
            scope.builder().fail("2 heads against 3");
            x
        }), @"layers.0.fc1: 2 heads against 3");
}

#[test]
fn only_the_first_error_is_reported() {
    let message = refused(|_, x, ids| {
        let wrong = x.matmul(x);
        wrong.t().softmax() + ids
    });
    assert!(message.starts_with("layers.0.fc1/MatMul: "), "{message}");
}

#[test]
fn grammar() {
    let finish = |build: fn(&Builder)| {
        let builder = Builder::new("test");
        build(&builder);
        builder.finish().unwrap_err().to_string()
    };
    assert_snapshot!(finish(|_| {}), @"test: the graph has no output");
    assert_snapshot!(finish(|builder| builder.output("y", builder.range(0, "past"))), @"Range: no input has an axis past");
    assert_snapshot!(finish(|builder| builder.output("y", builder.root().parameter("table", ["rows"]))), @"table: expected a constant shape for a parameter, found [rows]");
    assert_snapshot!(finish(|builder| {
        let x = builder.input("x", DType::F32, ["n"]);
        builder.output("y", x);
        builder.output("y", x.softmax());
    }), @"y: two outputs have this name");
}

#[test]
fn inputs_give_the_symbols_that_their_sizes_solve() {
    let finish = |size: Dim| {
        let builder = Builder::new("test");
        builder.input("x", DType::F32, [size]);
        builder.output("y", builder.range(0, "n"));
        builder.finish().map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(finish(Dim::from("n") * 16 + 3), Ok(()));
    assert_eq!(finish(Dim::from("n") * "m"), Err("x: no input has an axis m".into()));
}

#[test]
fn text_and_pruning() {
    let builder = Builder::new("tiny");
    let x = builder.input("x", DType::F32, [Dim::from("rows"), 3.into()]);
    let unused = builder.input("unused", DType::I64, ["rows"]);
    let scope = builder.root().at("fc");
    let guard = scope.enter();
    let y = x.linear(scope.parameter("weight", [2, 3]), None).map(Unary::Relu) * 0.5;
    // Read by no output: left out.
    scope.parameter("forgotten", [7]).softmax();
    drop(guard);
    builder.output("y", y);
    assert_eq!(unused.ty().to_string(), "i64 [rows]");
    assert_snapshot!(builder.finish().unwrap(), @"
    graph tiny
      input x: f32 [rows, 3]
      input unused: i64 [rows]
      parameter fc.weight: f32 [2, 3]
      in fc
      %3 = Linear x fc.weight : f32 [rows, 2]
      %4 = Relu %3 : f32 [rows, 2]
      %5 = Constant 0.5 : f32 []
      %6 = Mul %4 %5 : f32 [rows, 2]
      output y = %6
    ");
}

#[test]
fn bindings() {
    let builder = Builder::new("test");
    let x = builder.input("x", DType::F32, [Dim::from("batch"), Dim::from("past") + "tgt"]);
    builder.input("past", DType::F32, ["past"]);
    builder.input("tgt", DType::F32, ["tgt"]);
    builder.output("y", x);
    let graph = builder.finish().unwrap();
    let bind = |x: &'static [usize], past: &'static [usize]| {
        graph.bind(move |name| match name {
            "x" => Some(x),
            "past" => Some(past),
            _ => Some(&[2][..]),
        })
    };
    assert!(bind(&[1, 5], &[3]).is_ok());
    assert!(bind(&[0, 2], &[0]).is_ok());
    assert_snapshot!(bind(&[1, 6], &[3]).unwrap_err(), @"test: input x: expected [batch, past + tgt], found [1, 6]");
    assert_snapshot!(bind(&[1], &[3]).unwrap_err(), @"test: input x: expected [batch, past + tgt], found [1]");
    assert_snapshot!(graph.bind(|name| (name != "tgt").then_some(&[1, 1][..])).unwrap_err(), @"test: input past: expected [past], found [1, 1]");
    assert_snapshot!(graph.bind(|_| None).unwrap_err(), @"test: input x: expected f32 [batch, past + tgt], found nothing");
}

/// Sizes of images: a number of patches, and what remains.
#[test]
fn symbols_are_solved_for() {
    let builder = Builder::new("test");
    let rows = Dim::from("rows");
    let x = builder.input("x", DType::F32, [rows * 8 + 6]);
    builder.output("y", x.reshape([Dim::from("rows") * 4 + 3, 2.into()]));
    let graph = builder.finish().unwrap();
    let rows =
        |size: &'static [usize]| Dim::from("rows").evaluate(&graph.bind(|_| Some(size)).ok()?);
    assert_eq!((rows(&[30]), rows(&[6]), rows(&[32]), rows(&[0])), (Some(3), Some(0), None, None));
    assert_snapshot!(graph.bind(|_| Some(&[32][..])).unwrap_err(), @"test: input x: expected [8*rows + 6], found [32]");
}

#[derive(Debug)]
struct Bytes(Vec<u8>);

impl Storage for Bytes {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Debug)]
struct Count;

impl Generator for Count {
    fn fill(&self, first: usize, values: &mut [f32]) {
        for (index, value) in (first..).zip(values) {
            *value = index as f32;
        }
    }
}

#[test]
fn recipes() {
    // Longer than one piece of the stream.
    let counted = Recipe::generated(Arc::new(Count), &[3, 50_000]);
    let values = counted.values::<f64>();
    assert!(values.iter().enumerate().all(|(index, value)| *value == index as f64));
    assert_eq!(values.len(), 150_000);

    let storage: Arc<dyn Storage> =
        Arc::new(Bytes([1f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect()));
    let stored = Recipe::stored(storage.clone(), 4..12, &[2]).unwrap();
    assert_eq!(stored.values::<f32>(), [2.0, 3.0]);
    assert!(stored.same_source(&Recipe::stored(storage.clone(), 4..12, &[1, 2]).unwrap()));
    assert!(!stored.same_source(&Recipe::stored(storage.clone(), 0..8, &[2]).unwrap()));
    assert_snapshot!(Recipe::stored(storage.clone(), 4..16, &[3]).unwrap_err(), @"stored weight: shape [3]: expected 12 bytes, found the range 4..16 of 12");
    assert_snapshot!(Recipe::stored(storage, 4..12, &[usize::MAX, 2]).unwrap_err(), @"stored weight: shape [18446744073709551615, 2] is too large");
    assert_snapshot!(stored.reshaped(&[3]).unwrap_err(), @"weight: cannot reshape [2] to [3]");

    let builder = Builder::new("test");
    let parameter = |name| builder.root().parameter(name, [2]);
    builder.output("y", parameter("a") + parameter("b") + parameter("c"));
    let weights: Weights =
        [("a".to_string(), stored), ("b".to_string(), counted)].into_iter().collect();
    assert_snapshot!(Program::new(builder.finish().unwrap(), weights).unwrap_err(), @"
    test: weights do not fit
      b: expected [2], found [3, 50000]
      c: missing, expected [2]
    ");
}
