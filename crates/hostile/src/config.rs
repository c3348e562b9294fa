//! `config.json` and `generation_config.json`.

use anyhow::Result;
use serde_json::json;

use super::bytes::{nested, read, spread};
use super::case::{Case, Expect, Reader, Subject};
use super::good::{Good, Models};

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let config = Subject::new(
        "config.json",
        Good::Checkpoint,
        "config.json",
        &[Reader::Show, Reader::Export, Reader::Tract],
    );
    let generation = Subject::new(
        "generation_config.json",
        Good::Checkpoint,
        "generation_config.json",
        &[Reader::Tract],
    );
    let mut cases = Vec::new();
    for (file, subject) in [("config.json", &config), ("generation_config.json", &generation)] {
        let length = read(&models.path(Good::Checkpoint).join(file))?.len();
        cases.extend(subject.cuts(spread(length, 8)));
        // Weights may not fit a changed name.
        cases.extend(
            subject.expecting(Expect::Either("config.json")).changes(spread(length, 10), 0x10),
        );
        cases.extend([
            subject.content("nested 100,000 deep", nested(100_000)),
            subject
                .content("a field nested 100,000 deep", format!("{{\"a\":{}}}", nested(100_000))),
            subject.content("not UTF-8", b"{\"model_type\": \"\xff\"}"),
            subject.content("a list", b"[]"),
            subject.content("zeros", [0; 4096]),
            subject.content("4 MB of brackets", vec![b'['; 4 << 20]),
        ]);
        cases.extend(subject.not_files(..3));
    }
    let fields = [
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
    cases.extend(fields.into_iter().map(|(field, value)| config.field(field, value)));
    let fields = [
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
    ];
    cases.extend(fields.into_iter().map(|(field, value)| generation.either().field(field, value)));
    Ok(cases)
}
