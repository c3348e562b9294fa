//! Weights as JSON, and their summaries.

use cognate_pictures::{Summary, Weights};

#[test]
fn json_is_lists_of_lists() {
    let weights = Weights::new([1, 2, 1, 2], vec![0.25, 0.75, 0.1, 0.9]).unwrap();
    let json = serde_json::to_string(&weights).unwrap();
    assert_eq!(json, "[[[[0.25,0.75]],[[0.1,0.9]]]]");
    assert_eq!(serde_json::from_str::<Weights>(&json).unwrap(), weights);
    let error =
        serde_json::from_str::<Weights>("[[[[0.25,0.75]],[[0.1]]]]").unwrap_err().to_string();
    assert!(
        error.starts_with("attention weights: expected lists of one length in each list"),
        "{error}"
    );
    assert_eq!(weights.mean(0), [0.175, 0.825]);
}

#[test]
fn shares_and_spreads() {
    let even = [1.0 / 3.0; 9];
    let sharp = [0.5, 0.5, 0.0, 0.25, 0.5, 0.25, 0.0, 0.0, 1.0];
    let weights = Weights::new([1, 2, 3, 3], [even, sharp].concat()).unwrap();
    let [summary] = Summary::of(&weights, true)[..] else { panic!("one layer") };
    // Two words, 2^1.5, one.
    let words = (2.0 + 2f32.powf(1.5) + 1.0) / 3.0;
    let expected = [
        (1.0 / 3.0 + 2.0 / 3.0) / 2.0,
        (2.0 / 9.0 + 0.25 / 3.0) / 2.0,
        (2.0 / 9.0 + 0.75 / 3.0) / 2.0,
        (1.0 / 3.0 + 0.25) / 2.0,
        (1.0 / 3.0 + 1.25 / 3.0) / 2.0,
        (3.0 + words) / 2.0,
        words,
    ];
    let found = [
        &summary.own.unwrap()[..],
        &[summary.first, summary.last, summary.words, summary.sharpest_words],
    ]
    .concat();
    assert!(
        found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6),
        "{found:?} {expected:?}"
    );
    assert_eq!((summary.sharpest, Summary::of(&weights, false)[0].own), (1, None));
}
