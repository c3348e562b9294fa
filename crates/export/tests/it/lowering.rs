//! Lowered graphs.

use crate::graphs;
use cognate_export::proto::{AttributeProto, AttributeType, ModelProto};
use cognate_export::{ErrorKind, Metadata, to_onnx_bytes};
use cognate_graph::{Builder, DType, Dim, Program, Weights};
use insta::assert_snapshot;
use prost::Message;
use std::collections::BTreeSet;

fn model(program: &Program) -> ModelProto {
    ModelProto::decode(to_onnx_bytes(program, &Metadata::default()).unwrap().as_slice()).unwrap()
}

/// One line per node: `output = Operator(inputs) attributes`, with the node's name if it differs
/// from its output's.
fn nodes(define: fn(&Builder)) -> String {
    let graph = model(&graphs::program("graph", define)).graph.unwrap();
    let mut text = String::new();
    for node in &graph.node {
        let output = &node.output[0];
        let outputs = node.output.join(", ");
        let name = if *output == node.name { String::new() } else { format!("  # {}", node.name) };
        let attributes: String = node.attribute.iter().map(attribute).collect();
        text.push_str(&format!(
            "{outputs} = {}({}){attributes}{name}\n",
            node.op_type,
            node.input.join(", ")
        ));
    }
    text
}

fn attribute(attribute: &AttributeProto) -> String {
    let value = match attribute.r#type() {
        AttributeType::Int => attribute.i.unwrap().to_string(),
        AttributeType::Float => attribute.f.unwrap().to_string(),
        AttributeType::Ints => format!("{:?}", attribute.ints),
        AttributeType::String => String::from_utf8(attribute.s.as_ref().unwrap().to_vec()).unwrap(),
        other => panic!("{}: lowering writes no {other:?}", attribute.name),
    };
    format!(" {}={value}", attribute.name)
}

#[test]
fn rows_stay_flat_from_gemm_to_gemm() {
    assert_snapshot!("mlp", nodes(graphs::mlp));
}

#[test]
fn attention_reads_its_sizes_from_the_inputs() {
    assert_snapshot!("attention", nodes(graphs::attention));
}

#[test]
fn beams_become_query_positions() {
    assert_snapshot!("cross_attention", nodes(graphs::cross_attention));
}

#[test]
fn a_tied_table_is_one_initializer() {
    assert_snapshot!("embeddings", nodes(graphs::embeddings));
    let graph = model(&graphs::program("decoder", graphs::embeddings)).graph.unwrap();
    assert_eq!(graph.initializer.iter().filter(|tensor| tensor.name == "shared.weight").count(), 1);
}

#[test]
fn reshapes_say_sizes_without_ambiguity() {
    assert_snapshot!("reshapes", nodes(graphs::reshapes));
}

#[test]
fn a_normalisation_gives_its_statistics_and_a_sum_its_exponentials() {
    assert_snapshot!("learning", nodes(graphs::learning));
}

#[test]
fn outputs_have_exactly_their_names() {
    assert_snapshot!(nodes(graphs::names), @r"
    left = Add(x, Constant)  # Add
    Add = Sub(x, Constant)  # Sub
    Mul = Add(Add, Add)  # Add_1
    left_again = Identity(left)
    x_again = Identity(x)
    weight_again = Identity(shared.weight)
    number = Identity(Constant)
    ");
}

#[test]
fn every_name_occurs_once_and_everything_read_is_there() {
    let mut problems = Vec::new();
    for (name, program) in graphs::all() {
        let graph = model(&program).graph.unwrap();
        let mut known = BTreeSet::new();
        let mut names = BTreeSet::new();
        for tensor in graph
            .input
            .iter()
            .map(|info| &info.name)
            .chain(graph.initializer.iter().map(|tensor| &tensor.name))
        {
            if !known.insert(tensor) {
                problems.push(format!("{name}: two tensors {tensor}"));
            }
        }
        for node in &graph.node {
            problems.extend(
                node.input
                    .iter()
                    .filter(|&input| !known.contains(input))
                    .map(|input| format!("{name}: {input} is read too early")),
            );
            problems.extend(
                node.output
                    .iter()
                    .filter(|&output| !known.insert(output))
                    .map(|output| format!("{name}: two tensors {output}")),
            );
            if !names.insert(&node.name) {
                problems.push(format!("{name}: two nodes {}", node.name));
            }
        }
        problems.extend(
            graph
                .output
                .iter()
                .filter(|info| !known.contains(&info.name))
                .map(|info| format!("{name}: no {}", info.name)),
        );
        let read: BTreeSet<_> = graph.node.iter().flat_map(|node| &node.input).collect();
        let unread = graph.initializer.iter().filter(|tensor| !read.contains(&tensor.name));
        problems.extend(unread.map(|tensor| format!("{name}: {} is never read", tensor.name)));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn what_onnx_cannot_say_is_refused() {
    let named = |input: &str, output: &str| {
        let builder = Builder::new("names");
        let x = builder.input(input, DType::F32, ["a"]);
        builder.output(output, x * 2.0);
        builder.finish().unwrap()
    };
    let empty = {
        let builder = Builder::new("empty");
        let x = builder.input("x", DType::F32, [Dim::symbol("a"), 0.into()]);
        builder.output("y", x.reshape([Dim::from(0), "a".into()]));
        builder.finish().unwrap()
    };
    let errors = [named("x", "x"), named("", "y"), empty].map(|graph| {
        let error =
            to_onnx_bytes(&Program::new(graph, Weights::default()).unwrap(), &Metadata::default())
                .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Graph);
        error.to_string()
    });
    assert_snapshot!(errors.join("\n"), @r"
    names: x is the name of an input and of an output; ONNX requires different names
    names: an input has an empty name, which ONNX reserves for omitted inputs
    Reshape: expected a Reshape to positive sizes, found [0, a]
    ");
}
