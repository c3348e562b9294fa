//! Decoder-only models, the two halves of T5Gemma, and decoders passed to other commands.

use anyhow::Result;
use serde_json::{Value, json};

use super::case::{Case, Expect, Reader, Subject};
use super::good::{Good, Models};

pub(super) fn cases(_: &Models) -> Result<Vec<Case>> {
    let all = &[Reader::Generate, Reader::Show, Reader::Export];
    let given = |good, readers, name, found| {
        let what = if good == Good::Decoder { "decoder" } else { "translation model" };
        Subject::new(what, good, "", readers)
            .expecting(Expect::Refused(found))
            .case(name, |_| Ok(()))
    };
    let decoder = Subject::new("decoder", Good::Decoder, "config.json", all);
    let mut cases = vec![
        decoder.untouched(),
        given(
            Good::Decoder,
            &[Reader::Tract, Reader::Reference],
            "given to translate",
            "a decoder alone, which does not translate",
        ),
        given(
            Good::Decoder,
            &[Reader::Embed, Reader::Classify],
            "given to embed and classify",
            "decoder",
        ),
        given(Good::Checkpoint, &[Reader::Generate], "given to generate", "do not continue texts"),
    ];
    let fields = [
        ("n_head", json!(0)),
        ("n_head", json!(3)),
        ("n_embd", json!(1_u64 << 40)),
        ("n_layer", json!(1 << 24)),
        ("n_positions", json!(1_u64 << 40)),
        ("n_inner", json!(0)),
        ("vocab_size", json!(-1)),
        ("bos_token_id", json!(1_u64 << 40)),
        ("layer_norm_epsilon", json!(0)),
        ("activation_function", json!("softplus")),
        ("add_cross_attention", json!(true)),
        ("architectures", json!(["GPT2ForSequenceClassification"])),
    ];
    cases.extend(fields.into_iter().map(|(field, value)| decoder.field(field, value)));
    let halves =
        Subject::new("halves", Good::Halves, "config.json", &[Reader::Show, Reader::Export]);
    let within = |half: &'static str, field: &'static str, value: Value| {
        let shown: String = value.to_string().chars().take(40).collect();
        halves.json(format!("{half}.{field} {shown}"), move |fields| {
            fields[half][field] = value.clone()
        })
    };
    cases.push(halves.untouched());
    for (field, value) in [
        ("num_hidden_layers", json!(1 << 24)),
        ("num_key_value_heads", json!(0)),
        ("head_dim", json!(7)),
        ("hidden_size", json!(1_u64 << 40)),
        ("max_position_embeddings", json!(1_u64 << 40)),
        ("sliding_window", json!(0)),
        ("sliding_window", json!(-1)),
        ("layer_types", json!(vec!["sliding_attention"; 100_000])),
        ("layer_types", json!([1, 2])),
        ("query_pre_attn_scalar", json!(0)),
        ("query_pre_attn_scalar", json!(1e-300)),
        ("attn_logit_softcapping", json!(-1.0)),
        ("final_logit_softcapping", json!("30")),
        ("rope_theta", json!(1e300)),
        ("rope_scaling", json!("linear")),
        ("rope_scaling", json!({ "type": "linear", "factor": 0 })),
        ("rope_scaling", json!({ "rope_type": "longrope", "factor": 2.0 })),
        (
            "rope_scaling",
            json!({ "rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1, "high_freq_factor": 1 }),
        ),
    ] {
        // Logits belong to the decoder.
        let half = if field.starts_with("final") { "decoder" } else { "encoder" };
        cases.push(within(half, field, value));
    }
    cases.extend([
        halves.field("encoder", json!(null)),
        halves.field("decoder", json!([])),
        halves.field("vocab_size", json!(0)),
    ]);
    Ok(cases)
}
