//! Unit tests of `export`.

use cognate_bench::process::Measured;
use std::time::Duration;

use cognate_bench::export::*;
use cognate_bench::process::Memory;

#[test]
fn a_missed_bound_fails() {
    let run = |millis, anonymous| Measured {
        time: Duration::from_millis(millis),
        processor: 0.0,
        memory: Memory { anonymous, resident: 3 * anonymous },
    };
    let copies = [run(100, 1), run(900, 1), run(110, 1)];
    for (name, export, expected) in [
        ("kept", run(200, 64_000_000), None),
        ("slow", run(230, 1), Some("the export is too slow: 2.09 times dd, at most 2")),
        (
            "fat",
            run(50, 64_500_000),
            Some("the export allocates too much: 64.5 MB, at most 64.0 MB"),
        ),
        ("unseen", run(50, 0), Some("no memory of the export was measured: it ended too soon")),
    ] {
        let verdict = judge(&copies, &[export, export]).err().map(|error| error.to_string());
        assert_eq!(verdict.as_deref(), expected, "{name}");
    }
}
