//! Exports for ONNX Runtime alone, and in 8-bit integers.

use crate::{SENTENCES, run, with_dir};
use cognate_runtime::{Device, Engine};
use insta::assert_snapshot;

/// The bundled checkpoint exported with `args`, without verification, to `name` in `folder`.
fn exported(folder: &tempfile::TempDir, name: &str, args: &[&str]) -> String {
    let out = folder.path().join(name).to_str().unwrap().to_owned();
    run(&[&["export", "testdata/multi30k-en-de", &out, "--no-verify"], args].concat()).ok();
    out
}

#[test]
fn the_form_for_onnx_runtime_says_so_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let out = exported(&folder, "out", &["--target", "ort"]);
    let translated = |model: &str| {
        run(&["translate", "--model", model, "--engine", "tract", "A man is riding a bicycle."])
    };
    assert_eq!(translated(&out).ok(), "Ein Mann fährt Fahrrad.\n");
    let blocks = exported(&folder, "blocks", &["--target", "ort", "--precision", "int4"]);
    assert_snapshot!(with_dir(&translated(&blocks).failed(1), folder.path()), @"cognate: error: DIR/blocks/encoder.onnx: was exported with --target ort; tract runs such a file only if Cognate's operators replace all of ONNX Runtime's, and they do not replace MatMulNBits; export it without --target ort, or choose --engine ort (`cargo xtask onnxruntime` installs the library)");
    let verified = run(&["verify", &out]).failed(1);
    assert_snapshot!(with_dir(&verified, folder.path()), @"cognate: error: DIR/out: its weights are joined or rounded, and say nothing about the model; pass --checkpoint with what it was exported from");
    let shown = run(&["show", &out]).ok();
    assert!(
        shown.contains("shared-cache layout, f32") && shown.contains("com.microsoft 1"),
        "{shown}"
    );
}

#[test]
fn contradictions_are_refused() {
    let refused =
        |args: &[&str]| run(&[&["export", "testdata/multi30k-en-de"], args].concat()).failed(1);
    assert_snapshot!(refused(&["out", "--target", "ort", "--precision", "f16"]), @"cognate: error: --precision: ONNX Runtime's attention to shared caches computes in f32, found f16; leave out target ort");
    assert_snapshot!(refused(&["out", "--target", "ort", "--layout", "hf"]), @"cognate: error: --target: ort has a layout of its own; leave out layout hf");
    assert_snapshot!(refused(&["--in-place", "--precision", "int8"]), @"cognate: error: --precision: expected f32, the type in which graphs in place read the weights, found int8; write a folder instead");
}

#[test]
fn blocks_and_bfloat16_are_for_onnx_runtime_alone() {
    let refused = |args: &[&str], status| {
        run(&[&["export", "testdata/multi30k-en-de", "out"], args].concat()).failed(status)
    };
    assert_snapshot!(refused(&["--precision", "int4"], 1), @"cognate: error: --precision: only ONNX Runtime multiplies weights in blocks, found int4; choose target ort, or precision int8");
    assert_snapshot!(refused(&["--precision", "int8-block", "--layout", "hf"], 1), @"cognate: error: --precision: only ONNX Runtime multiplies weights in blocks, found int8-block; instead of layout hf choose target ort, or precision int8");
    assert_snapshot!(refused(&["--precision", "bf16"], 1), @"cognate: error: --precision: tract's own operators do not read bfloat16, found bf16; choose target ort, or precision f16");
    assert_snapshot!(refused(&["--precision", "bf16", "--layout", "hf"], 1), @"cognate: error: --precision: tract's own operators do not read bfloat16, found bf16; instead of layout hf choose target ort, or precision f16");
    assert_snapshot!(refused(&["--precision", "int8", "--block-size", "32"], 1), @"cognate: error: --block-size: expected the precision int8-block or int4 with it, found int8, which has no blocks");
    assert_snapshot!(refused(&["--target", "ort", "--precision", "int4", "--block-size", "48"], 2), @"
    error: invalid value '48' for '--block-size <N>': expected 16, 32, 64 or 128

    For more information, try '--help'.
    ");
}

/// Sentences together, alone, with beams and by several workers, in integers and in bfloat16: what
/// one becomes does not depend on others.
#[test]
fn a_rounded_translation_does_not_depend_on_its_batch() {
    let folder = tempfile::tempdir().unwrap();
    let mut forms = vec![("tract", exported(&folder, "portable", &["--precision", "int8"]))];
    match Engine::Ort.open(Device::Cpu) {
        Ok(_) => {
            let precisions =
                [&["int8"][..], &["int8-block", "--block-size", "128"], &["int4"], &["bf16"]];
            let export = |args: &[&str]| {
                exported(
                    &folder,
                    &args.concat(),
                    &[&["--target", "ort", "--precision"], args].concat(),
                )
            };
            forms.extend(precisions.map(|args| ("ort", export(args))));
            for ((_, model), form) in forms[1..].iter().zip([
                "int8,",
                "int8-block in blocks of 128,",
                "int4 in blocks of 32,",
                "bf16,",
            ]) {
                let shown = run(&["show", model]).ok();
                assert!(
                    shown.contains(&format!("shared-cache layout, {form} opset")),
                    "{form}: {shown}"
                );
            }
        }
        Err(error) => cognate_testing::skip(&error.to_string()),
    }
    for (engine, model) in &forms {
        for beams in ["1", "4"] {
            let translate = |sentences: &[&str]| {
                let args = [
                    "translate",
                    "--engine",
                    engine,
                    "--model",
                    model,
                    "--beams",
                    beams,
                    "--scores",
                ];
                run(&[&args, sentences].concat()).ok()
            };
            let alone: Vec<_> = SENTENCES.iter().map(|sentence| translate(&[sentence])).collect();
            let text =
                |line: &str| line.rsplit_once('\t').map_or(line, |(text, _)| text).to_owned();
            let texts = |out: &str| out.lines().map(text).collect::<Vec<_>>();
            assert_eq!(
                texts(&translate(&SENTENCES)),
                texts(&alone.concat()),
                "{engine}, {beams} beams"
            );
        }
    }
}
