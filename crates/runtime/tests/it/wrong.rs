//! Errors of engines.

use crate::example::{Exported, WIDTH, engines, inputs, no_past, ort};
use cognate_runtime::{
    Device, Devices, Engine, ErrorKind, Options, Runtime, Source, Tract, Value, Values,
};
use insta::assert_snapshot;
use ndarray::{ArrayD, IxDyn};

/// The message with which every engine rejects `values`.
fn refused(exported: &Exported, values: &Values) -> String {
    let mut messages: Vec<String> = engines()
        .iter()
        .map(|engine| {
            let mut session =
                engine.load(&exported.source(), &Options::default()).expect("a legal file");
            let error = session.run(values).expect_err("wrong inputs");
            assert_eq!(error.kind(), ErrorKind::Input, "{}: {error}", engine.name());
            exported.redact(error)
        })
        .collect();
    messages.dedup();
    messages.join("\n")
}

#[test]
fn inputs_are_checked_before_the_engine_sees_them() {
    let exported = Exported::new();
    let zeros = |shape: &[usize]| Value::F32(ArrayD::zeros(IxDyn(shape)));
    let right = || inputs([&[1, 2], &[3, 4]], no_past());
    let with = |name: &str, value: Value| {
        let mut values = right();
        values.insert(name, value);
        refused(&exported, &values)
    };
    let without = |name: &str| {
        let mut values = right();
        values.remove(name);
        refused(&exported, &values)
    };
    assert_snapshot!(without("ids"), @"example.onnx: input ids: expected i64 [batch, tgt], found nothing");
    assert_snapshot!(without("past"), @"example.onnx: input past: expected f32 [batch, past, 4], found nothing");
    assert_snapshot!(with("mask", zeros(&[2])), @"example.onnx: input mask: unknown input; the graph has ids, past");
    assert_snapshot!(with("ids", zeros(&[2, 2])), @"example.onnx: input ids: expected i64 [batch, tgt], found f32 [2, 2]");
    assert_snapshot!(with("past", Value::F64(ArrayD::zeros(IxDyn(&[2, 0, WIDTH])))), @"example.onnx: input past: expected f32 [batch, past, 4], found f64 [2, 0, 4]");
    assert_snapshot!(with("past", zeros(&[2, WIDTH])), @"example.onnx: input past: expected f32 [batch, past, 4], found f32 [2, 4]");
    assert_snapshot!(with("past", zeros(&[2, 0, 5])), @"example.onnx: input past: expected f32 [batch, past, 4], found f32 [2, 0, 5]");
    assert_snapshot!(with("past", zeros(&[3, 0, WIDTH])), @"example.onnx: input past: expected f32 [batch, past, 4], found f32 [3, 0, 4], but batch is 2 in input ids");
}

/// The error of loading `source` with `engine`, without the engine's own message.
fn not_loaded(
    exported: &Exported,
    engine: &dyn Runtime,
    source: &Source,
    options: &Options,
) -> String {
    let Err(error) = engine.load(source, options) else { return "loaded".into() };
    let text = exported.redact(&error);
    let own = text.split_once(" cannot load it: ").map_or(text.as_str(), |(ours, _)| ours);
    format!("{:?}: {own}", error.kind())
}

#[test]
fn what_is_no_exported_file_is_refused() {
    let exported = Exported::new();
    std::fs::write(exported.path("text.onnx"), "not a model").expect("a file");
    std::fs::create_dir(exported.path("folder.onnx")).expect("a folder");
    let found = |engine: &dyn Runtime, source: Source| {
        not_loaded(&exported, engine, &source, &Options::default())
    };
    let file = |name: &str| Source::Onnx(exported.path(name));
    assert_snapshot!(found(&Tract, file("missing.onnx")), @"Load: missing.onnx: expected an exported ONNX file, found nothing");
    assert_snapshot!(found(&Tract, file("folder.onnx")), @"Load: folder.onnx: expected an exported ONNX file, found a folder");
    assert_snapshot!(found(&Tract, file("text.onnx")), @"Load: text.onnx: not an ONNX model: model: field 13: unsupported wire type 6");
    let Some(ort) = ort() else { return };
    assert_snapshot!(found(&ort, file("missing.onnx")), @"Load: missing.onnx: expected an exported ONNX file, found nothing");
    assert_snapshot!(found(&ort, file("text.onnx")), @"Load: text.onnx: not an ONNX model: model: field 13: unsupported wire type 6");
}

#[test]
fn missing_or_short_weights_are_refused() {
    for (what, length) in [("missing", None), ("short", Some(100))] {
        let exported = Exported::new();
        let weights = exported.path("weights.onnx_data");
        match length {
            None => std::fs::remove_file(weights).expect("removed"),
            Some(length) => std::fs::File::options()
                .write(true)
                .open(weights)
                .and_then(|file| file.set_len(length))
                .expect("cut"),
        }
        for engine in engines() {
            let error = engine.load(&exported.source(), &Options::default()).err();
            let error =
                error.unwrap_or_else(|| panic!("{}: {what} weights were accepted", engine.name()));
            assert_eq!(error.kind(), ErrorKind::Load, "{error}");
            assert!(
                error.to_string().contains("weights.onnx_data") || length.is_some(),
                "{}: {error}",
                engine.name()
            );
        }
    }
}

#[test]
fn cuda_is_refused_where_it_cannot_be() {
    let exported = Exported::new();
    let options = Options { device: Device::CUDA, ..Options::default() };
    assert_snapshot!(not_loaded(&exported, &Tract, &exported.source(), &options), @"Unavailable: tract: supports only the CPU; use the engine ort for `--device cuda`");
    let Some(ort) = ort().filter(|ort| !ort.serves(Device::CUDA)) else { return };
    let library = ort.library().display().to_string();
    let error =
        not_loaded(&exported, &ort, &exported.source(), &options).replace(&library, "LIBRARY");
    assert_snapshot!(error, @"Unavailable: ort: device cuda: expected a library with CUDAExecutionProvider, found LIBRARY without it; run `cargo xtask onnxruntime --cuda`, or omit `--device cuda`");
}

#[test]
fn engines_and_devices_have_names() {
    for engine in Engine::ALL {
        assert_eq!(engine.to_string().parse(), Ok(engine));
    }
    for device in [Device::Cpu, Device::CUDA, Device::Cuda(3)] {
        assert_eq!(device.to_string().parse(), Ok(device));
    }
    for devices in ["cpu", "cuda", "cuda,cuda:1", "cuda:2,cuda:2"] {
        assert_eq!(devices.parse::<Devices>().expect("devices").to_string(), devices);
    }
    for devices in ["", "cpu,cuda", "cuda,", "cuda:", "cuda:-1", "cuda:65536", "cuda:0;cuda:1"] {
        assert!(devices.parse::<Devices>().is_err(), "{devices}");
    }
    assert_snapshot!("cuda,cpu".parse::<Devices>().expect_err("a mixture"), @"device: expected cpu alone, or GPUs, found cuda,cpu");
    assert_snapshot!("onnx".parse::<Engine>().expect_err("no engine"), @"engine: expected auto, reference, tract, ort, found onnx");
    assert_snapshot!("gpu".parse::<Device>().expect_err("no device"), @"device: expected cpu, cuda or cuda:NUMBER, found gpu");
}
