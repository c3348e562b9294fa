//! Unit tests of `in_place`.

use cognate_bench::process::Measured;
use std::time::Duration;

use cognate_bench::in_place::*;
use cognate_bench::process::Memory;

#[test]
fn a_missed_bound_fails() {
    let run = |millis, anonymous| Measured {
        time: Duration::from_millis(millis),
        processor: 0.0,
        memory: Memory { anonymous, resident: anonymous },
    };
    for (runs, expected) in [
        ([run(100, 100_000_000), run(20, 1)], None),
        ([run(160, 1), run(60, 1)], Some("large: too slow: 0.110 s, at most 0.1")),
        (
            [run(10, 1), run(10, 100_500_000)],
            Some("large: allocates too much: 100.5 MB, at most 100.0 MB"),
        ),
        ([run(10, 0), run(10, 0)], Some("large: no memory was measured: it ended too soon")),
    ] {
        let verdict = judge(&[("small".into(), vec![run(1, 1)]), ("large".into(), runs.to_vec())]);
        assert_eq!(verdict.err().map(|error| error.to_string()).as_deref(), expected);
    }
}
