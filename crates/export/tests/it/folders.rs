//! Folders of graphs that share a weights file.

use crate::graphs::{self, Noise};
use cognate_export::proto::{DataLocation, ModelProto};
use cognate_export::{ErrorKind, Existing, Export, Folder, Metadata, read_model, write_folder};
use cognate_graph::{Builder, DType, Dim, Program, Recipe, Storage, Weights};
use insta::assert_snapshot;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const WEIGHTS: &str = "weights.onnx_data";

fn metadata() -> &'static Metadata {
    static METADATA: std::sync::OnceLock<Metadata> = std::sync::OnceLock::new();
    METADATA.get_or_init(Metadata::default)
}

fn export<'a>(graphs: &'a [(&'a str, &'a Program)]) -> Export<'a> {
    Export::new(graphs, WEIGHTS, metadata())
}

/// A graph that reads a parameter of every given name, `[rows, 8]`.
fn reading(name: &str, parameters: &[(&str, usize)], weights: Weights) -> Program {
    let builder = Builder::new(name);
    let ids = builder.input("ids", DType::I64, ["n"]);
    for (name, rows) in parameters {
        builder.output(
            &format!("{name}.rows"),
            builder.root().parameter(name, [*rows, 8]).gather(ids),
        );
    }
    Program::new(builder.finish().unwrap(), weights).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Name, offset and length of each external tensor.
fn placed(model: &ModelProto) -> Vec<(String, usize, usize)> {
    let tensors = model
        .graph
        .as_ref()
        .unwrap()
        .initializer
        .iter()
        .filter(|tensor| tensor.data_location() == DataLocation::External);
    tensors
        .map(|tensor| {
            let value = |key: &str| {
                tensor.external_data.iter().find(|entry| entry.key == key).unwrap().value.as_str()
            };
            assert_eq!(value("location"), WEIGHTS);
            (
                tensor.name.clone(),
                value("offset").parse().unwrap(),
                value("length").parse().unwrap(),
            )
        })
        .collect()
}

/// Bytes in memory that stand for a mapped file.
#[derive(Debug)]
struct Held(Vec<u8>);

impl Storage for Held {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn every_distinct_weight_is_stored_once_and_aligned() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("new/out");
    let held: Arc<dyn Storage> = Arc::new(Held((0..=255).cycle().take(64 * 32).collect()));
    let generated: Arc<Noise> = Arc::new(Noise(3));
    let large = Recipe::generated(generated, &[4096, 8]);
    let weights: Weights = [
        ("first".to_owned(), Recipe::stored(held.clone(), 32..128, &[3, 8]).unwrap()),
        ("tied".to_owned(), Recipe::stored(held.clone(), 32..128, &[3, 8]).unwrap()),
        ("other".to_owned(), Recipe::stored(held.clone(), 0..32, &[1, 8]).unwrap()),
        ("large".to_owned(), large.clone()),
        ("unused".to_owned(), Recipe::stored(held.clone(), 64..96, &[1, 8]).unwrap()),
    ]
    .into_iter()
    .collect();
    let encoder = reading("encoder", &[("first", 3), ("large", 4096)], weights.clone());
    let decoder =
        reading("decoder", &[("tied", 3), ("other", 1), ("large", 4096)], weights.clone());
    let graphs = [("encoder.onnx", &encoder), ("decoder.onnx", &decoder)];
    let report =
        write_folder(&destination, &export(&graphs), &[("config.json", b"{}")], Existing::Refuse)
            .unwrap();

    let encoder = placed(&read_model(&destination.join("encoder.onnx")).unwrap());
    let decoder = placed(&read_model(&destination.join("decoder.onnx")).unwrap());
    assert_eq!(encoder, [("first".into(), 0, 96), ("large".into(), 4096, 131_072)]);
    assert_eq!(
        decoder,
        [("tied".into(), 0, 96), ("other".into(), 135_168, 32), ("large".into(), 4096, 131_072)]
    );

    let bytes = fs::read(destination.join(WEIGHTS)).unwrap();
    assert_eq!(bytes.len(), 135_168 + 32);
    assert_eq!(bytes[..96], held.bytes()[32..128]);
    assert_eq!(bytes[135_168..], held.bytes()[..32]);
    let floats: Vec<u8> = large.values::<f32>().into_iter().flat_map(f32::to_le_bytes).collect();
    assert_eq!(bytes[4096..135_168], floats);

    for (name, bytes) in &report.files {
        assert_eq!(fs::metadata(destination.join(name)).unwrap().len(), *bytes, "{name}");
    }
    assert_eq!(names(&destination), ["config.json", "decoder.onnx", "encoder.onnx", WEIGHTS]);
    assert_eq!(report.bytes(), report.files.iter().map(|(_, bytes)| bytes).sum::<u64>());
    assert_eq!(names(&folder.path().join("new")), ["out"]);
}

#[test]
fn graph_files_are_those_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("out");
    let program = graphs::program("mlp", graphs::mlp);
    let graphs = [("mlp.onnx", &program)];
    write_folder(&destination, &export(&graphs), &[], Existing::Refuse).unwrap();
    let files = export(&graphs).graph_files().unwrap();
    assert_eq!(files, [("mlp.onnx".to_owned(), fs::read(destination.join("mlp.onnx")).unwrap())]);
}

#[test]
fn two_weights_of_one_name_are_refused() {
    let weights = |seed| {
        [("shared".to_owned(), Recipe::generated(Arc::new(Noise(seed)), &[2, 8]))]
            .into_iter()
            .collect()
    };
    let (encoder, decoder) = (
        reading("encoder", &[("shared", 2)], weights(1)),
        reading("decoder", &[("shared", 2)], weights(2)),
    );
    let error = export(&[("encoder.onnx", &encoder), ("decoder.onnx", &decoder)])
        .graph_files()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Weights);
    assert_snapshot!(error, @"shared: encoder and decoder share a weights file, but have different weights with this name");
}

#[test]
fn a_parameter_without_elements_has_no_place_in_the_weights_file() {
    let weights =
        [("none".to_owned(), Recipe::generated(Arc::new(Noise(1)), &[0, 8]))].into_iter().collect();
    let program = reading("empty", &[("none", 0)], weights);
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("out");
    write_folder(&destination, &export(&[("empty.onnx", &program)]), &[], Existing::Refuse)
        .unwrap();
    assert_eq!(names(&destination), ["empty.onnx"]);
}

#[test]
fn destinations_are_refused_or_replaced_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let root = &folder.path().join("root");
    fs::create_dir(root).unwrap();
    let builder = Builder::new("double");
    builder.output("y", builder.input("x", DType::F32, [Dim::symbol("n")]) * 2.0);
    let program = Program::new(builder.finish().unwrap(), Weights::default()).unwrap();
    let graphs = [("double.onnx", &program)];
    let write = |name: &str, existing| {
        write_folder(&root.join(name), &export(&graphs), &[("config.json", b"new")], existing)
    };

    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("file"), b"mine").unwrap();
    for (name, file) in [
        ("earlier", "config.json"),
        ("earlier", "encoder.onnx"),
        ("mine", "config.json"),
        ("mine", "model.safetensors"),
    ] {
        fs::create_dir_all(root.join(name)).unwrap();
        fs::write(root.join(name).join(file), b"old").unwrap();
    }
    fs::create_dir_all(root.join("nested/double.onnx")).unwrap();

    let mut lines = Vec::new();
    for name in ["empty", "file", "earlier", "mine", "nested", "file/below", "new", "..", ""] {
        for existing in [Existing::Refuse, Existing::Replace] {
            let result = match write(name, existing) {
                Ok(_) => format!("written: {}", names(&root.join(name)).join(", ")),
                Err(error) => format!("{:?}: {error}", error.kind())
                    .replace(&*folder.path().to_string_lossy(), ""),
            };
            lines.push(format!("{name} {existing:?}: {result}"));
        }
    }
    assert_snapshot!("destinations", lines.join("\n"));
    assert_eq!(fs::read(root.join("mine/model.safetensors")).unwrap(), b"old");
    assert_eq!(fs::read(root.join("earlier/config.json")).unwrap(), b"new");
    assert_eq!(names(root), ["earlier", "empty", "file", "mine", "nested", "new"]);
}

#[test]
fn nothing_appears_before_the_commit_and_nothing_stays_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("out");
    let mut staged = Folder::create(&destination, Existing::Refuse).unwrap();
    staged.write("config.json", b"{}").unwrap();
    assert_eq!(fs::read(staged.path().join("config.json")).unwrap(), b"{}");
    assert!(!destination.exists());
    let errors = ["config.json", "", "a/b", "../b", ".."]
        .map(|name| staged.write(name, b"").unwrap_err().to_string());
    assert_snapshot!(errors.join("\n"), @r#"
    config.json: duplicate file name
    "": expected a file name without folders
    "a/b": expected a file name without folders
    "../b": expected a file name without folders
    "..": expected a file name without folders
    "#);
    drop(staged);
    assert!(names(folder.path()).is_empty());

    // Another process created it first.
    let staged = Folder::create(&destination, Existing::Refuse).unwrap();
    fs::create_dir(&destination).unwrap();
    assert_eq!(staged.commit().unwrap_err().kind(), ErrorKind::Destination);
    assert_eq!(names(folder.path()), ["out"]);
}

#[cfg(unix)]
#[test]
fn a_link_keeps_pointing_at_the_folder_that_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let mut staged = Folder::create(&link, Existing::Replace).unwrap();
    staged.write("config.json", b"{}").unwrap();
    staged.commit().unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(names(&target), ["config.json"]);
}
