//! Unit tests of `processors`.

use cognate_bench::processors::first;

#[test]
fn the_first_processors_of_a_list() {
    for (list, count, expected) in [
        ("0-1", 1, Some("0")),
        ("2,4-7", 3, Some("2,4,5")),
        ("3", 1, Some("3")),
        ("0-1", 3, None),
        ("?", 1, None),
    ] {
        assert_eq!(first(list, count).as_deref(), expected, "{count} of {list}");
    }
}
