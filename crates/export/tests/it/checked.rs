//! Validation of ONNX files: exports pass, files with wrong sizes, names and
//! locations are rejected.

use cognate_export::proto::{
    AttributeProto, AttributeType, DataLocation, DataType, DimensionProto, GraphProto, ModelProto,
    NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto, TensorShapeProto,
    TensorTypeProto, TypeProto, ValueInfoProto,
};
use cognate_export::{ErrorKind, Limits, Listing, check_model};
use prost::Message;
use std::fs;
use std::path::Path;

fn value(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = |&size: &i64| DimensionProto { dim_value: Some(size), dim_param: None };
    let shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let tensor_type = Some(TensorTypeProto { elem_type: DataType::Float.into(), shape });
    ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto { tensor_type }),
        doc_string: String::new(),
    }
}

fn node(operator: &str, inputs: &[&str], output: &str) -> NodeProto {
    let input = inputs.iter().map(|&name| name.into()).collect();
    NodeProto {
        input,
        output: vec![output.into()],
        op_type: operator.into(),
        ..NodeProto::default()
    }
}

fn floats(name: &str, dims: &[i64], bytes: usize) -> TensorProto {
    let raw_data = Some(vec![0; bytes].into());
    TensorProto {
        dims: dims.into(),
        data_type: DataType::Float.into(),
        name: name.into(),
        raw_data,
        ..TensorProto::default()
    }
}

fn integers(name: &str, values: &[i64]) -> TensorProto {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let (dims, data_type) = (vec![values.len() as i64], DataType::Int64.into());
    TensorProto {
        dims,
        data_type,
        name: name.into(),
        raw_data: Some(bytes.into()),
        ..TensorProto::default()
    }
}

/// `w: f32 [4]`, with its values in another file.
fn external(entries: &[(&str, &str)]) -> TensorProto {
    let entry = |(key, value): &(&str, &str)| StringStringEntryProto {
        key: (*key).into(),
        value: (*value).into(),
    };
    let external_data = entries.iter().map(entry).collect();
    TensorProto {
        external_data,
        data_location: DataLocation::External.into(),
        raw_data: None,
        ..floats("w", &[4], 0)
    }
}

/// `y = x + w`
fn good() -> ModelProto {
    let graph = GraphProto {
        node: vec![node("Add", &["x", "w"], "y")],
        initializer: vec![external(&[("location", "w.data"), ("offset", "16"), ("length", "16")])],
        input: vec![value("x", &[4])],
        output: vec![value("y", &[4])],
        ..GraphProto::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 18 }];
    ModelProto { ir_version: 9, opset_import, graph: Some(graph), ..ModelProto::default() }
}

/// A folder with 32 bytes of weights.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w.data"), [0; 32]).unwrap();
    folder
}

/// The error of a model in `folder`; empty if it passes.
fn said(folder: &Path, bytes: &[u8]) -> String {
    let path = folder.join("a.onnx");
    fs::write(&path, bytes).unwrap();
    match check_model(&path, &Limits::default()) {
        Ok(checked) => {
            checked.unchanged().unwrap();
            String::new()
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Format, "{error}");
            error.to_string().replace(&format!("{}: ", path.display()), "")
        }
    }
}

type Change = fn(&mut ModelProto, &mut GraphProto);

fn check(cases: &[(&str, Change)]) {
    let mut failures = Vec::new();
    for (expected, change) in cases {
        let folder = folder();
        let mut model = good();
        let mut graph = model.graph.take().unwrap();
        change(&mut model, &mut graph);
        model.graph = Some(graph);
        let found = said(folder.path(), &model.encode_to_vec());
        if found != *expected {
            failures.push(format!("expected {expected:?}\nfound    {found:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn tensors_have_what_their_shapes_say() {
    check(&[
        ("", |_, _| ()),
        ("", |_, graph| graph.initializer.push(floats("none", &[0, 7], 0))),
        ("", |_, graph| {
            graph.initializer.push(TensorProto { raw_data: None, ..floats("none", &[0], 0) })
        }),
        ("tensor v: shape [-1] has a negative size", |_, graph| {
            graph.initializer.push(floats("v", &[-1], 4))
        }),
        ("tensor v: shape [4294967296, 4294967296, 4] is too large", |_, graph| {
            graph.initializer.push(floats("v", &[1 << 32, 1 << 32, 4], 4));
        }),
        (
            "tensor v: shape [0, 9223372036854775807, 9223372036854775807] is too large",
            |_, graph| {
                graph.initializer.push(floats("v", &[0, i64::MAX, i64::MAX], 0));
            },
        ),
        ("tensor v: expected 10000000000 bytes for its shape, found 4", |_, graph| {
            graph.initializer.push(floats("v", &[2_500_000_000], 4))
        }),
        ("tensor v: expected 2500000000 values for its shape, found none", |_, graph| {
            graph
                .initializer
                .push(TensorProto { raw_data: None, ..floats("v", &[2_500_000_000], 0) });
        }),
        ("tensor v: unknown element type 99", |_, graph| {
            graph.initializer.push(TensorProto { data_type: 99, ..floats("v", &[1], 4) });
        }),
        ("\"z\": shape [-7] has a negative size", |_, graph| graph.input.push(value("z", &[-7]))),
    ]);
}

#[test]
fn names_are_given_once_and_before_they_are_read() {
    check(&[
        ("duplicate or empty name \"w\" of an initializer", |_, graph| {
            graph.initializer.push(floats("w", &[1], 4))
        }),
        ("duplicate or empty name \"x\" of an input", |_, graph| {
            graph.input.push(value("x", &[1]))
        }),
        ("node \"y\" (Neg): duplicate output \"y\"", |_, graph| {
            graph.node.push(node("Neg", &["x"], "y"))
        }),
        (
            "node \"a\" (Neg): input \"b\" is not computed before the node: it is missing, computed later, or part of a cycle",
            |_, graph| {
                graph.node.extend([node("Neg", &["b"], "a"), node("Neg", &["a"], "b")]);
            },
        ),
        ("output z: no node computes it", |_, graph| graph.output.push(value("z", &[1]))),
        ("no operator set", |model, _| model.opset_import.clear()),
        ("operator set \"\": expected version 1 to 28, found 1000", |model, _| {
            model.opset_import[0].version = 1000
        }),
        (
            "node \"z\" (Gelu): operator set \"org.example\" is not imported by the model",
            |_, graph| {
                graph
                    .node
                    .push(NodeProto { domain: "org.example".into(), ..node("Gelu", &["x"], "z") });
            },
        ),
    ]);
    let folder = folder();
    let mut twice = good().encode_to_vec();
    twice.extend(ModelProto { graph: good().graph, ..ModelProto::default() }.encode_to_vec());
    assert_eq!(said(folder.path(), &twice), "not an ONNX model: model: duplicate field 7");
}

#[test]
fn amounts_are_bounded() {
    check(&[
        ("", |_, graph| {
            graph.initializer.push(integers("shape", &[2, 3]));
            graph.node.push(node("ConstantOfShape", &["shape"], "z"));
        }),
        (
            "node \"z\" (ConstantOfShape): creates a tensor of 1099511627776 elements; expected at most 67108864; to allow more, set COGNATE_LIMITS=elements=N",
            |_, graph| {
                graph.initializer.push(integers("shape", &[1 << 20]));
                graph.node.extend([
                    node("Mul", &["shape", "shape"], "square"),
                    node("ConstantOfShape", &["square"], "z"),
                ]);
            },
        ),
        (
            "node \"z\" (Range): counts 1099511627776 elements; expected at most 67108864; to allow more, set COGNATE_LIMITS=elements=N",
            |_, graph| {
                graph.initializer.extend([
                    integers("from", &[0]),
                    integers("to", &[1 << 40]),
                    integers("step", &[1]),
                ]);
                graph.node.push(node("Range", &["from", "to", "step"], "z"));
            },
        ),
        (
            "node \"z\" (Loop): may not end; only a constant number of iterations is supported",
            |_, graph| {
                graph.node.push(node("Loop", &["", "x"], "z"));
            },
        ),
    ]);
    let folder = folder();
    let mut model = good();
    for _ in 0..20 {
        let branch = AttributeProto {
            name: "b".into(),
            r#type: AttributeType::Graph.into(),
            g: model.graph,
            ..AttributeProto::default()
        };
        let node = NodeProto { attribute: vec![branch], ..node("If", &["w"], "z") };
        model.graph = Some(GraphProto {
            node: vec![node],
            initializer: vec![floats("w", &[1], 4)],
            ..GraphProto::default()
        });
    }
    let deep = said(folder.path(), &model.encode_to_vec());
    assert_eq!(
        deep,
        "node \"z\" (If): ".repeat(16)
            + "expected at most 16 nested graphs; to allow more, set COGNATE_LIMITS=depth=N"
    );
    let path = folder.path().join("a.onnx");
    fs::write(&path, good().encode_to_vec()).unwrap();
    let error =
        check_model(&path, &Limits { parts: 5, ..Limits::default() }).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "a.onnx: expected at most 5 parts; to allow more, set COGNATE_LIMITS=parts=N"
        ),
        "{error}"
    );
}

#[test]
fn limits_are_given_by_name() {
    let limits = |text: &str| Limits::from_text(text).map_err(|error| error.to_string());
    let usual = Limits::default();
    assert_eq!(limits(""), Ok(usual));
    assert_eq!(
        limits("depth=32, elements=1000"),
        Ok(Limits { depth: 32, elements: 1000, ..usual })
    );
    assert_eq!(limits("parts=7,"), Ok(Limits { parts: 7, ..usual }));
    for wrong in ["parts", "parts=", "parts=-1", "parts=0", "depth=65", "nodes=3", "elements=1e9"] {
        let expected = format!(
            "COGNATE_LIMITS: expected parts=N, depth=N (at most 64) or elements=N, separated by commas, found {wrong:?}"
        );
        assert_eq!(limits(wrong), Err(expected));
    }
}

#[test]
fn weights_lie_in_the_folder() {
    let inside: [(&str, &[(&str, &str)]); 12] = [
        ("", &[("location", "w.data"), ("length", "16")]),
        ("", &[("location", "w.data"), ("offset", "16")]),
        ("", &[("location", "inner/w.data")]),
        (
            "expected 16 bytes at offset 17 of w.data, found 32 in all",
            &[("location", "w.data"), ("offset", "17")],
        ),
        (
            "expected 16 bytes at offset 18446744073709551612 of w.data, found 32 in all",
            &[("location", "w.data"), ("offset", "18446744073709551612")],
        ),
        (
            "external data: offset: expected a number, found \"-1\"",
            &[("location", "w.data"), ("offset", "-1")],
        ),
        (
            "expected 16 bytes for its shape, found external data of 17",
            &[("location", "w.data"), ("length", "17")],
        ),
        ("external data: duplicate location", &[("location", "w.data"), ("location", "w.data")]),
        ("external data has no location", &[("offset", "0")]),
        ("location \"inner\": is not a regular file", &[("location", "inner")]),
        (
            "location \"../w.data\": expected the name of a file in the graph's folder",
            &[("location", "../w.data")],
        ),
        (
            "location \"*/_ORT_MEM_ADDR_/*\": expected the name of a file in the graph's folder",
            &[("location", "*/_ORT_MEM_ADDR_/*")],
        ),
    ];
    let folder = folder();
    fs::create_dir(folder.path().join("inner")).unwrap();
    fs::copy(folder.path().join("w.data"), folder.path().join("inner/w.data")).unwrap();
    let found = |entries: &[(&str, &str)]| {
        let mut model = good();
        model.graph.as_mut().unwrap().initializer = vec![external(entries)];
        let said = said(folder.path(), &model.encode_to_vec());
        said.replace("tensor w: ", "")
    };
    let failures: Vec<_> = inside
        .iter()
        .filter(|(expected, entries)| found(entries) != *expected)
        .map(|(_, entries)| found(entries))
        .collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

#[cfg(unix)]
#[test]
fn no_link_is_followed_to_weights() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink("w.data", path("link")).unwrap();
    std::os::unix::fs::symlink(".", path("round")).unwrap();
    fs::write(path("named"), [0; 32]).unwrap();
    fs::hard_link(path("named"), path("again")).unwrap();
    for (location, expected) in [
        ("link", "is behind a link, which ONNX does not allow for weights; copy the file there"),
        (
            "round/w.data",
            "is behind a link, which ONNX does not allow for weights; copy the file there",
        ),
        (
            "again",
            "has several hard links, which ONNX does not allow for weights; copy the file there",
        ),
    ] {
        let mut model = good();
        model.graph.as_mut().unwrap().initializer = vec![external(&[("location", location)])];
        assert_eq!(
            said(folder.path(), &model.encode_to_vec()),
            format!("tensor w: location {location:?}: {expected}")
        );
    }
}

#[test]
fn a_file_that_changes_meanwhile_is_noticed() {
    let folder = folder();
    let path = folder.path().join("a.onnx");
    fs::write(&path, good().encode_to_vec()).unwrap();
    let checked = check_model(&path, &Limits::default()).unwrap();
    checked.unchanged().unwrap();
    fs::write(folder.path().join("w.data"), [0; 33]).unwrap();
    let error = checked.unchanged().unwrap_err().to_string();
    assert!(
        error
            .ends_with("w.data: changed while it was read; try again when no program writes to it"),
        "{error}"
    );
}

#[test]
fn fuzz_onnx() {
    let folder = folder();
    let path = folder.path().join("a.onnx");
    let nested = {
        let mut model = good();
        let graph = model.graph.as_mut().unwrap();
        let branch = AttributeProto {
            name: "b".into(),
            r#type: AttributeType::Graph.into(),
            g: good().graph,
            ..AttributeProto::default()
        };
        graph.node.push(NodeProto { attribute: vec![branch], ..node("If", &["x"], "z") });
        graph.initializer.push(integers("shape", &[1 << 20, 1 << 20]));
        graph.node.push(node("ConstantOfShape", &["shape"], "many"));
        model
    };
    let seeds = [good().encode_to_vec(), nested.encode_to_vec()];
    cognate_testing::never_panics("onnx", &seeds, 2000, |bytes| {
        fs::write(&path, bytes).unwrap();
        if let Ok(listing) = Listing::read(&path) {
            listing.to_string();
        }
        if let Ok(checked) = check_model(&path, &Limits::default()) {
            checked.unchanged().unwrap();
        }
    });
}
