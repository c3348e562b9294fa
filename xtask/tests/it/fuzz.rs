//! Tests of `fuzz`.

use xtask::fuzz::*;
#[test]
fn executions_are_read() {
    let said = "running 1 test\ntest fuzz::fuzz_config ... fuzz config: 12 executions\nok\nfuzz bart-merges.txt: 7 executions\n";
    assert_eq!(executions(said), [("config".to_owned(), 12), ("bart-merges.txt".to_owned(), 7)]);
}
