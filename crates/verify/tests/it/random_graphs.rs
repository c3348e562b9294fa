//! Random graphs of the language: the evaluator in f64, tract and ONNX Runtime agree, or all
//! refuse.
//!
//! Some graphs are refused by tract alone, in one of a hundred at most: its optimiser stumbles over
//! the same `Gather` three times, over squares of integers that it finds itself, over products of
//! repeated rows. They are counted, and the others still agree on them.
//!
//! A list of numbers whose graph fails is shortened to one whose graph still does.

mod examined;

use cognate_testing::FUZZ_SECONDS;
use examined::{Gene, Outcome, examine};
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::cell::Cell;
use std::env;
use std::time::{Duration, Instant};

#[test]
fn fuzz_graphs() {
    let seconds =
        env::var(FUZZ_SECONDS).ok().and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let genes = proptest::collection::vec(any::<Gene>(), 1..12);
    let [agreed, refused, refused_by_tract] = [0_u64; 3].map(Cell::new);
    let (start, mut round, mut wrong) = (Instant::now(), 0_u64, Vec::new());
    // A run of hours makes other graphs than the tests, and tells which fails.
    let first = seconds.map_or(0, |_| u64::from(std::process::id()) << 32);
    while seconds.map_or(round == 0, |seconds| start.elapsed() < seconds) {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&(first + round).to_le_bytes());
        let config = Config {
            cases: 60,
            failure_persistence: None,
            max_shrink_iters: 200,
            ..Config::default()
        };
        let mut runner =
            TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
        let ended = runner.run(&genes, |genes| {
            let outcome = examine(&genes).map_err(TestCaseError::fail)?;
            let count = match outcome {
                Outcome::Agreed => &agreed,
                Outcome::Refused => &refused,
                Outcome::RefusedByTract => &refused_by_tract,
            };
            count.set(count.get() + 1);
            Ok(())
        });
        match ended {
            Ok(()) => {}
            Err(TestError::Fail(reason, genes)) => {
                wrong.push(format!("graphs: {genes:?}: {reason}"))
            }
            Err(TestError::Abort(reason)) => wrong.push(format!("graphs: {reason}")),
        }
        round += 1;
    }
    let [agreed, refused, refused_by_tract] =
        [agreed, refused, refused_by_tract].map(|count| count.get());
    assert!(wrong.is_empty(), "{} of {round} rounds\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        agreed > 4 * refused,
        "{agreed} graphs ran, {refused} were refused: too few to tell much"
    );
    assert!(
        agreed > 100 * refused_by_tract,
        "tract alone refuses {refused_by_tract} graphs, where {agreed} ran"
    );
    eprintln!("fuzz graphs: {} executions", agreed + refused + refused_by_tract);
    eprintln!("fuzz graphs that tract alone refuses: {refused_by_tract} executions");
}
