//! The measuring programs, as `cargo xtask bench` calls them.

#![allow(clippy::unwrap_used)]

mod checkpoint;
mod copy_task;
mod decode;
mod decode_chart;
mod decode_gpu;
mod decode_limits;
mod decode_report;
mod decode_shape;
mod decode_ways;
#[cfg(unix)]
mod driver;
mod export;
mod generate;
mod in_place;
mod machine;
mod measure_read;
mod peers;
mod process;
mod processors;
mod record;
mod statistics;
mod text;
mod train_report;
mod transcribe;
mod wheel;

use cognate::Export;
use cognate_runtime::{Device, Engine};
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// A run with this standard input.
fn run(args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cognate-bench"));
    let piped = command
        .arg("measure")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// The answers of a run that must succeed.
fn answers(args: &[&str], input: &str) -> Vec<Value> {
    let Output { status, stdout, stderr } = run(args, input);
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn calls_are_timed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let out = path.to_str().unwrap();
    Export::open(cognate_testing::bundled_checkpoint()).unwrap().write(out).unwrap();
    let bench = ["decode", "--engine", "tract", "--model", out];

    let own = answers(
        &[&bench[..], &["--batch", "3", "--beams", "2", "--new-tokens", "5", "--rounds", "2"]]
            .concat(),
        "",
    );
    assert_eq!(own.len(), 3);
    assert_eq!(own[0]["engine"], "tract 0.23.9 with Cognate's operators");

    let request = "{\"sources\": [[5, 6, 7, 0], [8, 0]], \"beams\": 1, \"new_tokens\": 9}\n";
    let asked = answers(&[&bench[..], &["--requests"]].concat(), request);
    assert_eq!(asked.len(), 2);
    for (answer, tokens) in [(&own[1], 15), (&own[2], 15), (&asked[1], 18)] {
        assert_eq!(answer["tokens"], tokens);
        let seconds = |name: &str| answer[name].as_f64().unwrap();
        assert!(
            0.0 < seconds("seconds_in_graph") && seconds("seconds_in_graph") < seconds("seconds"),
            "{answer}"
        );
    }

    let refused = run(&["decode", "--model", "src"], "");
    assert_snapshot!(String::from_utf8_lossy(&refused.stderr), @"error: src: expected the folder of an export");
    assert_eq!(refused.status.code(), Some(1));
}

/// Sentences up to their ends, in calls of one or of all, by the checkpoint's own tokens.
#[test]
fn sentences_are_decoded_to_their_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let out = path.to_str().unwrap();
    Export::open(cognate_testing::bundled_checkpoint()).unwrap().write(out).unwrap();
    let requests = "{\"sources\": [[5, 6, 7, 0], [8, 0]], \"beams\": 2, \"batch\": 1}\n\
                    {\"sources\": [[5, 6, 7, 0], [8, 0]], \"beams\": 2, \"batch\": 2}\n";
    let answers = answers(&["generate", "--engine", "tract", "--model", out], requests);
    assert_eq!(
        (answers.len(), &answers[0]["engine"]),
        (3, &"tract 0.23.9 with Cognate's operators".into()),
        "{answers:?}"
    );
    assert_eq!(answers[1]["found"], answers[2]["found"]);
    let found: Vec<Vec<i64>> = serde_json::from_value(answers[1]["found"].clone()).unwrap();
    assert!(
        found.len() == 2 && found.iter().all(|tokens| !tokens.is_empty() && !tokens.contains(&0)),
        "{found:?}"
    );
    assert!(answers[1]["seconds"].as_f64().unwrap() > 0.0);
}

/// The batches that are written are those of the updates.
#[test]
fn updates_are_timed() {
    if let Err(error) = Engine::Ort.open(Device::Cpu) {
        return cognate_testing::skip(&error.to_string());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let lines: String = (1..40)
        .map(|length| "A man is riding a bicycle. ".repeat(1 + length % 3).trim().to_owned() + "\n")
        .collect();
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
    let bench =
        ["train", &config, "--engine", "ort", "--out", &out, "--write", &written, "--batches", "5"];
    let answers = answers(&bench, "{\"updates\": 2}\n{\"updates\": 3}\n");
    assert_eq!((answers.len(), &answers[0]["parameters"]), (3, &132_512.into()), "{answers:?}");
    let batches = fs::read_to_string(path("written/batches.jsonl")).unwrap();
    let labels = |line: &str| {
        let batch: Value = serde_json::from_str(line).unwrap();
        let rows: Vec<Vec<i64>> = serde_json::from_value(batch["labels"].clone()).unwrap();
        rows.iter().flatten().filter(|label| **label >= 0).count()
    };
    let labels: Vec<usize> = batches.lines().map(labels).collect();
    assert_eq!(
        (labels[..2].iter().sum::<usize>(), labels[2..].iter().sum::<usize>()),
        (tokens(&answers[1]), tokens(&answers[2]))
    );
    for answer in &answers[1..] {
        let seconds = |name: &str| answer[name].as_f64().unwrap();
        assert!(
            0.0 < seconds("seconds_in_graph") && seconds("seconds_in_graph") < seconds("seconds"),
            "{answer}"
        );
    }
    let config: Value =
        serde_json::from_str(&fs::read_to_string(path("written/config.json")).unwrap()).unwrap();
    assert_eq!(config["model_type"], "marian");
}

fn tokens(answer: &Value) -> usize {
    answer["tokens"].as_u64().unwrap() as usize
}
