//! Unit tests of `copy_task`.

use cognate_bench::copy_task::*;
use std::collections::HashSet;
use std::time::Duration;

#[test]
fn sequences_are_all_different_and_answered() {
    let sequences = sequences(2_000);
    assert_eq!(sequences.iter().map(|(source, _)| source).collect::<HashSet<_>>().len(), 2_000);
    for (source, answer) in sequences {
        let (task, letters) = source.split_once(' ').unwrap();
        let mut letters: Vec<&str> = letters.split(' ').collect();
        if task == "reverse" {
            letters.reverse();
        }
        assert!(LETTERS.contains(&(letters.len() as u64)), "{source}");
        assert_eq!(answer, letters.join(" "));
    }
}

#[test]
fn what_is_not_learned_is_named() {
    let learned = |exact, seconds| Learned {
        name: "paper".into(),
        exact,
        asked: 2_000,
        time: Duration::from_secs(seconds),
    };
    assert!(learned(1_998, 120).missed().is_empty());
    assert_eq!(
        learned(1_997, 121).missed(),
        [
            "paper: 1997 of 2000 sequences are exact, at least 99.9%",
            "paper: trained in 2 min 1 s, at most 2 min 0 s"
        ]
    );
    let expected = "\
        | choice |   exact |    of | updates |      time |\n\
        | ------ | ------: | ----: | ------: | --------: |\n\
        | paper  | 100.00% | 2,000 |   1,200 | 1 min 5 s |\n";
    assert_eq!(text(&[learned(2_000, 65)], 1_200), expected);
}
