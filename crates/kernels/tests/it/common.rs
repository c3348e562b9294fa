//! What the tests of several modules need.

use cognate_kernels::{Instructions, Parallel};

/// All sets of instructions; those that the processor lacks are computed by the best that it has.
pub(crate) fn sets() -> impl Iterator<Item = Instructions> {
    Instructions::NAMES.into_iter().map(|(_, set)| set)
}

/// Sizes `[n, inputs, outputs]` of products that fill tiles, panels and groups, and that do not.
pub(crate) const SIZES: [[usize; 3]; 8] = [
    [1, 64, 256],
    [1, 7, 3],
    [2, 16, 200],
    [5, 31, 33],
    [13, 8, 64],
    [29, 101, 130],
    [0, 4, 4],
    [3, 0, 5],
];

/// Numbers between -1 and 1 without a pattern.
pub(crate) fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|index| ((index * 7_919 + seed * 104_729) % 2_003) as f32 / 1_001.5 - 1.0).collect()
}

/// Asserts that `run` gives the same results with all instructions, except for rounding.
#[track_caller]
pub(crate) fn assert_same(run: impl Fn() -> Vec<f32>, what: &str) {
    let expected = Instructions::Scalar.limit(&run);
    for set in sets() {
        let found = set.limit(&run);
        // False for NaN too.
        let is_near = |(found, expected): &(&f32, &f32)| (*found - *expected).abs() < 1e-6;
        let other = found.iter().zip(&expected).find(|pair| !is_near(pair));
        assert_eq!((found.len(), other), (expected.len(), None), "{what}, {set:?}");
    }
}

/// Asserts that a number is `x · weights + bias` in f64, except for rounding.
#[track_caller]
pub(crate) fn assert_product(found: f32, [x, weights]: [&[f32]; 2], bias: f32, what: &str) {
    let products = x.iter().zip(weights).map(|(&x, &weight)| f64::from(x) * f64::from(weight));
    let (sum, size) = products.fold((0.0, 1.0), |(sum, size), x| (sum + x, size + x.abs()));
    let expected = sum + f64::from(bias);
    let distance = (f64::from(found) - expected).abs();
    assert!(distance < 1e-6 * size, "{what}: {found} {expected}");
}

/// Three threads, which compute one after the other.
pub(crate) struct InTurn;

impl Parallel for InTurn {
    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..n).rev().for_each(work);
    }

    fn threads(&self) -> usize {
        3
    }
}

/// The largest rounding error of a sum of `n` products and a bias in f32, relative to the sum of
/// their magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1).
pub(crate) fn rounding(n: usize) -> f64 {
    (n + 2) as f64 * f64::from(f32::EPSILON) / 2.0
}
