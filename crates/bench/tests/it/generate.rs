//! Figures of graphs that decode.

use cognate_bench::decode::shape::Column;
use cognate_bench::generate::WAYS;
use cognate_bench::generate::report::{Cell, Report};
use cognate_bench::measure::generate::Answer;

/// Two sentences of each program in rounds of processor seconds; the first round warms up.
fn report(batch: usize, seconds: [&[f64]; 3]) -> Report {
    let mut cell = Cell::new(Column { batch, beams: 1 }, 3);
    for (program, seconds) in seconds.into_iter().enumerate() {
        // Others add the end token and padding; the loop's second sentence differs.
        let found = [
            vec![vec![5, 6], vec![7]],
            vec![vec![5, 6], vec![8]],
            vec![vec![5, 6, 0], vec![7, 0, 2]],
        ][program]
            .clone();
        for (round, &processor_seconds) in (0..).zip(seconds) {
            cell.add(
                round,
                program,
                Answer {
                    seconds: 2.0 * processor_seconds,
                    processor_seconds,
                    found: found.clone(),
                },
            );
        }
    }
    Report {
        rounds: 3,
        sentences: 2,
        ways: WAYS.iter().collect(),
        engines: vec!["ONNX Runtime".into(); 2],
        cells: vec![cell],
    }
}

#[test]
fn ratios_are_medians_of_rounds() {
    let report = report(1, [&[99.0, 2.0, 4.0, 3.0], &[1.0, 2.0, 2.0, 2.5], &[1.0, 5.0, 8.0, 9.0]]);
    let cell = &report.cells[0];
    assert_eq!([cell.ratio(0, 1), cell.ratio(0, 2)], [1.2, 0.4]);
    assert_eq!([cell.median(0, 0), cell.median(0, 1)], [6.0, 3.0]);
    assert_eq!([1, 2].map(|program| cell.equal(program)), [1, 2]);
    let text = report.text();
    let row: Vec<&str> = text
        .lines()
        .find(|line| line.contains("greedy, batch 1"))
        .unwrap()
        .split('|')
        .map(str::trim)
        .collect();
    assert_eq!(
        row[2..],
        [
            "3000.00",
            "2000.00",
            "8000.00",
            "1500.00",
            "1000.00",
            "4000.00",
            "**1.20 > 1.15**",
            "0.40",
            "1 of 2",
            "2 of 2",
            ""
        ]
    );
}

#[test]
fn every_missed_bound_is_named() {
    let slow: [&[f64]; 3] = [&[1.0, 6.0], &[1.0, 5.0], &[1.0, 10.0]];
    assert_eq!(
        report(1, slow).missed(),
        [
            "greedy, batch 1: 1.20 of the time of the loop outside of the graph, at most 1.15",
            "greedy, batch 1: 0.60 of the time of the Optimum, at most 0.5",
        ]
    );
    // Optimum is bounded for single sentences only.
    assert_eq!(report(8, slow).missed().len(), 1);
    assert!(report(1, [&[1.0, 5.0], &[1.0, 5.0], &[1.0, 10.0]]).missed().is_empty());
}
