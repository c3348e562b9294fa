//! Products of rows of unsigned bytes with packed weights of signed bytes:
//! `out = (x - 128) Wᵀ · factors`.
//!
//! `x: u8 [n, inputs]`, `W: i8 [outputs, inputs]`, `out: f32 [n, outputs]`, one factor per output.
//! Sums are 32-bit integers, which are exact in any order of summation.

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod tiles;
#[cfg(target_arch = "x86_64")]
mod vectors;

use crate::groups::{Dots, GROUP, Groups, Multiply};
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
use crate::instructions::Instructions;
use crate::parallel::Parallel;
use std::ops::Range;

/// The byte that represents zero.
const ZERO: i32 = 128;

/// Weights of a layer in 8-bit integers.
#[derive(Debug)]
pub struct IntegerWeights {
    /// Sums start with `-128 · Σ weights`, unless products subtract 128 from the bytes, and are
    /// multiplied by the factors.
    groups: Groups,
    set: Set,
}

/// The instruction set of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// With AMX for many rows.
    #[cfg(target_arch = "x86_64")]
    Tiles,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Of ARM.
    #[cfg(target_arch = "aarch64")]
    DotProducts,
    /// Any processor; slow.
    Scalar,
}

impl Set {
    fn best() -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let has_avx512 =
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni");
            if Instructions::Avx512.are_allowed() && has_avx512 {
                return if crate::tiles::are_usable() { Self::Tiles } else { Self::Avx512Vnni };
            }
            let has_avx2 = is_x86_feature_detected!("avx2");
            let has_vnni = has_avx2 && is_x86_feature_detected!("avxvnni");
            if Instructions::AvxVnni.are_allowed() && has_vnni {
                return Self::AvxVnni;
            }
            if Instructions::Avx2.are_allowed() && has_avx2 {
                return Self::Avx2;
            }
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        if Instructions::All.are_allowed() && std::arch::is_aarch64_feature_detected!("dotprod") {
            return Self::DotProducts;
        }
        Self::Scalar
    }

    /// Lanes of a vector.
    fn lanes(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Tiles | Self::Avx512Vnni => 16,
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni | Self::Avx2 => 8,
            #[cfg(target_arch = "aarch64")]
            Self::DotProducts => 4,
            Self::Scalar => 1,
        }
    }

    /// What is subtracted from the bytes of a row by the sums' first values, not by the products.
    fn zero(self) -> i32 {
        match self {
            #[cfg(target_arch = "aarch64")]
            Self::DotProducts => 0,
            _ => ZERO,
        }
    }

    /// Bytes of a row that stand for one input, and the bytes of the weights of a group.
    fn sizes(self) -> [usize; 2] {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => [vectors::WIDENED; 2],
            _ => [1, GROUP],
        }
    }
}

/// Whether the processor has instructions that multiply integers.
pub fn multiplies_integers() -> bool {
    Set::best() != Set::Scalar
}

impl IntegerWeights {
    /// Packs weights `[inputs, outputs]`, as ONNX stores them: the bytes of signed integers.
    ///
    /// # Panics
    /// If the weights are not `inputs` rows of as many numbers as there are factors.
    pub fn pack(inputs: usize, weights: &[u8], factors: &[f32]) -> Self {
        let (outputs, set) = (factors.len(), Set::best());
        assert_eq!(weights.len(), inputs * outputs, "[inputs, outputs]");
        let [bytes, of_group] = set.sizes();
        let mut groups = Groups::zeros(inputs * bytes, outputs, set.lanes(), of_group);
        for (input, row) in weights.chunks_exact(outputs.max(1)).enumerate() {
            for (panel, part) in row.chunks(groups.columns).enumerate() {
                let column = panel * groups.columns;
                let (first, all) = (groups.place(column, input), groups.panels.all_mut());
                for (index, weight) in part.iter().map(|&weight| weight as i8).enumerate() {
                    all[first + index * of_group] = weight;
                    groups.starts[column + index] -= set.zero() * i32::from(weight);
                }
            }
        }
        groups.ends[..outputs].copy_from_slice(factors);
        Self { groups, set }
    }

    /// The weights of some outputs, in the given order. Their products have the same bits.
    ///
    /// # Panics
    /// If an output does not exist.
    pub fn select(&self, outputs: &[usize]) -> Self {
        Self { groups: self.groups.select(outputs), ..*self }
    }

    /// Width of the rows that are multiplied.
    pub fn inputs(&self) -> usize {
        let [bytes, _] = self.set.sizes();
        self.groups.bytes / bytes
    }

    /// Width of the product's rows.
    pub fn outputs(&self) -> usize {
        self.groups.outputs
    }

    /// `out = (x - 128) Wᵀ · factors`
    ///
    /// # Panics
    /// If a length does not match its dimensions.
    pub fn multiply(&self, x: &[u8], out: &mut [f32], threads: &dyn Parallel) {
        self.multiply_columns(x, 0..self.outputs(), out, threads);
    }

    /// As [`Weights::multiply_columns`](crate::Weights::multiply_columns).
    ///
    /// # Panics
    /// As there.
    pub fn multiply_columns(
        &self,
        x: &[u8],
        columns: Range<usize>,
        out: &mut [f32],
        threads: &dyn Parallel,
    ) {
        let work = |work: &Multiply<'_>| match self.set {
            // SAFETY: weights are packed for instructions that this processor has, here and below.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Set::Tiles if tiles::fit(work.n, work.weights) => unsafe { tiles::multiply(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Set::Tiles | Set::Avx512Vnni => unsafe { vectors::with_avx512(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Set::AvxVnni => unsafe { vectors::with_avx_vnni(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { vectors::with_avx2(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Set::DotProducts => unsafe { neon::with_dot_products(work) },
            Set::Scalar => work.run(Scalar),
        };
        match self.set {
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => vectors::widened(x, |x| {
                self.groups.multiply(x, &columns, out, threads, work);
            }),
            _ => self.groups.multiply(x, &columns, out, threads, work),
        }
    }
}

/// The same without vectors.
#[derive(Clone, Copy)]
struct Scalar;

impl Dots for Scalar {
    type Sums = i32;
    type Scaled = f32;
    const LANES: usize = 1;
    const ROWS: usize = 4;

    unsafe fn load(self, sums: *const i32) -> i32 {
        // SAFETY: by contract.
        unsafe { *sums }
    }

    unsafe fn dot(self, sum: i32, bytes: u32, weights: *const i8) -> i32 {
        // SAFETY: by contract, a group of weights.
        let weights = unsafe { weights.cast::<[i8; GROUP]>().read() };
        bytes
            .to_ne_bytes()
            .iter()
            .zip(weights)
            .fold(sum, |sum, (&byte, weight)| sum + i32::from(byte) * i32::from(weight))
    }

    unsafe fn scaled(self, sum: i32, factors: *const f32) -> f32 {
        // SAFETY: by contract.
        unsafe { sum as f32 * *factors }
    }

    unsafe fn store(self, number: f32, out: *mut f32) {
        // SAFETY: by contract.
        unsafe { *out = number };
    }
}
