//! Unit tests of `statistics`.

use cognate_bench::statistics::*;

#[test]
fn ratios_are_compared_before_they_are_rounded() {
    let (least, most) = (Bound::AtLeast(1.2), Bound::AtMost(1.3));
    for (bound, ratio, cell) in [
        (least, 1.2, "1.20"),
        (least, 1.204, "1.20"),
        (least, 1.246, "1.25"),
        (least, 1.199_999, "**1.19 < 1.2**"),
        (least, 1.196, "**1.19 < 1.2**"),
        (least, 1.194, "**1.19 < 1.2**"),
        (most, 1.3, "1.30"),
        (most, 1.296, "1.30"),
        (most, 1.300_001, "**1.31 > 1.3**"),
        (most, 1.304, "**1.31 > 1.3**"),
        (most, f64::NAN, "**NaN > 1.3**"),
    ] {
        assert_eq!(bound.cell(ratio), cell, "{ratio} with {bound:?}");
        let shown: f64 = bound.shown(ratio).parse().unwrap();
        assert_eq!(bound.is_kept(shown), bound.is_kept(ratio), "{ratio} with {bound:?}");
    }
}

#[test]
fn medians() {
    for (samples, median) in
        [(&[3.0][..], 3.0), (&[9.0, 1.0, 2.0], 2.0), (&[4.0, 1.0, 2.0, 9.0], 3.0)]
    {
        let summary = Summary::of(samples.iter().copied());
        assert_eq!(summary.median, median, "{samples:?}");
        assert!(summary.min <= median && median <= summary.max);
    }
}
