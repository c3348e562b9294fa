//! The limit of instructions.

use cognate_kernels::{Instructions, multiplies_bf16, multiplies_integers, reads_halves};

/// Each set includes those before it; the names are those of the environment variable.
#[test]
fn a_limit_removes_instructions_and_is_removed() {
    let all = || [multiplies_integers(), multiplies_bf16(), reads_halves()];
    let unlimited = all();
    assert_eq!(Instructions::Scalar.limit(all), [false; 3]);
    let [integers, bf16, _] = Instructions::Avx2.limit(all);
    assert_eq!((integers, bf16), (unlimited[0] && cfg!(target_arch = "x86_64"), false));
    let within = Instructions::All.limit(|| (Instructions::Scalar.limit(all), all()));
    assert_eq!(within, ([false; 3], unlimited));
    assert_eq!(all(), unlimited);
    assert!(Instructions::NAMES.is_sorted_by_key(|(_, set)| set));
}
