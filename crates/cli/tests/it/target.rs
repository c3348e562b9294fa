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
fn the_form_in_half_precision_is_for_gpus() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("out").to_str().unwrap().to_owned();
    let export =
        ["export", "testdata/multi30k-en-de", &model, "--target", "ort", "--precision", "f16"];
    let ended = run(&export);
    assert_snapshot!(with_dir(&ended.err, folder.path()), @"cognate: warning: not verified, because only a GPU runs it; `cognate verify DIR/out --checkpoint testdata/multi30k-en-de --device cuda` verifies it");
    ended.ok();
    let refused = |args: &[&str]| with_dir(&run(args).failed(1), folder.path());
    let [on_ort, on_tract] = ["ort", "tract"]
        .map(|engine| refused(&["translate", "--model", &model, "--engine", engine, "a"]));
    assert_eq!(on_ort, on_tract);
    assert_snapshot!(on_ort, @"cognate: error: DIR/out: was exported with --target ort --precision f16, for a GPU only, found --device cpu; pass --device cuda, or export it in f32");
    assert_snapshot!(refused(&["verify", &model, "--checkpoint", "testdata/multi30k-en-de"]), @"cognate: error: DIR/out: was exported with --target ort --precision f16, for a GPU only, found --device cpu; pass --device cuda, or export it in f32");
    let valid = "testdata/parallel/valid";
    let data = ["--force", "--data", &format!("{valid}.en"), &format!("{valid}.de")];
    assert_snapshot!(refused(&[&export[..], &data].concat()), @"cognate: error: --data: target ort in f16 is for a GPU, on which nothing is compared; leave it out");
    let in_integers = exported(&folder, "int8", &["--target", "ort", "--precision", "int8"]);
    assert_snapshot!(refused(&["translate", "--model", &in_integers, "--engine", "ort", "--device", "cuda", "a"]), @"cognate: error: DIR/int8: was exported in int8, which is for the CPU, found --device cuda; export it in f16");
}

/// Greedy and with beams; sentences of different lengths leave one after the other.
#[test]
fn gpus_translate_as_the_processor_does() {
    if !cognate_testing::cuda() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for precision in ["f32", "f16"] {
        let model = exported(&folder, precision, &["--target", "ort", "--precision", precision]);
        let checkpoint = "testdata/multi30k-en-de";
        run(&["verify", &model, "--checkpoint", checkpoint, "--device", "cuda"]).ok();
        for beams in ["1", "4"] {
            let text = ["translate", "--input", "testdata/parallel/valid.en", "--beams", beams];
            let on_gpu = run(&[&text[..], &["--model", &model, "--device", "cuda"]].concat()).ok();
            assert_eq!(on_gpu, run(&text).ok(), "{precision}, {beams} beams");
        }
        // Steps that repeat are replayed, those of two lengths in turn.
        let repeated = folder.path().join("repeated.en").to_str().unwrap().to_owned();
        std::fs::write(&repeated, "A dog runs on the beach.\nTwo men.\n".repeat(8)).unwrap();
        for beams in ["1", "4"] {
            let text = ["translate", "--beams", beams, "--batch-size", "1", "--input", &repeated];
            let on_gpu = run(&[&text[..], &["--model", &model, "--device", "cuda"]].concat()).ok();
            assert_eq!(on_gpu, run(&text).ok(), "{precision}, {beams} beams, repeated");
        }
    }
}

#[test]
fn contradictions_are_refused() {
    let refused =
        |args: &[&str]| run(&[&["export", "testdata/multi30k-en-de"], args].concat()).failed(1);
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
