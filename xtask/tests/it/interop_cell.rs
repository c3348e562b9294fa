//! Tests of `interop::cell`.

use xtask::interop::cell::*;
use xtask::interop::runtime::BOUND;

fn outcome(json: &str) -> Outcome {
    serde_json::from_str::<Answer>(json).unwrap().into()
}

#[test]
fn answers_are_judged() {
    for (json, summary, wrong) in [
        (r#"{"version": "a 1", "encoder": 2e-5, "logits": 7.1e-5, "greedy": true}"#, "7.1e-5, equal", false),
        (r#"{"version": "a 1", "encoder": 2e-5, "logits": 7.1e-5, "greedy": true, "beam": true}"#, "7.1e-5, equal", false),
        (r#"{"version": "a 1", "encoder": 2e-5, "logits": 7.1e-5, "greedy": true, "beam": false}"#, "7.1e-5, BEAMS DIFFER", true),
        (r#"{"version": "a 1", "encoder": 0, "logits": 1e-6, "greedy": true, "texts": false}"#, "1.0e-6, TEXTS DIFFER", true),
        (r#"{"version": "a 1", "encoder": 0.2, "logits": 7.1e-5, "greedy": true}"#, "2.0e-1, equal", true),
        (r#"{"version": "a 1", "encoder": 0, "logits": 0, "greedy": false, "beam": true}"#, "0.0e0, TOKENS DIFFER", true),
        (r#"{"version": "a 1", "error": "no\nsuch op"}"#, "no such op", false),
        (r#"{"version": "a 1", "encoder": 2e-5}"#, "the answer is incomplete", false),
    ] {
        let outcome = outcome(json);
        assert_eq!((outcome.summary().as_str(), outcome.is_wrong(BOUND)), (summary, wrong), "{json}");
    }
}
