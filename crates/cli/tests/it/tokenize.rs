//! `cognate tokenize` and `detokenize`, and what the other commands write as JSON.

use crate::{SENTENCES, run, run_with};
use insta::assert_snapshot;
use serde_json::Value;

#[test]
fn pieces_and_ids_go_both_ways() {
    let pieces = run(&["tokenize", SENTENCES[0]]).ok();
    assert_snapshot!(pieces, @"▁A ▁man ▁is ▁riding ▁a ▁bicycle . </s>");
    assert_eq!(run_with(&["detokenize"], &pieces).ok(), format!("{}\n", SENTENCES[0]));
    let ids = run(&["tokenize", "--ids", SENTENCES[0]]).ok();
    assert_eq!(run_with(&["detokenize", "--ids"], &ids).ok(), format!("{}\n", SENTENCES[0]));
    let line: Value =
        serde_json::from_str(&run(&["tokenize", "--json", SENTENCES[0]]).ok()).unwrap();
    assert_eq!(line["tokens"].as_array().unwrap().len(), line["ids"].as_array().unwrap().len());
    let target = run(&["tokenize", "--target", "Ein Hund."]).ok();
    assert!(!target.contains("</s>") && pieces.contains("</s>"), "{target}");
    assert_snapshot!(run(&["detokenize", "no-such-piece"]).failed(1), @r#"cognate: error: sentence 1: the tokenizer has no piece "no-such-piece""#);
    // Only white space is written as a byte.
    assert_snapshot!(run(&["detokenize", "<0xE9>"]).failed(1), @r#"cognate: error: sentence 1: the tokenizer has no piece "<0xE9>""#);
    assert_snapshot!(run(&["detokenize", "--ids", "8001"]).failed(1), @"cognate: error: sentence 1: the tokenizer has no id 8001");
}

#[test]
fn white_space_that_is_a_piece_goes_both_ways() {
    let Some(folder) = cognate_testing::shared_golden("byt5") else { return };
    let model = ["--model", folder.to_str().unwrap()];
    let pieces = run(&[&["tokenize", "a b é"], &model[..]].concat()).ok();
    assert!(pieces.contains("a <0x20> b"), "{pieces}");
    assert_eq!(run_with(&[&["detokenize"], &model[..]].concat(), &pieces).ok(), "a b é\n");
}

#[test]
fn commands_write_json() {
    let line = |args: &[&str]| -> Value { serde_json::from_str(&run(args).ok()).unwrap() };
    let found = line(&[
        "translate",
        "--engine",
        "tract",
        "--json",
        "--beams",
        "2",
        "--n-best",
        "2",
        SENTENCES[1],
    ]);
    assert_eq!(
        (&found["line"], &found["text"]),
        (&1.into(), &"Zwei Hunde spielen im Schnee.".into())
    );
    assert_eq!(
        (found["hypotheses"].as_array().unwrap().len(), &found["hypotheses"][0]["text"]),
        (2, &found["text"])
    );
    // Greedy search, too.
    let greedy = line(&["translate", "--engine", "tract", "--json", "Two dogs."]);
    let score = greedy["hypotheses"][0]["score"].as_f64().unwrap();
    let expected = run(&["translate", "--engine", "tract", "--scores", "Two dogs."]).ok();
    assert_eq!(format!("Zwei Hunde.\t{score:.6}\n"), expected);
    let explained = line(&["explain", "--engine", "tract", "--json", "Hello!"]);
    assert!(explained["explained"].is_object(), "{explained}");
    let shown = line(&["show", "--json", "testdata/multi30k-en-de"]);
    let shape = |name: &str| {
        shown["parameters"].as_array().unwrap().iter().find(|found| found["name"] == name).unwrap()
            ["shape"]
            .clone()
    };
    assert_eq!(
        (&shown["config"]["model_type"], shape("decoder.embed_positions.weight")),
        (&"marian".into(), serde_json::json!([256, 128]))
    );
    assert_eq!(
        (shown["graphs"].as_array().unwrap().len(), &shown["graphs"][0]["inputs"][0]["name"]),
        (2, &"input_ids".into())
    );
    let scored: Value = serde_json::from_str(
        &run_with(&["score", "--engine", "tract", "--json"], "A dog.\tEin Hund.\n").ok(),
    )
    .unwrap();
    assert_eq!(
        scored["tokens"].as_array().unwrap().len(),
        scored["log_probabilities"].as_array().unwrap().len()
    );
}

#[test]
fn completions_and_man_pages_name_every_command() {
    let script = run(&["completions", "bash"]).ok();
    assert!(
        script.contains("cognate__subcmd__translate") || script.contains("cognate__translate"),
        "{script}"
    );
    let folder = tempfile::tempdir().unwrap();
    run(&["man", folder.path().to_str().unwrap()]).ok();
    assert!(folder.path().join("cognate-translate.1").is_file());
}
