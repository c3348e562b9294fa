//! Unit tests of `measure::read`.

use cognate_bench::measure::read::*;

#[test]
fn memory_is_read_whole() {
    let memory = memory(12 * BLOCK, true).unwrap();
    assert_eq!(sum(&memory), 0x0101_0101_0101_0101u64.wrapping_mul(memory.len() as u64 / 8));
    // No way leaves the memory's end.
    WAYS.iter().for_each(|way| way.read(&memory));
}
