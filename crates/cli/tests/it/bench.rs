//! What `cargo xtask bench` asks of the command.

use crate::{run, run_with};
use cognate_runtime::{Device, Engine};
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;

#[test]
fn calls_are_timed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let out = path.to_str().unwrap();
    run(&["export", "testdata/multi30k-en-de", out, "--no-verify"]).ok();
    let bench = ["bench", "decode", "--engine", "tract", "--model", out];
    let lines = |said: String| said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>();

    let own = lines(run(&[&bench[..], &["--batch", "3", "--beams", "2", "--new-tokens", "5", "--rounds", "2"]].concat()).ok());
    assert_eq!(own.len(), 3);
    assert_eq!(own[0]["engine"], "tract 0.23.9");

    let request = "{\"sources\": [[5, 6, 7, 0], [8, 0]], \"beams\": 1, \"new_tokens\": 9}\n";
    let asked = lines(run_with(&[&bench[..], &["--requests"]].concat(), request).ok());
    assert_eq!(asked.len(), 2);
    for (answer, tokens) in [(&own[1], 15), (&own[2], 15), (&asked[1], 18)] {
        assert_eq!(answer["tokens"], tokens);
        let seconds = |name: &str| answer[name].as_f64().unwrap();
        assert!(0.0 < seconds("seconds_in_graph") && seconds("seconds_in_graph") < seconds("seconds"), "{answer}");
    }

    assert_snapshot!(run(&["bench", "decode", "--model", "crates"]).failed(1), @"cognate: error: crates: expected the folder of an export");
}

/// The batches that are written are those of the updates.
#[test]
fn updates_are_timed() {
    if let Err(error) = Engine::Ort.open(Device::Cpu) {
        return cognate_testing::skip(&error.to_string());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let lines: String = (1..40).map(|length| "A man is riding a bicycle. ".repeat(1 + length % 3).trim().to_owned() + "\n").collect();
    fs::write(path("text"), lines).unwrap();
    let tokenizer = cognate_testing::bundled_checkpoint();
    let settings = format!(
        "data.train = [{{ source = \"text\", target = \"text\" }}]\ndata.max_tokens = 128\nthreads = 1\n\
         tokenizer.from = \"{}\"\nmodel.d_model = 16\nmodel.heads = 2\nmodel.d_ff = 16\nmodel.encoder_layers = 1\n\
         model.decoder_layers = 1\nschedule.max_updates = 10\noptimiser.warmup_updates = 5\n",
        tokenizer.display()
    );
    fs::write(path("training.toml"), settings).unwrap();
    let (config, out, written) = (path("training.toml"), path("out"), path("written"));
    let bench = ["bench", "train", &config, "--engine", "ort", "--out", &out, "--write", &written, "--batches", "5"];
    let said = run_with(&bench, "{\"updates\": 2}\n{\"updates\": 3}\n").ok();
    let answers: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((answers.len(), &answers[0]["parameters"]), (3, &132_512.into()), "{said}");
    let batches = fs::read_to_string(path("written/batches.jsonl")).unwrap();
    let labels = |line: &str| {
        let batch: Value = serde_json::from_str(line).unwrap();
        let rows: Vec<Vec<i64>> = serde_json::from_value(batch["labels"].clone()).unwrap();
        rows.iter().flatten().filter(|label| **label >= 0).count()
    };
    let labels: Vec<usize> = batches.lines().map(labels).collect();
    assert_eq!((labels[..2].iter().sum::<usize>(), labels[2..].iter().sum::<usize>()), (tokens(&answers[1]), tokens(&answers[2])));
    for answer in &answers[1..] {
        let seconds = |name: &str| answer[name].as_f64().unwrap();
        assert!(0.0 < seconds("seconds_in_graph") && seconds("seconds_in_graph") < seconds("seconds"), "{answer}");
    }
    let config: Value = serde_json::from_str(&fs::read_to_string(path("written/config.json")).unwrap()).unwrap();
    assert_eq!(config["model_type"], "marian");
}

fn tokens(answer: &Value) -> usize {
    answer["tokens"].as_u64().unwrap() as usize
}
