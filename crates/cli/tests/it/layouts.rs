//! Every family in both layouts.

use crate::{SENTENCES, run, with_dir};
use cognate_export::read_model;
use cognate_testing::{bundled_checkpoint, golden, golden_models};
use insta::assert_snapshot;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn export_unverified(model: &Path, out: &Path, layout: &str) {
    let [model, out] = [model, out].map(|path| path.to_str().unwrap());
    run(&["export", model, out, "--layout", layout, "--no-verify"]).ok();
}

/// Exported and verified on every engine that is here: numbers against the f64 reference, and
/// decoded tokens.
#[test]
fn every_family_is_verified_in_the_layout_of_hugging_face() {
    // Of the strange ones, two whose heads are not as wide as Optimum takes them for, and a family
    // without a usual one.
    let strange =
        ["strange/t5-asymmetric", "strange/umt5-tied", "strange/t5gemma"].map(String::from);
    let mut failures = Vec::new();
    for name in golden_models().into_iter().filter(|name| !name.contains('/')).chain(strange) {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let ended = run(&[
            "export",
            golden(&name).to_str().unwrap(),
            out.to_str().unwrap(),
            "--layout",
            "hf",
        ]);
        if ended.status != Some(0) || !ended.out.contains("tract 0.23.9: passed") {
            failures.push(format!("{name}\n{}{}", ended.out, ended.err));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_layout_of_hugging_face_is_a_folder_that_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let out = path.to_str().unwrap();
    let bundled = bundled_checkpoint();
    let bundled = bundled.to_str().unwrap();
    let exported = || run(&["export", bundled, out, "--layout", "hf", "--no-verify", "--force"]);
    exported().ok();
    // What an export wrote another may replace, subfolder and all.
    exported().ok();
    let names = |folder: &Path| -> BTreeSet<String> {
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    assert_snapshot!(names(&path).into_iter().chain(names(&path.join("onnx"))).collect::<Vec<_>>().join(" "), @"cognate.json config.json generation_config.json onnx special_tokens_map.json tokenizer.json tokenizer_config.json decoder_model_merged.onnx decoder_model_merged.onnx_data encoder_model.onnx encoder_model.onnx_data");
    let config: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["transformers.js_config"]["use_external_data_format"], true);
    assert_eq!(config["d_model"], 128);

    for arguments in [&["--beams", "1"][..], &["--beams", "3"]] {
        let translated = |model| {
            run(&[&["translate", "--engine", "tract", "--model", model], arguments, &SENTENCES]
                .concat())
            .ok()
        };
        assert_eq!(translated(out), translated(bundled), "{arguments:?}");
    }

    // A file that is not ours stays, wherever it is.
    fs::write(path.join("onnx/notes.txt"), "mine").unwrap();
    assert_snapshot!(with_dir(&exported().failed(1), folder.path()), @"cognate: error: DIR/out: contains onnx/notes.txt; only earlier exports are replaced");
}

#[test]
fn no_weight_is_stored_twice() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    // Source, target and output are one table in it.
    export_unverified(&golden("t5"), &out, "hf");
    let path = out.join("onnx/decoder_model_merged.onnx");
    let graph = read_model(&path).unwrap().graph.unwrap();
    let data = fs::read(path.with_extension("onnx_data")).unwrap();
    let mut places = BTreeSet::new();
    for tensor in graph.initializer.iter().filter(|tensor| !tensor.external_data.is_empty()) {
        let number = |key: &str| {
            tensor
                .external_data
                .iter()
                .find(|entry| entry.key == key)
                .unwrap()
                .value
                .parse::<usize>()
                .unwrap()
        };
        places.insert((number("offset"), number("length")));
    }
    let contents: BTreeSet<_> =
        places.iter().map(|&(offset, length)| &data[offset..offset + length]).collect();
    assert_eq!(contents.len(), places.len(), "two places hold the same bytes");
    let stored: usize = places.iter().map(|(_, length)| length).sum();
    assert!(
        places.len() > 20 && data.len() < stored + 64 * places.len(),
        "{} bytes for {stored} of weights",
        data.len()
    );
}

#[test]
fn wrong_layouts_are_refused() {
    assert_snapshot!(run(&["export", "preset:tiny", "out", "--layout", "optimum"]).failed(2).lines().next().unwrap(), @"error: invalid value 'optimum' for '--layout <LAYOUT>': expected cognate, hf, generate, triton, found optimum");
    assert_snapshot!(run(&["export", "testdata/golden/t5", "--in-place", "--layout", "hf"]).failed(1), @"cognate: error: --in-place: writes the layouts cognate and generate only, because graphs and weights have to lie in one folder; write another layout or target to a folder of its own");
}

/// A folder such as Optimum makes: no account of ours, and the graphs beside the configuration.
#[test]
fn a_folder_of_optimum_is_translated_with() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
    export_unverified(&bundled_checkpoint(), &ours, "hf");
    fs::create_dir(&theirs).unwrap();
    let files = fs::read_dir(&ours)
        .unwrap()
        .chain(fs::read_dir(ours.join("onnx")).unwrap())
        .map(|entry| entry.unwrap().path());
    for file in files.filter(|file| file.is_file() && !file.ends_with("cognate.json")) {
        fs::copy(&file, theirs.join(file.file_name().unwrap())).unwrap();
    }
    let model = theirs.to_str().unwrap();
    let engines = cognate_runtime::available(cognate_runtime::Device::Cpu).unwrap();
    if engines.iter().any(|engine| engine.name() == "ort") {
        let translated = |model: &[&str]| {
            run(&[&["translate", "--engine", "ort", "--beams", "3"], model, &SENTENCES].concat())
                .ok()
        };
        assert_eq!(translated(&["--model", model]), translated(&[]));
    } else {
        cognate_testing::skip("no library of ONNX Runtime; `cargo xtask onnxruntime` installs it");
    }
    let refused = |args: &[&str]| with_dir(&run(args).failed(1), folder.path());
    assert_snapshot!(refused(&["translate", "--engine", "tract", "--model", model, "Hello."]), @"cognate: error: DIR/theirs: expected decoder_model.onnx and decoder_with_past_model.onnx for tract, found decoder_model_merged.onnx, whose `If` only ONNX Runtime runs; choose --engine ort, or add these files");
    assert_snapshot!(refused(&["verify", model]), @"cognate: error: DIR/theirs: is an export of Optimum, which `cognate translate` and `cognate score` run; expected an export of `cognate export`");
    fs::remove_file(theirs.join("decoder_model_merged.onnx")).unwrap();
    assert_snapshot!(refused(&["translate", "--engine", "tract", "--model", model, "Hello."]), @"cognate: error: DIR/theirs: expected decoder_model.onnx and decoder_with_past_model.onnx for tract, found not both");
}

/// One graph that decodes: verified, and the same text as from the checkpoint.
#[test]
fn the_layout_generate_translates_alike() {
    if cognate_runtime::Ort::find().is_err() {
        return cognate_testing::skip(
            "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let (out, bundled) = (path.to_str().unwrap(), bundled_checkpoint());
    let bundled = bundled.to_str().unwrap();
    let exported = run(&["export", bundled, out, "--layout", "generate"]).ok();
    assert!(exported.contains("ONNX Runtime") && exported.contains("passed"), "{exported}");
    for arguments in [
        &["--beams", "1"][..],
        &["--beams", "4", "--n-best", "2"],
        &[
            "--beams",
            "3",
            "--length-penalty",
            "0.2",
            "--no-repeat-ngram-size",
            "2",
            "--repetition-penalty",
            "1.2",
        ],
    ] {
        let translated = |model| {
            run(&[&["translate", "--engine", "ort", "--model", model], arguments, &SENTENCES]
                .concat())
            .ok()
        };
        let strip = |text: String| {
            text.lines()
                .map(|line| line.split("\"score\"").next().unwrap_or(line).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(strip(translated(out)), strip(translated(bundled)), "{arguments:?}");
    }
    // All words of a stream come at its end.
    let greedy = |more: &[&str]| {
        run(&[&["translate", "--engine", "ort", "--model", out, "--scores", SENTENCES[1]], more]
            .concat())
        .ok()
    };
    assert_eq!(greedy(&["--stream"]), greedy(&[]));
    let sampled = |seed| {
        run(&[
            "translate",
            "--engine",
            "ort",
            "--model",
            out,
            "--sample",
            "--seed",
            seed,
            "--n-best",
            "3",
            SENTENCES[0],
        ])
        .ok()
    };
    assert_eq!(sampled("1"), sampled("1"));
    assert_ne!(sampled("1"), sampled("2"));
    let refused = |arguments: &[&str]| {
        with_dir(
            &run(&[&["translate", "--model", out, "Hello."], arguments].concat()).failed(1),
            folder.path(),
        )
    };
    assert_snapshot!(refused(&["--engine", "tract"]), @"cognate: error: DIR/out: was exported with --layout generate, whose loop tract does not run; choose --engine ort (`cargo xtask onnxruntime` installs the library), or export it without --layout generate");
    assert_snapshot!(refused(&["--engine", "ort", "--sample", "--beams", "2"]), @"cognate: error: sampling with beams, or by other filters than top_k and top_p: expected off, a constant of generate.onnx, found on; export without --layout generate");
    assert_snapshot!(refused(&["--engine", "ort", "--target-prefix", "Ein"]), @"cognate: error: sentence 1: generate: expected an export without --layout generate for a target prefix, found a graph that contains the search");
    assert_snapshot!(refused(&["--engine", "ort", "--encoder-no-repeat-ngram-size", "2"]), @"cognate: error: encoder_no_repeat_ngram_size: expected 0, a constant of generate.onnx, found 2; export without --layout generate");
}

/// The graph that decodes beside those of the Hub: verified, and opened by its name.
#[test]
fn a_graph_that_decodes_lies_beside_the_layout_hf() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let (out, bundled) = (path.to_str().unwrap(), bundled_checkpoint());
    let bundled = bundled.to_str().unwrap();
    let refused = run(&["export", bundled, out, "--with-generate"]).failed(1);
    assert_snapshot!(refused, @"cognate: error: --with-generate: expected layout hf with it, found cognate; leave it out, or choose layout generate");
    if cognate_runtime::Ort::find().is_err() {
        return cognate_testing::skip(
            "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
        );
    }
    let exported = run(&["export", bundled, out, "--layout", "hf", "--with-generate"]).ok();
    assert!(exported.contains("generate: scores") && exported.contains("passed"), "{exported}");
    let graph = path.join("onnx/generate.onnx");
    let translated = |model: &str| {
        run(&[&["translate", "--engine", "ort", "--beams", "3", "--model", model], &SENTENCES[..]]
            .concat())
        .ok()
    };
    let expected = translated(bundled);
    for model in [graph.to_str().unwrap(), out] {
        assert_eq!(translated(model), expected, "{model}");
    }
    let tract =
        run(&["translate", "--engine", "tract", "--model", graph.to_str().unwrap(), "Hello."])
            .failed(1);
    assert!(tract.contains("whose loop tract does not run"), "{tract}");
    // Without the option it goes.
    run(&["export", bundled, out, "--layout", "hf", "--no-verify", "--force"]).ok();
    assert!(!graph.exists() && path.join("onnx/encoder_model.onnx").exists());
}

/// Constant shapes in the body, too, by ONNX's own inference, which is not told what the exporter
/// knows.
#[test]
fn the_layout_generate_has_constant_shapes_on_request() {
    let Some(python) = cognate_testing::python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let (out, bundled) = (path.to_str().unwrap(), bundled_checkpoint());
    let bundled = bundled.to_str().unwrap();
    let fixed = ["--layout", "generate", "--max-batch", "2", "--max-length", "24"];
    run(&[&["export", bundled, out, "--no-verify"][..], &fixed].concat()).ok();
    let script = r#"
import onnx
model = onnx.load("out/generate.onnx", load_external_data=False)
def graphs(graph):
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)
# It does not look up constants of the graph around a body.
constants = [tensor for tensor in model.graph.initializer if not tensor.external_data]
for index, graph in enumerate(graphs(model.graph)):
    del graph.value_info[:]
    graph.initializer.extend(constants if index else [])
inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
for graph in graphs(inferred.graph):
    known = {value.name: value.type.tensor_type for value in [*graph.value_info, *graph.input, *graph.output]}
    for name in (name for node in graph.node for name in node.output if name):
        shape = known[name].shape if name in known else None
        sizes = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in shape.dim] if shape else None
        if sizes is None or not all(isinstance(size, int) for size in sizes):
            print(graph.name, name, sizes)
print(sum(1 for _ in graphs(inferred.graph)), "graphs")
"#;
    let output = std::process::Command::new(&python)
        .arg("-c")
        .arg(script)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(text.trim().ends_with(" graphs") && text.lines().count() == 1, "{text}\n{errors}");
    if cognate_runtime::Ort::find().is_err() {
        return cognate_testing::skip(
            "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
        );
    }
    // Three sentences are two batches.
    let translated = |model| {
        run(&[&["translate", "--engine", "ort", "--model", model][..], &SENTENCES, &SENTENCES[..1]]
            .concat())
        .ok()
    };
    assert_eq!(translated(out), translated(bundled));
    // Of the sentences of a verification one has 23 tokens, and nearly all have more than 3.
    for length in ["20", "3"] {
        let short = folder.path().join(length);
        let exported = ["export", bundled, short.to_str().unwrap(), "--layout", "generate"];
        let sizes = ["--max-batch", "2", "--max-length", length];
        assert!(run(&[&exported[..], &sizes].concat()).ok().contains("passed"), "{length}");
    }
    let refused = |arguments: &[&str]| {
        with_dir(
            &run(&[&["translate", "--engine", "ort", "--model", out], arguments].concat())
                .failed(1),
            folder.path(),
        )
    };
    assert_snapshot!(refused(&["--beams", "2", "Hello."]), @"cognate: error: num_beams: expected 1, a constant of generate.onnx, found 2; export without --layout generate");
    let long = refused(&[&"A man and a woman. ".repeat(9)]);
    assert!(
        long.contains(
            "max_length: expected at most 24 tokens of a source, a constant of generate.onnx, found"
        ),
        "{long}"
    );
    let refused = |arguments: &[&str]| {
        run(&[&["export", bundled, "new", "--max-batch", "2"], arguments].concat()).failed(1)
    };
    assert_snapshot!(refused(&["--max-length", "9"]), @"cognate: error: --max-batch: expected layout generate with it, found cognate");
    let long = refused(&["--max-length", "999", "--layout", "generate"]);
    assert!(long.contains("max_batch 2, max_length 999: expected at least one sentence, and from 3 to 256 positions"), "{long}");
    assert!(
        run(&[&["export", bundled, out, "--force"][..], &fixed].concat()).ok().contains("passed")
    );
}

/// In other precisions, and beside the weights of a checkpoint.
#[test]
fn the_layout_generate_has_every_portable_form() {
    if cognate_runtime::Ort::find().is_err() {
        return cognate_testing::skip(
            "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for precision in ["f16", "int8"] {
        let bundled = bundled_checkpoint();
        let out = run(&[
            "export",
            bundled.to_str().unwrap(),
            &place(precision),
            "--layout",
            "generate",
            "--precision",
            precision,
        ])
        .ok();
        assert!(out.contains("passed"), "{precision}: {out}");
        run(&["translate", "--engine", "ort", "--model", &place(precision), SENTENCES[0]]).ok();
    }
    fs::create_dir(place("own")).unwrap();
    for entry in fs::read_dir(golden("bart")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join("own").join(entry.file_name())).unwrap();
    }
    run(&["export", &place("own"), "--in-place", "--layout", "generate"]).ok();
    let verified = run(&["verify", &place("own")]).ok();
    assert!(verified.contains("passed"), "{verified}");
}

/// The examples of `onnx/README.md`.
#[test]
fn examples_decode_in_other_programs() {
    let Some(python) = cognate_testing::python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    export_unverified(&bundled_checkpoint(), &out, "generate");
    let readme =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../onnx/README.md")).unwrap();
    let example = readme.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    // The same file in ONNX's own evaluator.
    let reference = example.replace("import json, numpy, onnxruntime", "import json, numpy, onnx, onnx.reference").replace(
        "onnxruntime.InferenceSession",
        "onnx.checker.check_model('out/generate.onnx', full_check=True)\nsession = onnx.reference.ReferenceEvaluator",
    );
    let greedy = reference.replace("numpy.array(4)", "numpy.array(1)");
    for script in [example, &reference, &greedy] {
        let output = std::process::Command::new(&python)
            .arg("-c")
            .arg(script)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(
            text.trim(),
            "Ein Mann fährt Fahrrad.\nZwei Hunde spielen im Schnee.",
            "{script}\n{errors}"
        );
    }
}

/// Texts in and out of one graph, in ONNX Runtime with its package of operators for text.
#[test]
fn a_graph_reads_and_writes_texts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let (out, bundled) = (path.to_str().unwrap(), bundled_checkpoint());
    let bundled = bundled.to_str().unwrap();
    let refused = |arguments: &[&str]| {
        run(&[&["export", bundled, out, "--with-tokenizer"], arguments].concat()).failed(1)
    };
    assert_snapshot!(refused(&[]), @"cognate: error: --with-tokenizer: expected layout generate without constant shapes with it, found cognate");
    assert_snapshot!(refused(&["--layout", "generate", "--max-batch", "2", "--max-length", "9"]), @"cognate: error: --with-tokenizer: expected layout generate without constant shapes with it, found constant shapes");
    run(&["export", bundled, out, "--layout", "generate", "--with-tokenizer", "--no-verify"]).ok();
    let graph = path.join("generate_text.onnx");
    let refused = run(&["translate", "--model", graph.to_str().unwrap(), "Hello."]).failed(1);
    assert!(refused.contains("generate_text.onnx: is a file; expected the folder"), "{refused}");
    let Some(python) = cognate_testing::python() else { return };
    let python = |script: &str| {
        std::process::Command::new(&python)
            .arg("-c")
            .arg(script)
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    if !python("import onnxruntime_extensions").status.success() {
        return cognate_testing::skip(
            "COGNATE_PYTHON has no onnxruntime-extensions; `cargo xtask test` installs it",
        );
    }
    let readme =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../onnx/README.md")).unwrap();
    let example = readme.split("```python\n").nth(2).unwrap().split("```").next().unwrap();
    let told = |script: &str| {
        let output = python(script);
        assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(told(example).trim(), "Ein Mann fährt Fahrrad.\nZwei Hunde spielen im Schnee.");
    // Lengths that differ, an empty text, unknown characters, several hypotheses.
    let lines =
        ["", "A dog.", "Ｆull  width ﬁsh, a 字 and e\u{301}te\u{301}. ", SENTENCES[0], "  "];
    let script = example
        .replace(
            r#"["A man is riding a bicycle.", "Two dogs are playing in the snow."]"#,
            &format!("{lines:?}").replace("\\u{301}", "\u{301}"),
        )
        .replace("numpy.array(4)}", "numpy.array(3), 'num_return_sequences': numpy.array(2)}")
        .replace("texts[:, 0]", "texts.ravel()");
    if cognate_runtime::Ort::find().is_err() {
        return cognate_testing::skip(
            "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
        );
    }
    let best = [
        &["translate", "--engine", "ort", "--model", bundled, "--beams", "3", "--n-best", "2"],
        &lines[1..4],
    ]
    .concat();
    let hypotheses = run(&best).ok();
    let expected: Vec<_> = ["", ""]
        .into_iter()
        .chain(hypotheses.lines().map(|line| line.split_once('\t').unwrap().1))
        .chain(["", ""])
        .collect();
    assert_eq!(told(&script).strip_suffix('\n').unwrap().split('\n').collect::<Vec<_>>(), expected);
}

/// Triton's model repository, which is also an export: verified, and the same text as from the
/// checkpoint.
#[test]
fn the_layout_triton_is_a_model_repository() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("models");
    let (out, bundled) = (path.to_str().unwrap(), bundled_checkpoint());
    let bundled = bundled.to_str().unwrap();
    let exported = run(&["export", bundled, out, "--layout", "triton"]).ok();
    assert!(exported.contains("tract 0.23.9: passed"), "{exported}");
    assert_snapshot!(fs::read_to_string(path.join("encoder/config.pbtxt")).unwrap());
    let decoder = fs::read_to_string(path.join("decoder/config.pbtxt")).unwrap();
    assert!(
        decoder.contains("input { name: \"past_key_values.0.decoder.key\" data_type: TYPE_FP32 dims: [ -1, 4, -1, 32 ] }"),
        "{decoder}"
    );
    let translated = |model| {
        run(&[
            &["translate", "--engine", "tract", "--beams", "3", "--model", model][..],
            &SENTENCES,
        ]
        .concat())
        .ok()
    };
    assert_eq!(translated(out), translated(bundled));

    // What an export wrote another may replace; a file that is not ours stays.
    run(&["export", bundled, out, "--no-verify", "--force"]).ok();
    assert!(!path.join("encoder").exists());
    let again = || {
        run(&[
            "export",
            bundled,
            out,
            "--layout",
            "triton",
            "--no-verify",
            "--force",
            "--precision",
            "f16",
        ])
    };
    again().ok();
    again().ok();
    fs::write(path.join("translate/1/notes.txt"), "mine").unwrap();
    assert_snapshot!(with_dir(&again().failed(1), folder.path()), @"cognate: error: DIR/models: contains translate/1/notes.txt; only earlier exports are replaced");
    assert_snapshot!(run(&["export", bundled, out, "--layout", "triton", "--target", "ort", "--force"]).failed(1), @"cognate: error: --target: ort has a layout of its own; leave out layout triton");
}
