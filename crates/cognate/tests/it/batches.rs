//! Batches, and what threads share.

use cognate::Translator;
use cognate_pipeline::{BatchLimit, batches};

#[test]
fn batches_keep_to_the_budget() {
    let cases = [
        (vec![], 10, vec![]),
        (vec![3, 5, 4], 15, vec![vec![1, 2, 0]]),
        (vec![3, 5, 4], 10, vec![vec![1, 2], vec![0]]),
        (vec![2, 2, 2, 2], 4, vec![vec![0, 1], vec![2, 3]]),
        (vec![9, 1, 9], 0, vec![vec![0], vec![2], vec![1]]),
    ];
    for (lengths, budget, expected) in cases {
        assert_eq!(batches(&lengths, BatchLimit::tokens(budget)), expected, "{lengths:?} {budget}");
    }
    assert_eq!(
        batches(&[2, 3, 4], BatchLimit { tokens: 100, sentences: 2 }),
        [vec![2, 1], vec![0]]
    );
}

#[test]
fn a_translator_can_be_shared() {
    fn assert_shareable<T: Clone + Send + Sync>() {}
    assert_shareable::<Translator>();
}
