//! Common parts of unit tests.

use crate::parallel::Parallel;
use pulp::{Arch, Scalar, WithSimd};

/// Numbers between -1 and 1 without a pattern.
pub(crate) fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|index| ((index * 7_919 + seed * 104_729) % 2_003) as f32 / 1_001.5 - 1.0).collect()
}

/// The registers for which results are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Registers {
    /// One number.
    Scalar,
    /// Eight numbers, if the processor has such registers.
    Avx2,
    /// The processor's widest.
    Widest,
}

impl Registers {
    /// Runs work with these registers.
    pub(crate) fn run(self, work: impl WithSimd<Output = ()>) {
        #[cfg(target_arch = "x86_64")]
        if let (Registers::Avx2, Some(avx2)) = (self, pulp::x86::V3::try_new()) {
            return pulp::Simd::vectorize(avx2, work);
        }
        match self {
            Registers::Scalar => work.with_simd(Scalar),
            Registers::Avx2 | Registers::Widest => Arch::new().dispatch(work),
        }
    }

    /// Asserts that `run` gives the same results with all of them, except for rounding.
    #[track_caller]
    pub(crate) fn assert_same(run: impl Fn(Self) -> Vec<f32>, what: &str) {
        let expected = run(Self::Scalar);
        for registers in [Self::Avx2, Self::Widest] {
            let found = run(registers);
            // False for NaN too.
            let is_near = |(found, expected): &(&f32, &f32)| (*found - *expected).abs() < 1e-6;
            let other = found.iter().zip(&expected).find(|pair| !is_near(pair));
            assert_eq!((found.len(), other), (expected.len(), None), "{what}, {registers:?}");
        }
    }
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
