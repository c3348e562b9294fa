//! Tests of `interop::checkpoint`.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use xtask::interop::checkpoint::*;
use xtask::interop::runtime::Layout;
use xtask::interop::task::Task;
use xtask::workspace::Workspace;

#[test]
fn each_kind_of_model_has_its_question() {
    let testdata = Workspace::find().unwrap().root().join("testdata");
    let home = tempfile::tempdir().unwrap();
    for (folder, kind, class, heads, start) in [
        ("golden/speech/whisper", "encoder-decoder", "SpeechSeq2Seq", json!([4, 8]), json!(61)),
        ("golden/images/trocr", "encoder-decoder", "Vision2Seq", json!([2, 8]), json!(2)),
        ("golden/strange/t5gemma", "encoder-decoder", "Seq2SeqLM", json!([2, 6]), json!(2)),
        ("encoders/bert", "encoder", "FeatureExtraction", json!([0, 0]), json!(null)),
        ("encoders/vit", "encoder", "ImageClassification", json!([0, 0]), json!(null)),
        ("decoders/gpt2", "decoder", "CausalLM", json!([2, 8]), json!(38)),
        ("decoders/llama", "decoder", "CausalLM", json!([2, 4]), json!(38)),
        ("decoders/gemma", "decoder", "CausalLM", json!([1, 6]), json!(38)),
    ] {
        let checkpoint =
            Checkpoint::prepare(&testdata.join(folder), &home.path().join(folder)).unwrap();
        let question = checkpoint.question(Layout::Hf, Path::new("exported")).unwrap();
        let found = json!([
            question["kind"],
            question["auto_class"],
            [question["heads"], question["head_size"]],
            question["start"]
        ]);
        assert_eq!(found, json!([kind, class, heads, start]), "{folder}");
        assert_eq!(Layout::Generate.has(checkpoint.task), class == "Seq2SeqLM", "{folder}");
    }
    let unknown =
        Task::of(&json!({"architectures": ["KlingonForTelepathy"]})).unwrap_err().to_string();
    assert_eq!(
        unknown,
        "config.json: architectures: KlingonForTelepathy is no known kind of model"
    );
}

#[test]
fn a_golden_model_becomes_a_question() {
    let golden = Workspace::find().unwrap().root().join("testdata/golden/marian");
    let home = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::prepare(&golden, &home.path().join("marian")).unwrap();
    let question = checkpoint.question(Layout::Hf, Path::new("exported")).unwrap();
    for (name, value) in
        [("heads", 4), ("head_size", 8), ("start", 119), ("eos", 0), ("forced_eos", 0)]
    {
        assert_eq!(question[name], value, "{name}");
    }
    assert_eq!(question["layout"], "hugging-face");
    assert_eq!(question["graphs"], "exported");
    let tokenizer = fs::read_to_string(home.path().join("marian/tokenizer.json")).unwrap();
    let tokenizer: Value = serde_json::from_str(&tokenizer).unwrap();
    assert_eq!(tokenizer["model"]["vocab"]["<pad>"], 119);
    assert_eq!(tokenizer["model"]["vocab"]["t5"], 5);
    assert_eq!(tokenizer["added_tokens"][0]["content"], "</s>");
}
