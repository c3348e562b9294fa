//! `config.json` and `generation_config.json`.

use anyhow::Result;
use serde_json::{Value, json};

use super::bytes::{NOT_FILES, edit, edit_json, nested, spread, write};
use super::good::{Good, Models};
use super::{Case, Expect, Reader};

const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";
const READERS: &[Reader] = &[Reader::Show, Reader::Export, Reader::Tract];
const TRANSLATE: &[Reader] = &[Reader::Tract];

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (file, readers) in [(CONFIG, READERS), (GENERATION, TRANSLATE)] {
        let length = super::bytes::read(&models.path(Good::Checkpoint).join(file))?.len();
        for place in spread(length, 8) {
            let change = move |folder: &std::path::Path| edit(&folder.join(file), |bytes| bytes.truncate(place));
            cases.push(Case::new(format!("{file}: cut at {place}"), Good::Checkpoint, readers, Expect::Refused(file), change));
        }
        for place in spread(length, 10) {
            let change = move |folder: &std::path::Path| edit(&folder.join(file), |bytes| bytes[place] ^= 0x10);
            // A name that is changed may leave weights that do not fit.
            cases.push(Case::new(
                format!("{file}: byte {place} changed"),
                Good::Checkpoint,
                readers,
                Expect::Either("config.json"),
                change,
            ));
        }
        let whole = |name: &str, bytes: Vec<u8>| {
            Case::new(format!("{file}: {name}"), Good::Checkpoint, readers, Expect::Refused(file), move |folder| {
                write(&folder.join(file), &bytes)
            })
        };
        cases.push(whole("nested 100,000 deep", nested(100_000).into()));
        cases.push(whole("a field nested 100,000 deep", format!("{{\"a\":{}}}", nested(100_000)).into()));
        cases.push(whole("not UTF-8", b"{\"model_type\": \"\xff\"}".to_vec()));
        cases.push(whole("a list", b"[]".to_vec()));
        cases.push(whole("zeros", vec![0; 4096]));
        cases.push(whole("4 MB of brackets", vec![b'['; 4 << 20]));
        for (name, change) in &NOT_FILES[..3] {
            cases.push(Case::new(format!("{file}: {name}"), Good::Checkpoint, readers, Expect::Refused(file), move |folder| {
                change(&folder.join(file))
            }));
        }
    }
    let large = [
        ("vocab_size", json!(1_u64 << 40)),
        ("vocab_size", json!(u64::MAX)),
        ("vocab_size", json!(0)),
        ("vocab_size", json!(-1)),
        ("vocab_size", json!(7)),
        ("d_model", json!(1_u64 << 24)),
        ("d_model", json!(0)),
        ("d_model", json!(1)),
        ("encoder_layers", json!(1_000_000_000)),
        ("encoder_layers", json!(1024)),
        ("encoder_layers", json!(0)),
        ("encoder_attention_heads", json!(0)),
        ("encoder_attention_heads", json!(3)),
        ("encoder_ffn_dim", json!(u64::MAX)),
        ("max_position_embeddings", json!(1_u64 << 62)),
        ("max_position_embeddings", json!(16_777_216)),
        ("max_position_embeddings", json!(0)),
        ("pad_token_id", json!(1_000_000)),
        ("eos_token_id", json!(-5)),
        ("decoder_start_token_id", json!("start")),
        ("activation_function", json!("../../x")),
        ("model_type", json!("gpt2")),
        ("model_type", json!(null)),
    ];
    for (field, value) in large {
        cases.push(field_case(CONFIG, READERS, Expect::Refused("config.json"), field, value));
    }
    for (field, value) in [
        ("max_length", json!(u64::MAX)),
        ("max_new_tokens", json!(1_u64 << 62)),
        ("num_beams", json!(1_000_000_000)),
        ("num_beams", json!(1_u64 << 62)),
        ("num_return_sequences", json!(1_u64 << 62)),
        ("no_repeat_ngram_size", json!(u64::MAX)),
        ("min_length", json!(u64::MAX)),
        ("eos_token_id", json!(1_u64 << 62)),
        ("eos_token_id", json!(vec![0; 100_000])),
        ("decoder_start_token_id", json!(1_000_000)),
        ("forced_bos_token_id", json!(i64::MAX)),
        ("bad_words_ids", json!([[1_u64 << 62]])),
        ("bad_words_ids", json!([vec![1; 100_000]])),
        ("suppress_tokens", json!([-1, 1_u64 << 62])),
        ("length_penalty", json!(1e308)),
        ("repetition_penalty", json!(-1)),
        ("repetition_penalty", json!(1e-45)),
        ("encoder_repetition_penalty", json!(1e38)),
    ] {
        cases.push(field_case(GENERATION, TRANSLATE, Expect::Either("generation_config.json"), field, value));
    }
    Ok(cases)
}

fn field_case(file: &'static str, readers: &'static [Reader], expect: Expect, field: &'static str, value: Value) -> Case {
    let mut shown = value.to_string();
    shown.truncate(24);
    Case::new(format!("{file}: {field} {shown}"), Good::Checkpoint, readers, expect, move |folder| {
        edit_json(&folder.join(file), |fields| drop(fields.insert(field.into(), value.clone())))
    })
}
