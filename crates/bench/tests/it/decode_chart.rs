//! Unit tests of `decode::chart`.

use crate::decode_report::block;
use cognate_bench::decode::chart::*;

#[test]
fn bars_are_as_high_as_ratios() {
    let svg = svg(&[block([150.0, 50.0])]);
    // CTranslate2's bars and ours, in the order of the columns; the highest ratio, 1.5, is the
    // scale.
    let heights: Vec<f64> = svg
        .lines()
        .filter(|line| {
            line.starts_with("<rect x=") && line.contains("y=\"") && !line.contains("height=\"12\"")
        })
        .map(|line| {
            line.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        })
        .collect();
    assert_eq!(heights, [100.0, 150.0, 100.0, 25.0]);
    assert!(
        svg.contains("Marian-base, 1 thread")
            && svg.contains("4 beams, batch 8")
            && svg.contains("Cognate int8"),
        "{svg}"
    );
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}
