//! Unit tests of `decode::limits`.

use cognate_bench::decode::limits::*;
use cognate_bench::decode::shape::Column;
use cognate_bench::decode::shape::SHAPES;
use cognate_bench::decode::ways::Weights;

#[test]
fn small_batches_wait_for_memory_and_large_ones_for_products() {
    // 153.6 MB a step take 7.1 ms; 2 x 38.4 million x 128 operations take 45 ms. The encoder
    // multiplies 24 rows for a sentence.
    let limits = Limits { bytes: [21.6e9, 30e9, 43.2e9, 86.4e9], f32: 219e9, int8: None };
    let of = |weights, batch, beams| {
        limits.tokens_per_second(&SHAPES[0], weights, Column { batch, beams }, false)
    };
    let encoder = |sentences: f64| 2.0 * 22_020_096.0 * 24.0 * sentences / 219e9;
    let expected = 32.0 / (encoder(1.0) + 32.0 * 153_616_384.0 / 21.6e9);
    assert!((of(Weights::F32, 1, 1) - expected).abs() < 1e-6, "{}", of(Weights::F32, 1, 1));
    let step = 2.0 * 38_404_096.0 * 128.0 / 219e9;
    assert!(
        (of(Weights::F32, 32, 4) - 1024.0 / (encoder(32.0) + 32.0 * step)).abs() < 1e-6,
        "{}",
        of(Weights::F32, 32, 4)
    );
    // What is smaller is read faster, as caches hold some of it.
    let expected = 32.0 / ((22_020_096.0 + 32.0 * 38_404_096.0) / 43.2e9);
    assert!((of(Weights::Int8, 1, 1) - expected).abs() < 1e-6, "{}", of(Weights::Int8, 1, 1));
    let expected = 32.0 / ((11_010_048.0 + 32.0 * 19_202_048.0) / 86.4e9);
    assert!((of(Weights::Int4, 1, 1) - expected).abs() < 1e-6, "{}", of(Weights::Int4, 1, 1));
    // Of 38,404,096 elements 16,384,000 are in 8 bits.
    let found =
        limits.tokens_per_second(&SHAPES[0], Weights::F32, Column { batch: 1, beams: 1 }, true);
    let expected =
        32.0 / (encoder(1.0) + 32.0 * (4.0 * 22_020_096.0 / 21.6e9 + 16_384_000.0 / 43.2e9));
    assert!((found - expected).abs() < 1e-6, "{found}");
}

#[test]
fn the_best_of_all_programs_is_the_limit() {
    let answer = |text| serde_json::from_str::<Answer>(text).unwrap();
    let nothing = Limits { bytes: [0.0; 4], f32: 0.0, int8: None };
    let limits = nothing.with(&answer(r#"{"bytes_per_second": [3, 1, 5, 4]}"#));
    let limits =
        limits.with(&answer(r#"{"bytes_per_second": [2, 2, 2, 5], "f32": 7, "int8": null}"#));
    assert_eq!((limits.bytes, limits.f32, limits.int8), ([3.0, 2.0, 5.0, 5.0], 7.0, None));
}
