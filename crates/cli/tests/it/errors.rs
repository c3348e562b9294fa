//! Everything that is refused, with its message.

use crate::{checkpoint, cognate, edit, ended, run, run_with, with_dir};
use cognate_testing::bundled_checkpoint;
use insta::assert_snapshot;
use std::fs;
use tempfile::TempDir;

/// The error of translating with the model in `folder`.
fn error_of(folder: &TempDir) -> String {
    error_with(folder, "tract")
}

fn error_with(folder: &TempDir, engine: &str) -> String {
    let model = folder.path().to_str().unwrap();
    with_dir(&run(&["translate", "--engine", engine, "--model", model, "Hello."]).failed(1), folder.path())
}

/// The error with another text in `config.json`.
fn config_error(from: &str, to: &str) -> String {
    let folder = checkpoint(false);
    edit(&folder, "config.json", from, to);
    error_of(&folder)
}

#[test]
fn a_wrong_command_line() {
    assert_snapshot!(run(&["translate", "--engine", "onnx", "Hello."]).failed(2), @"");
    assert_snapshot!(run(&["translate", "--threads", "0", "Hello."]).failed(2), @"");
    assert_snapshot!(run(&["translate", "--beams", "many", "Hello."]).failed(2), @"");
    assert_snapshot!(run(&["translate", "--input", "text.en", "Hello."]).failed(2), @"");
}

#[test]
fn a_model_that_is_not_there() {
    assert_snapshot!(run(&["translate", "--model", "no/such/model", "Hello."]).failed(1), @"");
    assert_snapshot!(ended(cognate(&["translate", "Hello."]).env("COGNATE_MODEL", "no/such/model")).failed(1), @"");
    assert_snapshot!(run(&["translate", "--model", "testdata", "Hello."]).failed(1), @"");
    assert_snapshot!(run(&["translate", "--model", "preset:tiny", "Hello."]).failed(1), @"");
    assert_snapshot!(run(&["export", "preset:huge", "out"]).failed(1), @"");
    assert_snapshot!(run(&["translate", "--model", "Cargo.toml", "Hello."]).failed(1), @"");
}

#[test]
fn weights_in_a_form_that_is_not_read() {
    let folder = checkpoint(false);
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert_snapshot!(error_of(&folder), @"");
    fs::write(folder.path().join("pytorch_model.bin"), "").unwrap();
    assert_snapshot!(error_of(&folder), @"");
    fs::write(folder.path().join("model.safetensors.index.json"), "{}").unwrap();
    assert_snapshot!(error_of(&folder), @"");
}

#[test]
fn a_truncated_weights_file() {
    let folder = checkpoint(true);
    let weights = fs::File::options().write(true).open(folder.path().join("model.safetensors")).unwrap();
    weights.set_len(1_000_000).unwrap();
    assert_snapshot!(error_of(&folder), @"");
    weights.set_len(100).unwrap();
    assert_snapshot!(error_of(&folder), @"");
}

#[test]
fn weights_of_another_shape() {
    let folder = checkpoint(true);
    edit(&folder, "config.json", "\"decoder_ffn_dim\": 256", "\"decoder_ffn_dim\": 512");
    let error = error_of(&folder);
    assert_snapshot!(error.lines().take(3).collect::<Vec<_>>().join("\n"), @"");
}

#[test]
fn a_wrong_configuration() {
    assert_snapshot!(config_error("\"d_model\": 128", "\"d_model\": 127"), @"");
    assert_snapshot!(config_error("\"marian\"", "\"opus\""), @"");
    assert_snapshot!(config_error("\"vocab_size\": 8000", "\"vocab_size\": \"many\""), @"");
    assert_snapshot!(config_error("\"d_model\"", "d_model"), @"");
}

#[test]
fn a_wrong_generation_configuration() {
    let folder = checkpoint(false);
    edit(&folder, "generation_config.json", "\"num_beams\": 1", "\"num_beams\": 0");
    assert_snapshot!(error_of(&folder), @"");
    let positions = ["translate", "--max-new-tokens", "257", "Hello."];
    assert_snapshot!(run(&positions).failed(1), @"");
}

#[test]
fn a_wrong_tokenizer() {
    let folder = checkpoint(false);
    fs::write(folder.path().join("tokenizer.json"), "{").unwrap();
    assert_snapshot!(error_of(&folder), @"");
    fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    assert_snapshot!(error_of(&folder), @"");
}

#[test]
fn an_engine_or_device_that_is_not_there() {
    assert_snapshot!(run(&["translate", "--engine", "tract", "--device", "cuda", "Hello."]).failed(1), @"");
    assert_snapshot!(run(&["translate", "--engine", "reference", "--device", "cuda", "Hello."]).failed(1), @"");
    let error = |engine| {
        let mut command = cognate(&["translate", "--engine", engine, "Hello."]);
        ended(command.env("ORT_DYLIB_PATH", "/no/such/libonnxruntime.so")).failed(1)
    };
    assert_snapshot!(error("ort"), @"");
    assert_eq!(error("auto"), error("ort"), "a library that is named is not passed over");
}

#[test]
fn cuda_where_there_is_none_is_no_silent_run_on_the_processor() {
    // Where there is a GPU, the tests of CUDA are asked for.
    if std::env::var_os("COGNATE_TEST_CUDA").is_some() {
        return;
    }
    for engine in ["ort", "auto"] {
        let error = run(&["translate", "--engine", engine, "--device", "cuda", "Hello."]).failed(1);
        assert!(error.starts_with("cognate: error: ") && error.contains("cargo xtask onnxruntime"), "{error}");
    }
}

#[test]
fn a_wrong_input() {
    assert_snapshot!(run(&["translate", "--input", "no/such/text.en"]).failed(1), @"");
    assert_snapshot!(run(&["translate", "--input", "testdata"]).failed(1), @"");
    let ended = run_with(&["translate", "--engine", "tract"], b"A dog.\n\xff\nA cat.\n");
    assert_eq!((ended.status, ended.out.lines().count()), (Some(1), 1), "what comes before is translated");
    assert_snapshot!(ended.err, @"");
}

#[test]
fn a_wrong_output() {
    assert_snapshot!(run(&["translate", "--output", "no/such/text.de", "Hello."]).failed(1), @"");
    assert_snapshot!(run(&["translate", "--output", "testdata", "Hello."]).failed(1), @"");
}

#[test]
fn a_wrong_export() {
    let bundled = bundled_checkpoint();
    let bundled = bundled.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let out = path.to_str().unwrap();
    let error = |args: &[&str]| with_dir(&run(args).failed(1), &path);
    assert_snapshot!(error(&["export", "preset:tiny", out]), @"");
    fs::write(path.join("letter.txt"), "dear").unwrap();
    assert_snapshot!(error(&["export", "preset:tiny", out, "--force"]), @"");
    assert_eq!(fs::read_to_string(path.join("letter.txt")).unwrap(), "dear");
    fs::remove_file(path.join("letter.txt")).unwrap();

    run(&["export", "preset:tiny", out, "--force", "--no-verify"]).ok();
    assert_snapshot!(error(&["export", out, "other"]), @"");
    assert_snapshot!(error_with(&folder, "reference"), @"");
    assert_snapshot!(error_of(&folder), @"");
    assert_snapshot!(error(&["show", out, "--graph", "step"]), @"");
    assert_snapshot!(error(&["verify", "testdata/multi30k-en-de"]), @"");
    assert_snapshot!(run(&["export", bundled, "other", "--seed", "2"]).failed(1).replace(bundled, "BUNDLED"), @"");

    edit(&folder, "cognate.json", "\"format_version\": 1", "\"format_version\": 2");
    assert_snapshot!(error(&["show", out]), @"");
    fs::remove_file(path.join("decoder.onnx")).unwrap();
    fs::remove_file(path.join("cognate.json")).unwrap();
    fs::copy(bundled_checkpoint().join("tokenizer.json"), path.join("tokenizer.json")).unwrap();
    assert_snapshot!(error_of(&folder), @"");
    assert_snapshot!(error(&["show", "Cargo.lock"]), @"");
}
