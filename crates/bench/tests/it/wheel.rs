//! Figures of the Python package.

use cognate_bench::measure::text::Answer;
use cognate_bench::text::Precision;
use cognate_bench::wheel::{Cell, Report};

#[test]
fn ratios_are_medians_of_rounds_and_missed_ones_are_listed() {
    let answers = |seconds: [f64; 3], texts: [&str; 2]| {
        let texts = texts.map(str::to_owned).to_vec();
        let answer =
            |wall| Answer { seconds: vec![wall], processor_seconds: 2.0, texts: texts.clone() };
        seconds.map(answer).to_vec()
    };
    let cell = |beams, theirs, ours| Cell {
        precision: Precision::Int8,
        beams,
        threads: 2,
        engines: ["CTranslate2 4".into(), "ONNX Runtime 1".into()],
        answers: [answers(theirs, ["a", "b"]), answers(ours, ["a", "c"])],
    };
    // By rounds 2, 1.5 and 1; the medians alone give 1.25.
    let kept = cell(1, [4.0, 3.0, 5.0], [2.0, 2.0, 5.0]);
    let missed = cell(4, [1.19; 3], [1.0; 3]);
    assert_eq!(kept.ratio(), 1.5);
    let report = Report { rounds: 3, lines: 8, cells: vec![kept, missed] };
    let text = report.text();
    let row = |title: &str| -> Vec<String> {
        let row = text.lines().find(|line| line.contains(title)).unwrap();
        row.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    assert!(text.contains("3 rounds, 8 lines, CTranslate2 4 and ONNX Runtime 1."), "{text}");
    assert_eq!(
        row("int8 greedy, 2 threads")[2..8],
        ["4.000", "2.000", "1.50", "1.00", "4", "1 of 2"]
    );
    assert_eq!(row("int8 4 beams, 2 threads")[4], "**1.19 < 1.2**");
    assert_eq!(
        report.missed(),
        ["int8 4 beams, 2 threads: 1.19 times CTranslate2, expected at least 1.2"]
    );
}
