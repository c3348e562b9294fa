//! `cognate generate`: texts that continue prompts, as transformers continues them.

use crate::{run, run_with, with_dir};
use cognate_runtime::{Device, Engine};
use cognate_testing::{bundled_checkpoint, testdata};
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;
use std::path::Path;

fn model() -> String {
    testdata("decoders/text").to_str().unwrap().to_owned()
}

/// The prompts, and transformers' texts after them: greedy, and those of three beams.
fn texts() -> Vec<(String, String, Vec<String>)> {
    let file: Value =
        serde_json::from_slice(&fs::read(testdata("decoders/text/texts.json")).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let row = |row: &Value| {
        let beams = row["beams"].as_array().unwrap().iter().map(text).collect();
        (text(&row["prompt"]), text(&row["greedy"]), beams)
    };
    file.as_array().unwrap().iter().map(row).collect()
}

/// The command on tract, with further arguments.
fn generate<'a>(model: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    generate_on("tract", model, args)
}

fn generate_on<'a>(engine: &'a str, model: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["generate", "--engine", engine, "--max-new-tokens", "10", "--model", model], args].concat()
}

/// What of the greedy texts and of beams is not transformers', for a folder.
fn check(engine: &str, folder: &str) {
    let generate = |folder, args| generate_on(engine, folder, args);
    let texts = texts();
    let prompts: Vec<_> = texts.iter().map(|(prompt, ..)| prompt.as_str()).collect();
    let greedy: String = texts.iter().map(|(_, greedy, _)| format!("{greedy}\n")).collect();
    assert_eq!(run(&generate(folder, &prompts)).ok(), greedy, "{folder}, together");
    assert_eq!(
        run_with(&generate(folder, &["--batch-size", "1"]), prompts.join("\n")).ok(),
        greedy,
        "{folder}, one by one"
    );
    assert_eq!(
        run_with(&generate(folder, &["--stream"]), prompts.join("\n")).ok(),
        greedy,
        "{folder}, streamed"
    );
    let numbered = texts.iter().zip(1..).flat_map(|((_, _, beams), number)| {
        beams.iter().map(move |text| format!("{number}\t{text}\n"))
    });
    let n_best =
        run(&generate(folder, &[&["--beams", "3", "--n-best", "3"], prompts.as_slice()].concat()))
            .ok();
    assert_eq!(n_best, numbered.collect::<String>(), "{folder}, beams");
}

#[test]
fn texts_are_transformers_in_every_layout() {
    let model = model();
    check("tract", &model);
    let folder = tempfile::tempdir().unwrap();
    for layout in ["cognate", "hf"] {
        let out = folder.path().join(layout);
        let out = out.to_str().unwrap();
        run(&["export", &model, out, "--layout", layout]).ok();
        check("tract", out);
        run(&["verify", out]).ok();
    }
    for file in ["cognate/model.onnx", "hf/onnx/model.onnx"] {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
}

#[test]
fn other_precisions_pass_their_verification() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    for precision in ["f16", "int8"] {
        let out = folder.path().join(precision);
        let out = out.to_str().unwrap();
        run(&["export", &model, out, "--precision", precision]).ok();
        run(&["verify", out, "--checkpoint", &model]).ok();
        assert_eq!(run(&generate(out, &["A man is", "a"])).ok().lines().count(), 2, "{precision}");
    }
}

/// The form for ONNX Runtime alone, in every precision; and checkpoints, which take that form in
/// memory.
#[test]
fn texts_are_transformers_for_onnx_runtime_alone() {
    if let Err(why) = Engine::Ort.open(Device::Cpu) {
        return cognate_testing::skip(&why.to_string());
    }
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    check("ort", &model);
    for precision in ["f32", "bf16", "int8", "int8-tensor", "int8-block", "int4"] {
        let out = folder.path().join(precision);
        let out = out.to_str().unwrap();
        // 4 bits are too few for a model of width 16.
        let verified = if precision == "int4" { &["--no-verify"][..] } else { &[] };
        run(&[&["export", &model, out, "--target", "ort", "--precision", precision], verified]
            .concat())
        .ok();
        assert!(Path::new(out).join("model_ort.onnx").is_file());
        let lines = run(&generate_on("ort", out, &["A man is", "a"])).ok();
        assert_eq!(lines.lines().count(), 2, "{precision}");
        if precision == "f32" {
            check("ort", out);
            check("tract", out);
            let verified = run(&["verify", out, "--checkpoint", &model]).ok();
            assert!(verified.contains("with Cognate's operators"), "{verified}");
        }
    }
    let out = folder.path().join("f32");
    let out = out.to_str().unwrap();
    let refused =
        |args: &[&str]| with_dir(run(args).failed(1).lines().last().unwrap(), folder.path());
    assert_snapshot!(refused(&["translate", "--model", out, "a"]), @"cognate: error: DIR/f32: a decoder alone, which does not translate; `cognate generate` continues texts by it");
    assert_snapshot!(refused(&generate_on("ort", out, &[&"a ".repeat(60)])), @"cognate: error: sentence 1: the prompt has 61 tokens; expected at most 48, the positions of the model");
    assert_snapshot!(refused(&["export", &model, out, "--force", "--target", "ort", "--precision", "f16"]), @"cognate: error: --precision: target ort has f16 only for encoder-decoder models on a GPU; leave out target ort");
}

#[test]
fn json_has_tokens_and_scores() {
    let out = run(&generate(&model(), &["--json", "--scores", "a"])).ok();
    let line: Value = serde_json::from_str(out.trim_end()).unwrap();
    let best = &line["hypotheses"][0];
    assert_eq!((&line["line"], &line["text"]), (&1.into(), &texts()[3].1.as_str().into()), "{out}");
    assert_eq!(best["ids"].as_array().unwrap().len(), 10, "{out}");
    assert!(best["score"].as_f64().unwrap() < 0.0, "{out}");
}

#[test]
fn samples_depend_on_the_seed_alone() {
    let model = model();
    let sample = |seed: &str, more: &[&str]| {
        run(&generate(&model, &[&["--sample", "--seed", seed, "A man is", "a"], more].concat()))
            .ok()
    };
    assert_eq!(sample("1", &[]), sample("1", &["--batch-size", "1"]));
    assert_ne!(sample("1", &[]), sample("2", &[]));
    assert_eq!(sample("1", &["--n-best", "3"]).lines().count(), 6);
}

#[test]
fn what_a_decoder_alone_cannot_do_is_an_error() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    let page = format!("{out}.html");
    let (long, pairs) = ("a ".repeat(60), folder.path().join("pairs.tsv"));
    fs::write(&pairs, "a\tb\n").unwrap();
    let pairs = pairs.to_str().unwrap().to_owned();
    let bundled = bundled_checkpoint();
    let root = Path::new(&model).ancestors().nth(3).unwrap();
    let mut errors = String::new();
    for args in [
        &["translate", "--model", &model, "a"][..],
        &["score", "--model", &model, "--input", &pairs],
        &["attend", "--model", &model, "a", "--out", &page],
        &["explain", "--model", &model, "a"],
        &["embed", "--model", &model, "a"],
        &["generate", "--model", bundled.to_str().unwrap(), "a"],
        &["generate", "--model", &model, &long],
        &["generate", "--model", &model, "--alignments", "a"],
        &["generate", "--model", &model, "--target-prefix", "b", "a"],
        &["generate", "--model", &model, "--target-prefixes", "b", "a"],
        &["generate", "--model", &model, "--beams", "2", "--stream", "a"],
        &["export", &model, out, "--layout", "generate"],
        &["export", &model, out, "--part", "encoder"],
        &["export-training", &model, out],
    ] {
        let ended = run(args);
        assert_eq!((ended.status, ended.out.as_str()), (Some(1), ""), "{args:?}: {}", ended.err);
        errors += &format!("{}\n", with_dir(&with_dir(ended.err.trim_end(), root), folder.path()));
    }
    assert!(!Path::new(out).exists());
    assert_snapshot!("refused", errors);
}

#[test]
fn show_describes_it() {
    let out = run(&["show", &model()]).ok();
    let facts: Vec<_> = out.lines().take_while(|line| !line.is_empty()).collect();
    assert_snapshot!(
        "shown",
        with_dir(&facts.join("\n"), Path::new(&model()).ancestors().nth(3).unwrap())
    );
}
