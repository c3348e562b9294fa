//! Encoders alone: their configuration and the files of sentence-transformers; and models given to commands of another kind.

use anyhow::Result;
use serde_json::{Value, json};

use super::bytes::{edit_json, nested, write};
use super::good::{Good, Models};
use super::{Case, Expect, Reader};

const EMBED: &[Reader] = &[Reader::Embed];
const CLASSIFY: &[Reader] = &[Reader::Classify];

pub(super) fn cases(_: &Models) -> Result<Vec<Case>> {
    let untouched = |name: &str, good, readers, expect| Case::new(name, good, readers, expect, |_| Ok(()));
    let mut cases = vec![
        untouched("encoder: untouched", Good::Encoder, &[Reader::Embed, Reader::Show, Reader::Export], Expect::Either("")),
        untouched("classifier: untouched", Good::Classifier, &[Reader::Classify, Reader::Show, Reader::Export], Expect::Either("")),
        untouched("encoder: given to translate", Good::Encoder, &[Reader::Tract, Reader::Reference], Expect::Refused("an encoder alone")),
        untouched("encoder: given to classify", Good::Encoder, CLASSIFY, Expect::Refused("does not classify texts")),
        untouched("translation model: given to classify", Good::Checkpoint, CLASSIFY, Expect::Refused("a model with a decoder")),
        untouched("export of a translation model: given to embed", Good::Exported, EMBED, Expect::Refused("a model with a decoder")),
    ];
    for (field, value) in [
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
        ("id2label", json!((0..100_000).map(|label| (label.to_string(), "x".into())).collect::<serde_json::Map<String, Value>>())),
        ("num_labels", json!(1_u64 << 40)),
    ] {
        let shown: String = value.to_string().chars().take(40).collect();
        let change = move |folder: &std::path::Path| {
            edit_json(&folder.join("config.json"), |fields| drop(fields.insert(field.into(), value.clone())))
        };
        // What is not read does no harm; labels that the weights do not have are refused by their shapes.
        let name = format!("classifier: {field} {shown}");
        cases.push(Case::new(name, Good::Classifier, &[Reader::Classify, Reader::Show, Reader::Export], Expect::Refused(""), change));
    }
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
        let name = format!("encoder, {file}: {name}");
        cases.push(Case::new(name, Good::Encoder, EMBED, Expect::Refused(""), move |folder| write(&folder.join(file), &text)));
    }
    let change =
        |folder: &std::path::Path| write(&folder.join("sentence_bert_config.json"), json!({ "max_seq_length": u64::MAX }).to_string());
    cases.push(Case::new("encoder: 2^64 - 1 tokens", Good::Encoder, EMBED, Expect::Either(""), change));
    Ok(cases)
}
