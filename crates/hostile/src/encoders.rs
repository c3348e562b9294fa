//! Encoder-only models: their configuration and the files of sentence-transformers; and models
//! passed to other commands.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::bytes::nested;
use super::case::{Case, Expect, Reader, Subject};
use super::good::{Good, Models};

const EMBED: &[Reader] = &[Reader::Embed];
const CLASSIFY: &[Reader] = &[Reader::Classify];

pub(super) fn cases(_: &Models) -> Result<Vec<Case>> {
    let given = |what, good, readers, name, found| {
        Subject::new(what, good, "", readers)
            .expecting(Expect::Refused(found))
            .case(name, |_| Ok(()))
    };
    let classifier = Subject::new(
        "classifier",
        Good::Classifier,
        "config.json",
        &[Reader::Classify, Reader::Show, Reader::Export],
    );
    let mut cases = vec![
        Subject::new("encoder", Good::Encoder, "", &[Reader::Embed, Reader::Show, Reader::Export])
            .untouched(),
        classifier.untouched(),
        given(
            "encoder",
            Good::Encoder,
            &[Reader::Tract, Reader::Reference],
            "given to translate",
            "an encoder alone",
        ),
        given("encoder", Good::Encoder, CLASSIFY, "given to classify", "does not classify"),
        given(
            "translation model",
            Good::Checkpoint,
            CLASSIFY,
            "given to classify",
            "a model with a decoder",
        ),
        given(
            "export of a translation model",
            Good::Exported,
            EMBED,
            "given to embed",
            "a model with a decoder",
        ),
    ];
    let fields = [
        ("num_attention_heads", json!(0)),
        ("num_attention_heads", json!(3)),
        ("hidden_size", json!(1_u64 << 40)),
        ("num_hidden_layers", json!(1 << 24)),
        ("max_position_embeddings", json!(1_u64 << 40)),
        ("type_vocab_size", json!(1_u64 << 40)),
        ("type_vocab_size", json!(0)),
        ("vocab_size", json!(-1)),
        ("pad_token_id", json!(1_u64 << 40)),
        ("layer_norm_eps", json!(0)),
        ("hidden_act", json!("softplus")),
        ("is_decoder", json!(true)),
        ("add_cross_attention", json!(true)),
        ("position_embedding_type", json!("relative_key")),
        ("architectures", json!(["BertForQuestionAnswering"])),
        ("architectures", json!("BertModel")),
        (
            "id2label",
            json!(
                (0..100_000)
                    .map(|label| (label.to_string(), "x".into()))
                    .collect::<Map<String, Value>>()
            ),
        ),
        ("num_labels", json!(1_u64 << 40)),
    ];
    // Labels without weights are detected by their shapes.
    cases.extend(
        fields
            .into_iter()
            .map(|(field, value)| classifier.expecting(Expect::Refused("")).field(field, value)),
    );
    let encoder = |file| {
        Subject::new(format!("encoder, {file}"), Good::Encoder, file, EMBED)
            .expecting(Expect::Refused(""))
    };
    let transformer = json!({ "path": "", "type": "sentence_transformers.models.Transformer" });
    for (name, file, text) in [
        ("nested 100,000 deep", "modules.json", nested(100_000)),
        ("no list", "modules.json", "{}".into()),
        (
            "a dense layer",
            "modules.json",
            json!([transformer, { "path": "2_Dense", "type": "sentence_transformers.models.Dense" }]).to_string(),
        ),
        ("another folder", "modules.json", json!([transformer, { "path": "../1_Pooling", "type": "x.Pooling" }]).to_string()),
        ("no pooling", "1_Pooling/config.json", "{}".into()),
        ("two poolings", "1_Pooling/config.json", json!({ "pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true }).to_string()),
        ("maximum pooling", "1_Pooling/config.json", json!({ "pooling_mode_max_tokens": true }).to_string()),
        ("nested 100,000 deep", "1_Pooling/config.json", nested(100_000)),
        ("no tokens", "sentence_bert_config.json", json!({ "max_seq_length": 0 }).to_string()),
        ("tokens below 0", "sentence_bert_config.json", json!({ "max_seq_length": -1 }).to_string()),
    ] {
        cases.push(encoder(file).content(name, text));
    }
    let most = json!({ "max_seq_length": u64::MAX }).to_string();
    cases.push(
        encoder("sentence_bert_config.json")
            .expecting(Expect::Either(""))
            .content("2^64 - 1 tokens", most),
    );
    Ok(cases)
}
