//! Listings of models, and files that are not models.

use crate::graphs;
use cognate_export::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto,
};
use cognate_export::{ErrorKind, Existing, Export, Listing, Metadata, read_model, write_folder};
use insta::assert_snapshot;
use std::fs;

#[test]
fn a_listing_tells_what_a_model_holds() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("out");
    let program = graphs::program("decoder", graphs::embeddings);
    let metadata = Metadata {
        doc: "A table, twice.".into(),
        properties: [("checkpoint".into(), "none".into())].into(),
    };
    let graphs = [("decoder.onnx", &program)];
    let export = Export::new(&graphs, "weights.onnx_data", &metadata);
    write_folder(&destination, &export, &[], Existing::Refuse).unwrap();
    assert_snapshot!("listing", Listing::read(&destination.join("decoder.onnx")).unwrap());
}

#[test]
fn branches_are_counted_and_strange_names_stay_on_their_line() {
    let node = |op_type: &str, attribute| NodeProto {
        op_type: op_type.into(),
        attribute,
        ..NodeProto::default()
    };
    let tensor = |name: &str, data_type, dims| TensorProto {
        name: name.into(),
        data_type,
        dims,
        ..TensorProto::default()
    };
    let branch = GraphProto {
        node: vec![node("Add", vec![])],
        initializer: vec![tensor("inner", 16, vec![3])],
        ..GraphProto::default()
    };
    let branch =
        AttributeProto { name: "then_branch".into(), g: Some(branch), ..AttributeProto::default() };
    let graph = GraphProto {
        name: "merged\u{1b}[31m\n".into(),
        node: vec![node("If", vec![branch.clone(), branch]), node("Add", vec![])],
        initializer: vec![
            tensor("nibbles", 22, vec![3]),
            tensor("new", 99, vec![-1, i64::MAX, i64::MAX]),
        ],
        output: vec![ValueInfoProto { name: "sequence".into(), ..ValueInfoProto::default() }],
        ..GraphProto::default()
    };
    assert_snapshot!(
        "branches",
        Listing::of(&ModelProto { graph: Some(graph), ..ModelProto::default() })
    );
}

#[test]
fn files_that_are_no_models_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    // Branches within branches: model.graph, then graph.node, node.attribute, attribute.g,
    // graph.node, ...
    let nested = (0..200).fold(Vec::new(), |inner, depth| {
        let field = [1, 6, 5][depth % 3];
        message(if depth == 199 { 7 } else { field }, &inner)
    });
    let cases: [(&str, &[u8]); 4] = [
        ("empty.onnx", b""),
        ("text.onnx", b"{\"model_type\": \"marian\"}"),
        ("cut.onnx", &[0x3a, 0xff, 0x01, 0x0a]),
        ("nested.onnx", &nested),
    ];
    let mut messages = Vec::new();
    for (name, bytes) in cases {
        fs::write(folder.path().join(name), bytes).unwrap();
        let error = read_model(&folder.path().join(name)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format, "{name}");
        messages.push(error.to_string().replace(&format!("{}/", folder.path().display()), ""));
    }
    assert_snapshot!(messages.join("\n"), @r#"
    empty.onnx: not an ONNX model: missing graph
    text.onnx: not an ONNX model: decoding failed at "buffer underflow"
    cut.onnx: not an ONNX model: decoding failed at "buffer underflow"
    nested.onnx: not an ONNX model: decoding failed at "recursion limit reached"
    "#);
    let error = read_model(&folder.path().join("absent.onnx")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

/// A message in a field.
fn message(field: u8, inner: &[u8]) -> Vec<u8> {
    let mut bytes = vec![field << 3 | 2];
    prost::encoding::encode_varint(inner.len() as u64, &mut bytes);
    bytes.extend(inner);
    bytes
}

#[test]
fn any_bytes_are_read_or_refused_without_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let program = graphs::program("mlp", graphs::mlp);
    let good = cognate_export::to_onnx_bytes(&program, &Metadata::default()).unwrap();
    let mut state = 1u64;
    let mut next = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..2000 {
        let mut bytes = good.clone();
        for _ in 0..1 + next(8) {
            let place = next(bytes.len());
            bytes[place] = next(256) as u8;
        }
        bytes.truncate(bytes.len() - next(bytes.len() / 2));
        fs::write(&path, &bytes).unwrap();
        if let Ok(listing) = Listing::read(&path) {
            let text = listing.to_string();
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        }
    }
}
