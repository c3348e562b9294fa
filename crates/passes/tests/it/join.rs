//! Joining and renaming graphs.

use cognate_graph::DType;
use cognate_graph::Error;
use cognate_graph::{Builder, Graph};
use cognate_passes::join::*;

fn graph(name: &str, inputs: &[(&str, DType)], output: &str) -> Graph {
    let builder = Builder::new(name);
    let values = inputs.iter().map(|(name, dtype)| builder.input(name, *dtype, ["n"]));
    let sum = values.reduce(|sum, value| sum + value).unwrap();
    builder.output(output, sum + sum);
    builder.finish().unwrap()
}

#[test]
fn values_go_from_graph_to_graph() {
    let first = graph("first", &[("a", DType::F32), ("b", DType::F32)], "c");
    let second = graph("second", &[("c", DType::F32), ("a", DType::F32), ("d", DType::F32)], "e");
    let joined = join("both", &[&first, &second], |name| name == "e").unwrap();
    let inputs: Vec<_> = joined.inputs().map(|(_, node)| node.name.as_str()).collect();
    assert_eq!(inputs, ["a", "b", "d"]);
    assert_eq!(
        joined.outputs().iter().map(|output| output.name.as_str()).collect::<Vec<_>>(),
        ["e"]
    );
    assert_eq!(joined.nodes().len(), inputs.len() + 5);
    let renamed = rename(&joined, |name| format!("x.{name}")).unwrap();
    let names: Vec<_> = renamed.inputs().map(|(_, node)| node.name.as_str()).collect();
    assert_eq!((names, renamed.outputs()[0].name.as_str()), (vec!["x.a", "x.b", "x.d"], "x.e"));
}

#[test]
fn contradictions_are_told() {
    let (first, second) =
        (graph("first", &[("a", DType::F32)], "b"), graph("second", &[("b", DType::I64)], "c"));
    let error = |result: Result<Graph, Error>| result.unwrap_err().to_string();
    assert_eq!(
        error(join("both", &[&first, &second], |_| true)),
        "both: b is f32 [n], and second reads i64 [n]"
    );
    assert_eq!(error(join("both", &[&first, &first], |_| true)), "b: two outputs have this name");
    let two = graph("two", &[("a", DType::F32), ("b", DType::F32)], "c");
    assert_eq!(error(rename(&two, |_| "x".into())), "two: inputs a and b would both be called x");
}
