//! Tests of `table`.

use std::time::Duration;
use xtask::table::*;
#[test]
fn columns_are_aligned() {
    let rows = [["tiny", "7"], ["d", "1,234"]].map(|row| row.map(str::to_owned).to_vec());
    assert_eq!(
        table(&["model", "bytes"], &rows),
        "| model | bytes |\n| ----- | ----: |\n| tiny  |     7 |\n| d     | 1,234 |\n"
    );
}

#[test]
fn numbers_read_well() {
    for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (60_554_496, "60,554,496")] {
        assert_eq!(thousands(number), text);
    }
    for (count, text) in [(12, "12 B"), (1_500, "1.5 kB"), (242_217_984, "242.2 MB")] {
        assert_eq!(bytes(count), text);
    }
    for (millis, text) in [(312, "0.312 s"), (12_300, "12.3 s"), (65_000, "1 min 5 s")] {
        assert_eq!(duration(Duration::from_millis(millis)), text);
    }
}
