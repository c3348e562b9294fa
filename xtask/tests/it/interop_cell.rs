//! Tests of `interop::cell`.

use xtask::interop::cell::*;
use xtask::interop::runtime::BOUND;
use xtask::interop::task::Kind;

#[test]
fn answers_are_judged() {
    let tokens = Kind::EncoderDecoder;
    for (kind, json, summary, wrong) in [
        (
            tokens,
            r#"{"version": "a 1", "numbers": 7.1e-5, "greedy": true}"#,
            "7.1e-5, equal",
            false,
        ),
        (
            tokens,
            r#"{"version": "a 1", "numbers": 7.1e-5, "greedy": true, "beam": true}"#,
            "7.1e-5, equal",
            false,
        ),
        (
            tokens,
            r#"{"version": "a 1", "numbers": 7.1e-5, "greedy": true, "beam": false}"#,
            "7.1e-5, BEAMS DIFFER",
            true,
        ),
        (
            tokens,
            r#"{"version": "a 1", "numbers": 1e-6, "greedy": true, "texts": false}"#,
            "1.0e-6, TEXTS DIFFER",
            true,
        ),
        (tokens, r#"{"version": "a 1", "numbers": 0.2, "greedy": true}"#, "2.0e-1, equal", true),
        (
            tokens,
            r#"{"version": "a 1", "numbers": 0, "greedy": false, "beam": true}"#,
            "0.0e0, TOKENS DIFFER",
            true,
        ),
        (tokens, r#"{"version": "a 1", "error": "no\nsuch op"}"#, "no such op", false),
        (tokens, r#"{"version": "a 1", "numbers": 2e-5}"#, "the answer is incomplete", false),
        (
            Kind::Decoder,
            r#"{"version": "a 1", "numbers": 2e-5}"#,
            "the answer is incomplete",
            false,
        ),
        (Kind::Encoder, r#"{"version": "a 1", "numbers": 2e-5}"#, "2.0e-5", false),
        (Kind::Encoder, r#"{"version": "a 1", "numbers": 0.2}"#, "2.0e-1", true),
        (Kind::Encoder, r#"{"version": "a 1"}"#, "the answer is incomplete", false),
    ] {
        let outcome = serde_json::from_str::<Answer>(json).unwrap().judged(kind);
        assert_eq!(
            (outcome.summary().as_str(), outcome.is_wrong(BOUND)),
            (summary, wrong),
            "{json}"
        );
    }
}
