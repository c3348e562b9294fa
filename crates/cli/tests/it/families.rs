//! Models of every family with tokenizers of their own files, several of them multilingual.
//!
//! The models are PyTorch's golden ones with more rows, so that `testdata/tokenizers` fits them.

use crate::{run, with_dir};
use cognate_generate::{SessionDecoder, Settings, generate};
use cognate_model::{Attentions, Model};
use cognate_runtime::{Options, Reference, Runtime, Source};
use cognate_testing::{golden, testdata};
use cognate_text::Tokenizer;
use insta::assert_snapshot;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const SENTENCES: [&str; 2] = ["A man is riding a bicycle.", "The dogs"];

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A case of `testdata/tokenizers/cases.json`, and what transformers answers to it.
fn case(name: &str) -> (Value, Value) {
    let cases = json_of(&testdata("tokenizers/cases.json"));
    let case = cases["cases"]
        .as_array()
        .unwrap()
        .iter()
        .find(|case| case["name"] == name)
        .unwrap()
        .clone();
    (case, json_of(&testdata("tokenizers/expected.json"))[name].take())
}

/// Writes the tokenizer of a case into a folder; a model's `config.json` stays.
fn add_tokenizer(case: &Value, folder: &Path) {
    for (file, parts) in case["files"].as_object().unwrap() {
        let parts = parts
            .as_array()
            .unwrap()
            .iter()
            .map(|part| testdata("tokenizers/models").join(part.as_str().unwrap()));
        fs::write(
            folder.join(file),
            parts.flat_map(|part| fs::read(part).unwrap()).collect::<Vec<_>>(),
        )
        .unwrap();
    }
    for (file, value) in
        case["json"].as_object().unwrap().iter().filter(|(file, _)| *file != "config.json")
    {
        fs::write(folder.join(file), value.to_string()).unwrap();
    }
}

/// A golden model with `rows` rows in the tables of its tokens, seeded ones after those of the
/// file, and with `tokens` in both configurations; `surplus` is a tensor that it has no use for.
fn enlarged(model: &str, rows: usize, tokens: &Value, surplus: Option<&str>) -> TempDir {
    let known =
        json_of(&golden(model).join("config.json"))["vocab_size"].as_u64().unwrap() as usize;
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "generation_config.json"] {
        let mut fields = json_of(&golden(model).join(file));
        let fields = fields.as_object_mut().unwrap();
        fields.extend(tokens.as_object().unwrap().clone());
        for size in ["vocab_size", "decoder_vocab_size"] {
            if fields.contains_key(size) {
                fields.insert(size.into(), rows.into());
            }
        }
        fs::write(folder.path().join(file), serde_json::to_string_pretty(fields).unwrap()).unwrap();
    }
    let bytes = fs::read(golden(model).join("model.safetensors")).unwrap();
    let mut state = 1u32;
    let mut random = || {
        // A linear congruential generator, of which the upper bits are random enough.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 24) as f32 - 0.5).to_le_bytes()
    };
    let mut tensors = Vec::new();
    for (name, tensor) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
        let (mut shape, mut data) = (tensor.shape().to_vec(), tensor.data().to_vec());
        if let Some(axis) = shape.iter().position(|&size| size == known) {
            let values = data.len() / 4 / known * (rows - known);
            data.extend((0..values).flat_map(|_| random()));
            shape[axis] = rows;
        }
        tensors.push((name, shape, data));
    }
    tensors.extend(surplus.map(|name| (name.to_owned(), vec![1], vec![0; 4])));
    let views = tensors.iter().map(|(name, shape, data)| {
        (name, TensorView::new(Dtype::F32, shape.clone(), data).unwrap())
    });
    fs::write(
        folder.path().join("model.safetensors"),
        safetensors::serialize(views, None).unwrap(),
    )
    .unwrap();
    folder
}

/// A golden model that is large enough for a case's tokenizer, which lies beside it.
fn model_with(model: &str, name: &str) -> (TempDir, Value, Value) {
    let (case, expected) = case(name);
    let largest = expected["largest_id"].as_u64().unwrap() as usize;
    let tokens = match model {
        "marian" => json!({ "pad_token_id": 512, "decoder_start_token_id": 512 }),
        _ => json!({}),
    };
    let folder = enlarged(model, largest + 1, &tokens, None);
    add_tokenizer(&case, folder.path());
    if model.ends_with("t5gemma") {
        fs::write(
            folder.path().join("tokenizer_config.json"),
            json!({ "tokenizer_class": "T5Tokenizer" }).to_string(),
        )
        .unwrap();
    }
    (folder, case, expected)
}

/// The languages of a case as arguments.
fn languages(case: &Value) -> Vec<&str> {
    let codes = ["--source-language", "--target-language"].into_iter().enumerate();
    codes
        .filter_map(|(index, option)| Some([option, case["languages"][index].as_str()?]))
        .flatten()
        .collect()
}

fn translated(model: &Path, more: &[&str]) -> String {
    let args = [
        "translate",
        "--engine",
        "tract",
        "--max-new-tokens",
        "8",
        "--model",
        text(model),
        SENTENCES[0],
        SENTENCES[1],
    ];
    run(&[&args, more].concat()).ok()
}

/// Translations by the reference evaluator, decoding as transformers says that the target language
/// is decoded.
fn reference(folder: &Path, case: &Value, expected: &Value) -> String {
    let model = Model::open(folder).unwrap();
    let generation = fs::read_to_string(folder.join("generation_config.json")).unwrap();
    let mut settings =
        Settings::from_json(model.config_json(), Some(&generation), model.config()).unwrap();
    settings.max_new_tokens = 8;
    match (expected["target"][0].as_str(), expected["target"][1].as_i64()) {
        (Some("forced"), id) => settings.forced_bos_token = id,
        (Some("start"), Some(id)) => settings.start_token = id,
        (found, _) => assert_eq!(found, None),
    }
    let [source, target] = [0, 1].map(|index| case["languages"][index].as_str());
    let tokenizer = Tokenizer::from_folder(folder).unwrap().with_languages(source, target).unwrap();
    let sources = SENTENCES.map(|sentence| tokenizer.encode(sentence).unwrap());
    let [encoder, decoder] = [model.encode().unwrap(), model.step(Attentions::Omit).unwrap()]
        .map(|graph| Reference::F64.load(&Source::Graph(graph), &Options::default()).unwrap());
    let mut decoder = SessionDecoder::new(encoder, decoder, settings.pad_token).unwrap();
    let mut lines = String::new();
    for hypothesis in generate(&mut decoder, &sources, &settings).unwrap() {
        if let Some(forced) = settings.forced_bos_token {
            assert_eq!(hypothesis.tokens[0], forced);
        }
        lines += &(tokenizer.decode(&hypothesis.tokens).unwrap().replace(['\n', '\r'], " ") + "\n");
    }
    lines
}

#[test]
fn every_family_translates_between_the_languages_that_are_named() {
    let cases = [
        ("mbart", "mbart-languages"),
        ("mbart", "mbart50"),
        ("mbart", "nllb-legacy"),
        ("mbart", "mbart-json"),
        ("m2m100", "m2m100-languages"),
        ("m2m100", "nllb"),
        ("m2m100", "nllb-json"),
        ("marian", "marian-prefix"),
        ("bart", "bart"),
        ("t5", "t5"),
        ("mt5", "mt5"),
        ("pegasus", "pegasus"),
        ("strange/t5gemma", "t5"),
    ];
    let mut failures = Vec::new();
    for (model, name) in cases {
        let (folder, case, expected) = model_with(model, name);
        let chosen = languages(&case);
        let found = translated(folder.path(), &chosen);
        let wanted = reference(folder.path(), &case, &expected);
        if found != wanted || found.trim().is_empty() {
            failures.push(format!("{name}: expected {wanted:?}, found {found:?}"));
        }
        if name == "marian-prefix" {
            // The language is in every sentence, and no configuration can say it.
            continue;
        }
        // An export holds all files of the tokenizer, and the languages.
        let out = folder.path().join("out");
        run(&[&["export", text(folder.path()), text(&out), "--no-verify"], &*chosen].concat()).ok();
        for file in case["files"].as_object().unwrap().keys() {
            assert_eq!(
                fs::read(out.join(file)).unwrap(),
                fs::read(folder.path().join(file)).unwrap(),
                "{name}: {file}"
            );
        }
        let (kind, id) = (expected["target"][0].as_str(), expected["target"][1].clone());
        let field = |field: &str| json_of(&out.join("generation_config.json"))[field].take();
        match kind {
            Some("forced") => assert_eq!(field("forced_bos_token_id"), id, "{name}"),
            Some("start") => assert_eq!(field("decoder_start_token_id"), id, "{name}"),
            _ => {}
        }
        let of_export = translated(&out, &[]);
        if of_export != wanted {
            failures.push(format!("{name}, exported: expected {wanted:?}, found {of_export:?}"));
        }
        run(&[&["export", text(folder.path()), text(&out), "--no-verify", "--force"], &*chosen]
            .concat())
        .ok();
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn another_language_gives_another_translation() {
    let (folder, ..) = model_with("m2m100", "m2m100");
    let into = |target| translated(folder.path(), &["--target-language", target]);
    assert_ne!(into("de"), into("fr"));
    assert_eq!(into("de"), into("__de__"));
    let from = |source| {
        translated(folder.path(), &["--source-language", source, "--target-language", "de"])
    };
    assert_eq!(from("en"), into("de"));
    assert_ne!(from("fr"), into("de"));
}

#[test]
fn an_export_is_verified_in_its_languages() {
    let (folder, case, _) = model_with("mbart", "mbart50");
    let out = folder.path().join("out");
    // One of the sentences is too long for the 64 positions of the model.
    let said =
        run(&[&["export", text(folder.path()), text(&out)], &*languages(&case)].concat()).ok();
    assert!(said.contains("3 of 3 sentences equal") && !said.contains("FAILED"), "{said}");
    assert_eq!(json_of(&out.join("tokenizer_config.json"))["src_lang"], case["languages"][0]);
    let verified =
        run(&["verify", text(&out), "--source-language", "en_XX", "--target-language", "de_DE"])
            .ok();
    assert!(verified.contains("3 of 3 sentences equal"), "{verified}");
}

#[test]
fn a_lower_precision_is_measured_in_its_languages() {
    let (folder, case, _) = model_with("mbart", "mbart50");
    let (out, lines) = (folder.path().join("out"), folder.path().join("lines"));
    fs::write(&lines, format!("{}\n{}\n", SENTENCES[0], SENTENCES[1])).unwrap();
    let args = [
        "export",
        text(folder.path()),
        text(&out),
        "--no-verify",
        "--precision",
        "int8",
        "--data",
        text(&lines),
        text(&lines),
    ];
    let told = run(&args).failed(1);
    assert!(
        told.starts_with("cognate: error: --data: ")
            && told.contains("pass --target-language")
            && !out.exists(),
        "{told}"
    );
    let said = run(&[&args, &*languages(&case)].concat()).ok();
    assert!(said.contains(": 2 sentences of lines, "), "{said}");
    // Sentences of our own need no language: both precisions choose in the same.
    let (mut own, data) = (args.to_vec(), args.iter().position(|arg| *arg == "--data").unwrap());
    own.truncate(data);
    own.retain(|arg| *arg != "--no-verify");
    let said = run(&[&own[..], &["--force"]].concat()).out;
    assert!(said.contains(" sentences of the bundled text, "), "{said}");
}

/// `train --init` wants a language named where `translate` does, and goes on with a warning where
/// `translate` does.
#[test]
fn training_asks_for_a_language_as_translation_does() {
    let texts = tempfile::tempdir().unwrap();
    let lines = texts.path().join("lines");
    fs::write(&lines, format!("{}\n{}\n", SENTENCES[0], SENTENCES[1])).unwrap();
    let train = |folder: &TempDir| {
        let out = folder.path().join("trained");
        let args = [
            "train",
            "--init",
            text(folder.path()),
            "--data",
            text(&lines),
            text(&lines),
            "--out",
            text(&out),
            "--engine",
            "tract",
        ];
        run(&[&args[..], &["--max-updates", "1"]].concat())
    };
    let (mbart, ..) = model_with("mbart", "mbart");
    let told = with_dir(&train(&mbart).failed(1), mbart.path());
    assert!(told.ends_with("DIR: the model knows 25 languages; to choose the target language, set decoder_start_token_id in generation_config.json to its token"), "{told}");
    // PLBart's model is BART's.
    let (plbart, ..) = model_with("bart", "plbart");
    let config = plbart.path().join("config.json");
    let mut fields = json_of(&config);
    fields["model_type"] = "plbart".into();
    fs::write(config, fields.to_string()).unwrap();
    let translated = run(&[
        "translate",
        "--engine",
        "tract",
        "--model",
        text(plbart.path()),
        "--max-new-tokens",
        "4",
        "A man.",
    ]);
    for ran in [translated, train(&plbart)] {
        assert!(
            ran.status == Some(0) && ran.err.contains("warning: ") && ran.err.contains("language"),
            "{}",
            ran.err
        );
    }
}

#[test]
fn languages_that_cannot_be_chosen() {
    let error = |folder: &TempDir, more: &[&str]| {
        let args = ["translate", "--engine", "tract", "--model", text(folder.path()), "A man."];
        with_dir(&run(&[&args, more].concat()).failed(1), folder.path())
    };
    let (mbart50, ..) = model_with("mbart", "mbart50");
    assert_snapshot!(error(&mbart50, &[]), @"cognate: error: DIR: the model has 52 languages and no target language is set: pass --target-language, one of ar_AR, cs_CZ, de_DE, en_XX, es_XX, et_EE, fi_FI, fr_XX and 44 more");
    assert_snapshot!(error(&mbart50, &["--target-language", "de"]), @r#"cognate: error: --target-language: DIR/sentencepiece.bpe.model: unknown language "de"; expected one of de_DE, ar_AR, cs_CZ, en_XX, es_XX, et_EE, fi_FI, fr_XX and 44 more"#);
    assert_snapshot!(error(&mbart50, &["--source-language", "english", "--target-language", "de_DE"]), @r#"cognate: error: --source-language: DIR/sentencepiece.bpe.model: unknown language "english"; expected one of en_XX, es_XX, et_EE, ar_AR, cs_CZ, de_DE, fi_FI, fr_XX and 44 more"#);
    let (nllb, ..) = model_with("m2m100", "nllb");
    assert_snapshot!(error(&nllb, &["--source-language", "eng_Latn"]), @"cognate: error: DIR: the model has 202 languages and no target language is set: pass --target-language, one of ace_Arab, ace_Latn, acm_Arab, acq_Arab, aeb_Arab, afr_Latn, ajp_Arab, aka_Latn and 194 more");
    let (mbart, ..) = model_with("mbart", "mbart");
    assert_snapshot!(error(&mbart, &[]), @"cognate: error: DIR: the model has 25 languages and no target language is set: pass --target-language, one of ar_AR, cs_CZ, de_DE, en_XX, es_XX, et_EE, fi_FI, fr_XX and 17 more");
    let (m2m100, ..) = model_with("m2m100", "m2m100");
    assert_snapshot!(error(&m2m100, &[]), @"cognate: error: DIR: the model has 100 languages and no target language is set: pass --target-language, one of af, am, ar, ast, az, ba, be, bg and 92 more");
    let (t5, ..) = model_with("t5", "t5");
    assert_snapshot!(error(&t5, &["--target-language", "de"]), @r#"cognate: error: --target-language: DIR/spiece.model: the tokenizer has no languages, found language "de""#);
    let (marian, ..) = model_with("marian", "marian");
    assert_snapshot!(error(&marian, &["--source-language", "eng"]), @r#"cognate: error: --source-language: DIR/source.spm: the tokenizer has no source languages, found source language "eng"; set only the target language"#);
    let out = text(t5.path()).to_owned() + "/out";
    let export = |folder: &TempDir, more: &[&str]| {
        with_dir(
            &run(&[&["export", text(folder.path()), &out], more].concat()).failed(1),
            folder.path(),
        )
    };
    assert_snapshot!(export(&t5, &["--target-language", "de"]), @r#"cognate: error: --target-language: DIR/spiece.model: the tokenizer has no languages, found language "de""#);
    assert_snapshot!(export(&marian, &["--target-language", "deu"]), @"cognate: error: --target-language: this model needs deu in every sentence; pass it to `cognate translate`");
    assert_snapshot!(run(&["export", "preset:tiny", &out, "--target-language", "de"]).failed(1), @"cognate: error: preset:tiny: has no tokenizer to choose languages of; leave out --source-language and --target-language");
    let in_place = ["export", text(mbart50.path()), "--in-place", "--target-language", "de_DE"];
    assert_snapshot!(with_dir(&run(&in_place).failed(1), mbart50.path()), @"cognate: error: --in-place: the checkpoint's files stay as they are; give languages to `cognate translate`");
    assert!(!Path::new(&out).exists());
}

#[test]
fn a_target_language_may_be_named_elsewhere() {
    let ids = |name: &str| case(name).1["target"][1].clone();
    for (model, name, field) in [
        ("mbart", "mbart50", "forced_bos_token_id"),
        ("mbart", "mbart-languages", "decoder_start_token_id"),
    ] {
        let (folder, case, expected) = model_with(model, name);
        let path = folder.path().join("generation_config.json");
        let mut fields = json_of(&path);
        fields[field] = ids(name);
        fs::write(&path, fields.to_string()).unwrap();
        let source = case["languages"][0].as_str().unwrap();
        assert_eq!(
            translated(folder.path(), &["--source-language", source]),
            reference(folder.path(), &case, &expected),
            "{name}"
        );
    }
    // Marian's users write it into the text.
    let (folder, case, expected) = model_with("marian", "marian-prefix");
    let sentences = SENTENCES.map(|sentence| format!(">>deu<<{sentence}"));
    let args =
        ["translate", "--engine", "tract", "--max-new-tokens", "8", "--model", text(folder.path())];
    let written = run(&[&args, &sentences.each_ref().map(String::as_str)[..]].concat());
    assert!(!written.err.contains("language"), "{}", written.err);
    assert_eq!(written.ok(), reference(folder.path(), &case, &expected));
    let without = run(&[&args, &SENTENCES[1..]].concat());
    let lines: Vec<_> = without.err.lines().filter(|line| line.contains("language")).collect();
    assert_snapshot!(lines.join("\n"), @"cognate: warning: sentence 1: no target language; pass --target-language, or begin the sentence with a code such as >>deu<<");
}

#[test]
fn a_tokenizer_of_another_model_is_refused() {
    let refused = |model: &str, name: &str, rows: usize| {
        let folder = enlarged(model, rows, &json!({}), None);
        add_tokenizer(&case(name).0, folder.path());
        let (path, out) = (text(folder.path()), folder.path().join("out"));
        let error = run(&["translate", "--engine", "tract", "--model", path, "A man."]).failed(1);
        for args in [vec!["export", path, text(&out)], vec!["export", path, "--in-place"]] {
            assert_eq!(run(&args).failed(1), error, "{args:?}");
        }
        assert!(!out.exists() && !folder.path().join("encoder.onnx").exists());
        with_dir(&error, folder.path())
    };
    assert_snapshot!(refused("marian", "marian", 300), @r#"cognate: error: DIR: vocab_size in config.json is 300, but source.spm with vocab.json needs at least 513 ("la" has the id 300): tokenizer and model do not belong together; take all files from one checkpoint"#);
    assert_snapshot!(refused("t5", "t5", 200), @r#"cognate: error: DIR: vocab_size in config.json is 200, but spiece.model needs at least 350 ("▁Bahnhof" has the id 200): tokenizer and model do not belong together; take all files from one checkpoint"#);
    assert_snapshot!(refused("m2m100", "m2m100", 800), @r#"cognate: error: DIR: vocab_size in config.json is 800, but sentencepiece.bpe.model with vocab.json needs at least 889 ("__ca__" has the id 800): tokenizer and model do not belong together; take all files from one checkpoint"#);
    assert_snapshot!(refused("m2m100", "nllb", 400), @r#"cognate: error: DIR: vocab_size in config.json is 400, but sentencepiece.bpe.model needs at least 604 ("P" has the id 400): tokenizer and model do not belong together; take all files from one checkpoint"#);
    assert_snapshot!(refused("mbart", "mbart-json", 240), @r#"cognate: error: DIR: vocab_size in config.json is 240, but tokenizer.json needs at least 275 ("N" has the id 240): tokenizer and model do not belong together; take all files from one checkpoint"#);

    // A language without a row is no language of the model.
    let folder = enlarged("m2m100", 600, &json!({}), None);
    add_tokenizer(&case("nllb").0, folder.path());
    let args = [
        "translate",
        "--engine",
        "tract",
        "--model",
        text(folder.path()),
        "--target-language",
        "zul_Latn",
        "A man.",
    ];
    assert_snapshot!(run(&args).failed(1), @"cognate: error: --target-language: zul_Latn is token 603, but vocab_size in config.json is 600: tokenizer and model do not belong together");

    // More rows than pieces, and special tokens without rows, are common.
    let folder = enlarged("t5", 260, &json!({}), None);
    add_tokenizer(&case("t5").0, folder.path());
    translated(folder.path(), &[]);
    let args = [
        "translate",
        "--engine",
        "tract",
        "--model",
        text(folder.path()),
        "A <extra_id_0> man.",
        "A man.",
    ];
    assert_snapshot!(run(&args).failed(1).lines().last().unwrap(), @r#"cognate: error: sentence 1: token "<extra_id_0>" has the id 349, but vocab_size in config.json is 260; remove it from the text"#);
    let folder = enlarged("t5", 1000, &json!({}), None);
    add_tokenizer(&case("t5").0, folder.path());
    translated(folder.path(), &[]);
}

#[test]
fn unused_tensors_are_left_alone_where_that_is_asked_for() {
    let folder = enlarged("t5", 350, &json!({}), Some("surplus.weight"));
    add_tokenizer(&case("t5").0, folder.path());
    let (path, out) = (text(folder.path()), folder.path().join("out"));
    let commands = [
        vec!["translate", "--engine", "tract", "--model", path, "A man."],
        vec!["export", path, text(&out), "--no-verify"],
        vec!["show", path],
        vec!["verify", text(&out), "--checkpoint", path],
        vec!["export", path, "--in-place"],
    ];
    for (index, args) in commands.iter().enumerate() {
        // There is an export to verify only when one was allowed.
        let error = with_dir(&run(args).failed(1), folder.path());
        if index == 0 {
            assert_snapshot!(error, @"
            cognate: error: DIR/model.safetensors: weights do not match config.json
              surplus.weight: in the file, but not in the model of config.json
            pass --ignore-unused to ignore them
            ");
        } else {
            assert!(error.ends_with("\npass --ignore-unused to ignore them"), "{args:?}: {error}");
        }
        let allowed = run(&[args, &["--ignore-unused"][..]].concat());
        let warnings: Vec<_> = allowed
            .err
            .lines()
            .filter(|line| line.contains("warning") && line.contains("tensor"))
            .collect();
        let warning = with_dir(&warnings.join("\n"), folder.path());
        assert_eq!(
            warning,
            "cognate: warning: DIR: 1 tensor is not used by the model of config.json: surplus.weight"
        );
        allowed.ok();
    }
}

/// The files of a golden model in a folder, with its tokenizer's.
fn with_tokenizer(name: &str, files: &[(&str, String)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "generation_config.json", "model.safetensors"] {
        fs::copy(golden(name).join(file), folder.path().join(file)).unwrap();
    }
    for (file, text) in files {
        fs::write(folder.path().join(file), text).unwrap();
    }
    folder
}

/// The ids of twelve tokens, by the checkpoint and by its export.
fn ids_of_both(checkpoint: &Path, arguments: &[&str]) -> [String; 2] {
    let out = tempfile::tempdir().unwrap();
    let export = out.path().join("export");
    run(&["export", checkpoint.to_str().unwrap(), export.to_str().unwrap(), "--no-verify"]).ok();
    [checkpoint, &export].map(|model| {
        let given =
            ["translate", "--model", model.to_str().unwrap(), "--json", "--max-new-tokens", "12"];
        let line: Value = serde_json::from_str(&run(&[&given, arguments].concat()).ok()).unwrap();
        line["hypotheses"][0]["ids"].to_string()
    })
}

/// ByT5 reads bytes. The tokens of transformers 4.57.6 with `ByT5Tokenizer`, greedily and with 3
/// beams.
#[test]
fn byt5_translates_bytes() {
    let files =
        [("tokenizer_config.json", json!({ "tokenizer_class": "ByT5Tokenizer" }).to_string())];
    let folder = with_tokenizer("strange/byt5", &files);
    for (text, beams, ids) in [
        ("Two dogs.", "1", "[16,264,376,364,377,376,46,377,146,117,364,117]"),
        ("Two dogs.", "3", "[189,241,162,368,377,241,231,377,301,293,162,368]"),
        ("Café 猫", "1", "[278,10,278,10,278,10,278,278,10,278,10,278]"),
        ("Café 猫", "3", "[278,91,278,301,301,301,301,23,278,301,301,301]"),
    ] {
        assert_eq!(
            ids_of_both(folder.path(), &["--beams", beams, text]),
            [ids; 2],
            "{text} {beams}"
        );
    }
}

/// The first piece of MADLAD-400's source is the target language; its architecture is that of T5
/// 1.1. The tokens of transformers 4.57.6 for `<2de> abc` and `<2fr> abc` with `T5TokenizerFast`,
/// greedily and with 4 beams.
#[test]
fn madlad_translates_into_the_language_of_its_first_piece() {
    let first = ["<pad>", "</s>", "<unk>", "<2de>", "<2fr>", "▁", "▁a", "b", "c"];
    let pieces = first.into_iter().map(str::to_owned).chain((9..120).map(|id| format!("p{id}")));
    let added = first[..5].iter().enumerate().map(|(id, content)| {
        json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": id < 3 })
    });
    let spaces = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true });
    let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": spaces, "decoder": spaces,
        "added_tokens": added.collect::<Vec<_>>(),
        "post_processor": {
            "type": "TemplateProcessing", "single": [&text, { "SpecialToken": { "id": "</s>", "type_id": 0 } }],
            "pair": [&text, { "Sequence": { "id": "B", "type_id": 0 } }],
            "special_tokens": { "</s>": { "id": "</s>", "ids": [1], "tokens": ["</s>"] } },
        },
        "model": { "type": "Unigram", "unk_id": 2, "vocab": pieces.map(|piece| json!([piece, -2.0])).collect::<Vec<_>>(), "byte_fallback": false },
    });
    let config = json!({ "tokenizer_class": "T5Tokenizer" });
    let folder = with_tokenizer(
        "t5-gated",
        &[("tokenizer.json", tokenizer.to_string()), ("tokenizer_config.json", config.to_string())],
    );
    for (language, beams, ids) in [
        ("de", "1", "[41,113,39,65,65,65,65,65,65,65,65,65]"),
        ("de", "4", "[41,113,39,65,65,65,65,65,65,65,65,65]"),
        ("fr", "1", "[52,51,113,113,113,113,84,39,54,64,47,64]"),
        ("fr", "4", "[35,44,113,25,25,25,25,25,25,25,25,97]"),
    ] {
        assert_eq!(
            ids_of_both(folder.path(), &["--beams", beams, "--target-language", language, "abc"]),
            [ids; 2],
            "{language} {beams}"
        );
    }
}
