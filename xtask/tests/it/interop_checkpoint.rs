//! Tests of `interop::checkpoint`.

use serde_json::Value;
use std::fs;
use std::path::Path;
use xtask::interop::checkpoint::*;
use xtask::interop::runtime::Layout;
use xtask::workspace::Workspace;

#[test]
fn a_golden_model_becomes_a_question() {
    let golden = Workspace::find().unwrap().root().join("testdata/golden/marian");
    let home = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::prepare(&golden, &home.path().join("marian")).unwrap();
    let question = checkpoint.question(Layout::Hf, Path::new("exported")).unwrap();
    for (name, value) in [("layers", 2), ("heads", 4), ("head_size", 8), ("start", 119), ("eos", 0), ("forced_eos", 0)] {
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
