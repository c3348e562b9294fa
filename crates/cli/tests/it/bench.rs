//! What `cargo xtask bench decode` asks of the command.

use crate::{run, run_with};
use insta::assert_snapshot;
use serde_json::Value;

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
