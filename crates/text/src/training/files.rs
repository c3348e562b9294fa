//! The files of a trained tokenizer, as transformers 4 reads them.

use serde_json::{Map, Value, json};

use crate::library::guarded;

/// `</s>`, `<unk>` and `<pad>`, with the ids 0, 1 and 2, as in Marian.
pub(super) const SPECIAL: [&str; 3] = ["</s>", "<unk>", "<pad>"];

/// SentencePiece's `nmt_nfkc` in the library's terms; surrounding and repeated spaces are removed.
pub(super) fn normalizer() -> Value {
    json!({"type": "Sequence", "normalizers": [
        {"type": "Nmt"},
        {"type": "NFKC"},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        {"type": "Strip", "strip_left": true, "strip_right": true},
    ]})
}

/// The text of `tokenizer.json`; its template is `X </s>`, as in Marian.
pub(super) fn tokenizer(special: &[String], model: Value) -> Result<String, String> {
    let eos = SPECIAL[0];
    let added: Vec<Value> =
        special.iter().enumerate().map(|(id, token)| added_token(Some(id), token)).collect();
    let metaspace =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let sequence = |id: &str, kind: u32| json!({"Sequence": {"id": id, "type_id": kind}});
    let end = |kind: u32| json!({"SpecialToken": {"id": eos, "type_id": kind}});
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer(),
        "pre_tokenizer": metaspace,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [sequence("A", 0), end(0)],
            "pair": [sequence("A", 0), sequence("B", 1), end(1)],
            "special_tokens": {eos: {"id": eos, "ids": [0], "tokens": [eos]}},
        },
        "decoder": metaspace, "model": model,
    });
    // Formatted by the library.
    let text = guarded(|| json.to_string().parse::<tokenizers::Tokenizer>()?.to_string(true))?;
    Ok(text + "\n")
}

/// The text of `tokenizer_config.json`.
pub(super) fn config(special: &[String], max_length: usize) -> String {
    let decoder: Map<String, Value> = special
        .iter()
        .enumerate()
        .map(|(id, token)| (id.to_string(), added_token(None, token)))
        .collect();
    let [eos, unk, pad] = SPECIAL;
    let mut config = json!({
        "added_tokens_decoder": decoder, "clean_up_tokenization_spaces": false, "eos_token": eos, "extra_special_tokens": {},
        // Without `token_type_ids`, which no encoder-decoder model reads.
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": max_length, "pad_token": pad, "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": unk,
    });
    if let [_, _, _, additional @ ..] = special
        && !additional.is_empty()
    {
        config["additional_special_tokens"] = json!(additional);
    }
    pretty(&config)
}

/// The text of `special_tokens_map.json`.
pub(super) fn special_tokens_map(special: &[String]) -> String {
    let [eos, unk, pad] = SPECIAL;
    let mut map = json!({"eos_token": eos, "pad_token": pad, "unk_token": unk});
    if special.len() > SPECIAL.len() {
        map["additional_special_tokens"] = json!(special[SPECIAL.len()..]);
    }
    pretty(&map)
}

fn added_token(id: Option<usize>, token: &str) -> Value {
    let mut fields = Map::new();
    fields.extend(id.map(|id| ("id".to_owned(), json!(id))));
    fields.insert("content".to_owned(), json!(token));
    for (name, value) in [
        ("single_word", false),
        ("lstrip", false),
        ("rstrip", false),
        ("normalized", false),
        ("special", true),
    ] {
        fields.insert(name.to_owned(), json!(value));
    }
    Value::Object(fields)
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
