//! Models that consist of two models of text, transformers' `EncoderDecoderModel`.

use cognate::{
    DecodingOptions, Export, Layout, ModelSource, Translator, TranslatorOptions, VerifyOptions,
    verify,
};
use cognate_testing::{Golden, golden};
use serde_json::{Value, json};
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

/// Number of tokens of both vocabularies.
const WORDS: usize = 40;

/// The fields of tokens that are no words.
const SPECIAL: [&str; 3] = ["decoder_start_token_id", "eos_token_id", "pad_token_id"];

/// Copies a golden model, and gives it a tokenizer of the words `<0>`, `<1>` and so on, which ends
/// texts with the end token.
fn make(case: &str, folder: &Path) -> Value {
    for file in ["config.json", "generation_config.json", "model.safetensors"] {
        fs::copy(golden(case).join(file), folder.join(file)).unwrap();
    }
    let config: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("config.json")).unwrap()).unwrap();
    let end = &config["eos_token_id"];
    let special = SPECIAL.map(|field| {
        let id = &config[field];
        json!({"id": id, "content": format!("<{id}>"), "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
    });
    let vocabulary: Value = (0..WORDS)
        .map(|id| (format!("<{id}>"), id.into()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let last = format!("<{end}>");
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": last, "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {&last: {"id": last, "ids": [end], "tokens": [last]}},
        },
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<4>"},
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    config
}

/// The words of a row of tokens without those of some fields.
fn words(row: &[i64], config: &Value, without: &[&str]) -> String {
    let is_left_out = |token: &i64| without.iter().any(|field| config[*field] == *token);
    let words = row.iter().filter(|token| !is_left_out(token)).map(|token| format!("<{token}>"));
    words.collect::<Vec<_>>().join(" ")
}

/// Greedy translations are those of transformers' `generate`, from checkpoints and exports.
#[test]
fn pairs_of_models_of_text_translate_as_transformers() {
    let decoding = DecodingOptions {
        beams: NonZeroUsize::new(1),
        max_new_tokens: NonZeroUsize::new(24),
        ..DecodingOptions::default()
    };
    let options = TranslatorOptions { decoding, ..TranslatorOptions::default() };
    for case in ["bert-bert", "bert-generation", "bert-tied", "roberta-roberta"] {
        let (case, out) = (format!("strange/{case}"), tempfile::tempdir().unwrap());
        let [checkpoint, own, hf] = ["checkpoint", "own", "hf"].map(|name| out.path().join(name));
        fs::create_dir(&checkpoint).unwrap();
        let config = make(&case, &checkpoint);
        for (folder, layout) in [(&own, Layout::Cognate), (&hf, Layout::HuggingFace)] {
            Export::open(&checkpoint).unwrap().layout(layout).write(folder).unwrap();
        }
        assert!(verify(&own, &VerifyOptions::default(), |_| {}).unwrap().report.passed());
        let answers = Golden::open(&case);
        let texts = |name: &str, without: &[&str]| {
            let ids = answers.ids(name);
            let rows = ids.data.chunks(ids.shape[1]);
            rows.map(|row| words(row, &config, without)).collect::<Vec<_>>()
        };
        // The start token can also be within a source.
        let sources = texts("input_ids", &SPECIAL[1..]);
        let expected = texts("greedy", &SPECIAL);
        for folder in [&checkpoint, &own, &hf] {
            let found = ModelSource::find(folder).unwrap();
            let translator = Translator::load(found, &options).unwrap();
            let translations = translator.translate(&sources).unwrap();
            let texts: Vec<_> =
                translations.into_iter().map(|translation| translation.text).collect();
            assert_eq!(texts, expected, "{case}, {}", folder.display());
        }
    }
}
