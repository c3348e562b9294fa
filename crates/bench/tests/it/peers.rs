//! Unit tests of `peers`.

use cognate_bench::process::{Measured, Memory};
use std::time::Duration;

use cognate_bench::peers::*;

fn row(seconds: u64, resident: u64, written: u64) -> Row {
    let run = Measured {
        time: Duration::from_secs(seconds),
        processor: 0.0,
        memory: Memory { anonymous: 1, resident },
    };
    Ok((vec![run], written))
}

#[test]
fn every_missed_bound_is_named() {
    let theirs = || row(100, 900, 3000);
    for (ours, expected) in [
        (row(5, 300, 1050), vec![]),
        (row(6, 300, 1050), vec!["16.7 times as fast as Optimum, at least 20"]),
        (
            row(5, 360, 1100),
            vec![
                "0.40 of Optimum's memory, at most 0.33",
                "files of 1.100 times the checkpoint, at most 1.05",
            ],
        ),
        (row(5, 0, 1000), vec!["0.00 of Optimum's memory, at most 0.33"]),
        (Err("no such family".into()), vec!["cognate export --no-verify: no such family"]),
    ] {
        assert_eq!(
            judge(1000, &[(Way::OptimumUnchecked, theirs()), (Way::Unverified, ours)]),
            expected
        );
    }
    assert_eq!(judge(1000, &[(Way::OptimumUnchecked, theirs())]).len(), 1);
}

#[test]
fn reasons_are_found_in_what_a_program_says() {
    let clap = "cognate export --in-place x: exit status: 2\nerror: unexpected argument '--in-place' found\n\nFor more information";
    assert_eq!(reason(clap), "unexpected argument '--in-place' found");
    let ours = "cognate export x y: exit status: 1\ncognate: error: config.json: model_type \"bart\" is not supported";
    assert_eq!(reason(ours), "config.json: model_type \"bart\" is not supported");
    assert_eq!(reason("python -c x: exit status: 1\nTraceback\nValueError: no"), "ValueError: no");
}
