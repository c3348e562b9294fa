//! Mutations of files.

use cognate_testing::*;
use std::panic::catch_unwind;

#[test]
fn a_number_stands_for_its_change() {
    let seeds = vec![b"{\"a\": [1, 2, 3]}".to_vec(), vec![]];
    let all: Vec<_> = (0..200).map(|number| mutated(&seeds, number)).collect();
    assert_eq!(all, (0..200).map(|number| mutated(&seeds, number)).collect::<Vec<_>>());
    let changed = all.iter().filter(|bytes| !seeds.contains(bytes)).count();
    assert!(changed > 90, "{changed} of 200 copies differ");
}

#[test]
fn a_panic_is_not_swallowed() {
    let failed = catch_unwind(|| {
        never_panics("test", &[vec![1, 2, 3]], 50, |bytes| assert!(bytes.len() >= 3))
    });
    assert!(failed.is_err());
}
