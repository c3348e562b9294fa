//! Everything that is refused, with its message.

use crate::{checkpoint, cognate, edit, ended, run, run_with, with_dir};
use cognate_testing::{bundled_checkpoint, make_speech_model, testdata};
use insta::assert_snapshot;
use std::fs;
use tempfile::TempDir;

/// The error of translating with the model in `folder`.
fn error_of(folder: &TempDir) -> String {
    error_with(folder, "tract")
}

fn error_with(folder: &TempDir, engine: &str) -> String {
    let model = folder.path().to_str().unwrap();
    with_dir(
        &run(&["translate", "--engine", engine, "--model", model, "Hello."]).failed(1),
        folder.path(),
    )
}

/// The error with another text in `config.json`.
fn config_error(from: &str, to: &str) -> String {
    let folder = checkpoint(false);
    edit(&folder, "config.json", from, to);
    error_of(&folder)
}

#[test]
fn a_wrong_command_line() {
    assert_snapshot!(run(&["translate", "--engine", "onnx", "Hello."]).failed(2), @"
    error: invalid value 'onnx' for '--engine <ENGINE>'
      [possible values: auto, reference, tract, ort]

    For more information, try '--help'.
    ");
    assert_snapshot!(run(&["translate", "--threads", "0", "Hello."]).failed(2), @"
    error: invalid value '0' for '--threads <N>': expected a number from 1 to 1024

    For more information, try '--help'.
    ");
    assert_snapshot!(run(&["translate", "--beams", "many", "Hello."]).failed(2), @"
    error: invalid value 'many' for '--beams <N>': expected a number from 1 to 256

    For more information, try '--help'.
    ");
    let sampled = ["translate", "--sample", "--temperature", "-1", "Hello."];
    assert_snapshot!(run(&sampled).failed(2), @"
    error: invalid value '-1' for '--temperature <X>': expected a number above 0

    For more information, try '--help'.
    ");
    let clips = |clips: &str| {
        let speech = tempfile::tempdir().unwrap();
        make_speech_model(speech.path());
        let model = speech.path().to_str().unwrap();
        let clip = testdata("audio/clip.wav");
        let ended = run(&[
            "transcribe",
            "--model",
            model,
            "--clip-timestamps",
            clips,
            clip.to_str().unwrap(),
        ]);
        ended.failed(1)
    };
    assert_snapshot!(clips("-3,5"), @"cognate: error: --clip-timestamps: expected times in order, in seconds, and clips with a length, found [-3.0, 5.0]");
    assert_snapshot!(clips("2.9,2.9"), @"cognate: error: --clip-timestamps: expected times in order, in seconds, and clips with a length, found [2.9, 2.9]");
    assert_snapshot!(run(&["translate", "--input", "text.en", "Hello."]).failed(2), @"
    error: the argument '--input <FILE>' cannot be used with '[TEXT]...'

    Usage: cognate translate --input <FILE> [TEXT]...

    For more information, try '--help'.
    ");
}

#[test]
fn a_model_that_is_not_there() {
    assert_snapshot!(run(&["translate", "--model", "no/such/model", "Hello."]).failed(1), @"cognate: error: no/such/model: no such file or folder; expected the folder of a checkpoint (config.json, model.safetensors, tokenizer files) or of an export (encoder.onnx, decoder.onnx, config.json, tokenizer files); models are not downloaded");
    assert_snapshot!(ended(cognate(&["translate", "Hello."]).env("COGNATE_MODEL", "no/such/model")).failed(1), @"cognate: error: COGNATE_MODEL: no/such/model: no such file or folder; expected the folder of a checkpoint (config.json, model.safetensors, tokenizer files) or of an export (encoder.onnx, decoder.onnx, config.json, tokenizer files); models are not downloaded");
    assert_snapshot!(run(&["translate", "--model", "testdata", "Hello."]).failed(1), @"cognate: error: testdata: contains no model; expected a checkpoint (config.json, model.safetensors, tokenizer files) or an export (encoder.onnx, decoder.onnx, config.json, tokenizer files)");
    assert_snapshot!(run(&["translate", "--model", "preset:tiny", "Hello."]).failed(1), @"cognate: error: preset:tiny: has random weights and no tokenizer; expected a checkpoint or an export");
    assert_snapshot!(run(&["export", "preset:huge", "out"]).failed(1), @"cognate: error: preset:huge: no such preset; expected one of preset:tiny, preset:base, preset:big");
    assert_snapshot!(run(&["translate", "--model", "Cargo.toml", "Hello."]).failed(1), @"cognate: error: Cargo.toml: is a file; expected the folder of a checkpoint or of an export");
}

#[test]
fn weights_in_a_form_that_is_not_read() {
    let folder = checkpoint(false);
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert_snapshot!(error_of(&folder), @"cognate: error: DIR: model.safetensors is missing; expected a checkpoint: config.json, model.safetensors, tokenizer files");
    fs::write(folder.path().join("pytorch_model.bin"), "").unwrap();
    assert_snapshot!(error_of(&folder), @r#"cognate: error: DIR: the weights are in pytorch_model.bin, a pickle, which can run code and is never read; convert it with transformers: python -c "from transformers import AutoModelForSeq2SeqLM as M; M.from_pretrained('DIR').save_pretrained('DIR')""#);
    fs::write(
        folder.path().join("model.safetensors.index.json"),
        r#"{"weight_map": {"shared.weight": "model-00001-of-00002.safetensors"}}"#,
    )
    .unwrap();
    assert_snapshot!(error_of(&folder), @"
    cognate: error: DIR/model.safetensors.index.json: the checkpoint is incomplete
      model-00001-of-00002.safetensors: missing (1 of the tensors)
    ");
}

#[test]
fn a_truncated_weights_file() {
    let folder = checkpoint(true);
    let weights =
        fs::File::options().write(true).open(folder.path().join("model.safetensors")).unwrap();
    weights.set_len(1_000_000).unwrap();
    assert_snapshot!(error_of(&folder), @"cognate: error: DIR/model.safetensors: not a safetensors file (1000000 bytes): incomplete metadata, file not fully covered; is it complete?");
    weights.set_len(100).unwrap();
    assert_snapshot!(error_of(&folder), @"cognate: error: DIR/model.safetensors: not a safetensors file (100 bytes): invalid header length; is it complete?");
}

#[test]
fn weights_of_another_shape() {
    let folder = checkpoint(true);
    edit(&folder, "config.json", "\"decoder_ffn_dim\": 256", "\"decoder_ffn_dim\": 512");
    let error = error_of(&folder);
    assert_snapshot!(error.lines().take(3).collect::<Vec<_>>().join("\n"), @"
    cognate: error: DIR/model.safetensors: weights do not match config.json
      model.decoder.layers.0.fc1.weight: expected [512, 128], found [256, 128]
      model.decoder.layers.0.fc1.bias: expected [512], found [256]
    ");
}

#[test]
fn a_wrong_configuration() {
    assert_snapshot!(config_error("\"d_model\": 128", "\"d_model\": 127"), @"
    cognate: error: DIR/config.json: 2 invalid fields
      d_model 127 is not divisible by encoder_attention_heads 4
      d_model 127 is not divisible by decoder_attention_heads 4
    ");
    assert_snapshot!(config_error("\"marian\"", "\"opus\""), @r#"cognate: error: DIR/config.json: model_type "opus" is not supported; expected one of bart, bert, bert-generation, blenderbot, blenderbot-small, camembert, cognate, deit, distilbert, gemma, gemma2, gpt2, llama, m2m_100, marian, mbart, mistral, mpnet, mt5, opt, pegasus, plbart, qwen2, roberta, t5, t5gemma, trocr, umt5, vit, whisper, xlm-roberta, encoder-decoder, vision-encoder-decoder"#);
    assert_snapshot!(config_error("\"vocab_size\": 8000", "\"vocab_size\": \"many\""), @r#"cognate: error: DIR/config.json: vocab_size: expected a whole number, found "many""#);
    assert_snapshot!(config_error("\"d_model\"", "d_model"), @"cognate: error: DIR/config.json: not JSON: key must be a string at line 7 column 3");
}

#[test]
fn a_wrong_generation_configuration() {
    let folder = checkpoint(false);
    edit(&folder, "generation_config.json", "\"num_beams\": 1", "\"num_beams\": 0");
    assert_snapshot!(error_of(&folder), @"cognate: error: DIR/generation_config.json: num_beams 0 is not supported; expected a number from 1 to 1024");
    let positions = ["translate", "--max-new-tokens", "257", "Hello."];
    assert_snapshot!(run(&positions).failed(1), @"cognate: error: --max-new-tokens: expected at most 256, the positions of the model, found 257");
}

#[test]
fn a_wrong_tokenizer() {
    let folder = checkpoint(false);
    fs::write(folder.path().join("tokenizer.json"), "{").unwrap();
    assert_snapshot!(error_of(&folder), @"cognate: error: DIR/tokenizer.json: ends too early (EOF while parsing an object at line 1 column 1); fetch the file again");
    fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    assert_snapshot!(error_of(&folder), @"cognate: error: DIR/tokenizer.json: no such file; expected Hugging Face's tokenizer.json beside the checkpoint's config.json, or else source.spm, sentencepiece.bpe.model, spiece.model, or vocab.json with merges.txt");
}

#[test]
fn an_engine_or_device_that_is_not_there() {
    assert_snapshot!(run(&["translate", "--engine", "tract", "--device", "cuda", "Hello."]).failed(1), @"cognate: error: tract: supports only the CPU; use the engine ort for `--device cuda`");
    assert_snapshot!(run(&["translate", "--engine", "reference", "--device", "cuda", "Hello."]).failed(1), @"cognate: error: reference: supports only the CPU; omit `--device cuda`");
    let error = |engine| {
        let mut command = cognate(&["translate", "--engine", engine, "Hello."]);
        ended(command.env("ORT_DYLIB_PATH", "/no/such/libonnxruntime.so")).failed(1)
    };
    assert_snapshot!(error("ort"), @"cognate: error: ORT_DYLIB_PATH: /no/such/libonnxruntime.so: expected the library of ONNX Runtime 1.24 or newer, found nothing: No such file or directory (os error 2)");
    assert_eq!(error("auto"), error("ort"), "a library that is named is not passed over");
}

#[test]
fn cuda_where_there_is_none_is_no_silent_run_on_the_processor() {
    for engine in ["ort", "auto"] {
        let ended = run(&["translate", "-v", "--engine", engine, "--device", "cuda", "Hello."]);
        if ended.status == Some(0) {
            assert!(
                ended.err.contains("on ONNX Runtime")
                    && ended.err.contains("CUDAExecutionProvider"),
                "{}",
                ended.err
            );
        } else {
            let error = ended.failed(1);
            assert!(error.starts_with("cognate: error: ort: "), "{error}");
        }
    }
}

#[test]
fn a_wrong_input() {
    assert_snapshot!(run(&["translate", "--input", "no/such/text.en"]).failed(1), @"cognate: error: --input: no/such/text.en: cannot be read: No such file or directory (os error 2)");
    assert_snapshot!(run(&["translate", "--input", "testdata"]).failed(1), @"cognate: error: --input: testdata: is a folder; expected a text file, one sentence a line");
    let ended = run_with(&["translate", "--engine", "tract"], b"A dog.\n\xff\nA cat.\n");
    assert_eq!(
        (ended.status, ended.out.lines().count()),
        (Some(1), 1),
        "what comes before is translated"
    );
    assert_snapshot!(ended.err, @"cognate: error: stdin: line 2: not UTF-8 at byte 1; convert the file to UTF-8");
}

#[test]
fn a_wrong_output() {
    assert_snapshot!(run(&["translate", "--output", "no/such/text.de", "Hello."]).failed(1), @"cognate: error: --output: no/such/text.de: there is no folder no/such; create it first");
    assert_snapshot!(run(&["translate", "--output", "testdata", "Hello."]).failed(1), @"cognate: error: --output: testdata: is a folder; expected a file");
}

#[test]
fn a_wrong_export() {
    let bundled = bundled_checkpoint();
    let bundled = bundled.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let out = path.to_str().unwrap();
    let error = |args: &[&str]| with_dir(&run(args).failed(1), &path);
    assert_snapshot!(error(&["export", "preset:tiny", out]), @"cognate: error: DIR: exists already; pass --force to replace it");
    fs::write(path.join("letter.txt"), "dear").unwrap();
    assert_snapshot!(error(&["export", "preset:tiny", out, "--force"]), @"cognate: error: DIR: contains letter.txt; only earlier exports are replaced");
    assert_eq!(fs::read_to_string(path.join("letter.txt")).unwrap(), "dear");
    fs::remove_file(path.join("letter.txt")).unwrap();

    assert_snapshot!(run(&["export", bundled, "other", "--seed", "2"]).failed(1).replace(bundled, "BUNDLED"), @"cognate: error: --seed: BUNDLED is a checkpoint, whose weights are given; leave it out, or export preset:tiny, preset:base or preset:big");
}

#[test]
fn a_wrong_exported_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let out = path.to_str().unwrap();
    let error = |args: &[&str]| with_dir(&run(args).failed(1), path);
    run(&["export", "preset:tiny", out, "--force", "--no-verify"]).ok();
    assert_snapshot!(error_of(&folder), @"cognate: error: DIR/tokenizer.json: no such file; expected Hugging Face's tokenizer.json beside the checkpoint's config.json, or else source.spm, sentencepiece.bpe.model, spiece.model, or vocab.json with merges.txt");
    assert_snapshot!(error(&["export", out, "other"]), @"cognate: error: DIR: is an exported folder; expected a checkpoint: config.json, model.safetensors, tokenizer files");
    assert_snapshot!(error(&["show", out, "--graph", "step"]), @"cognate: error: --graph: expected a checkpoint or a preset, found ONNX: DIR; pass the checkpoint that it was exported from");
    assert_snapshot!(error(&["verify", "testdata/multi30k-en-de"]), @"cognate: error: testdata/multi30k-en-de: expected the folder of an export; `cognate export` makes one and verifies it");
    assert_snapshot!(error(&["show", "Cargo.lock"]), @r#"cognate: error: Cargo.lock: not an ONNX model: decoding failed at "7""#);

    fs::copy(bundled_checkpoint().join("tokenizer.json"), path.join("tokenizer.json")).unwrap();
    assert_snapshot!(error_with(&folder, "reference"), @"cognate: error: DIR: --engine reference evaluates the graphs of a checkpoint, and this is an export; give the checkpoint that it was made from, or choose tract or ort");
    edit(&folder, "config.json", "\"vocab_size\": 8000", "\"vocab_size\": 20");
    assert_snapshot!(error_of(&folder), @r#"cognate: error: DIR: vocab_size in config.json is 20, but tokenizer.json needs at least 8000 ("▁man" has the id 20): tokenizer and model do not belong together; take all files from one checkpoint"#);
    edit(&folder, "cognate.json", "\"precision\": \"f32\"", "\"precision\": \"int9\"");
    assert_snapshot!(error_of(&folder), @"cognate: error: DIR/cognate.json: precision: expected f32, f16, bf16, int8, int8-tensor, int8-block, int4, found int9");
    edit(&folder, "cognate.json", "\"precision\": \"int9\"", "\"precision\": null");
    let found = error_of(&folder);
    let expected =
        "DIR/cognate.json: not the manifest of an export: invalid type: null, expected a string";
    assert!(found.contains(expected), "{found}");
    edit(&folder, "cognate.json", "\"precision\": null", "\"precision\": \"f32\"");
    edit(&folder, "cognate.json", "\"layout\": \"cognate\"", "\"layout\": \"cubic\"");
    assert_snapshot!(error_of(&folder), @"cognate: error: DIR/cognate.json: layout: expected cognate, hf, shared-cache, generate, triton, found cubic");
    edit(&folder, "cognate.json", "\"layout\": \"cubic\"", "\"layout\": \"cognate\"");
    edit(&folder, "cognate.json", "\"format_version\": 1", "\"format_version\": 2");
    assert_snapshot!(error(&["show", out]), @"cognate: error: DIR/cognate.json: format_version 2 is newer than this program, which reads 1; update it");
    fs::remove_file(path.join("decoder.onnx")).unwrap();
    fs::remove_file(path.join("cognate.json")).unwrap();
    edit(&folder, "config.json", "\"vocab_size\": 20", "\"vocab_size\": 8000");
    assert_snapshot!(error_of(&folder), @"cognate: error: DIR/decoder.onnx: expected an exported ONNX file, found nothing");
}
