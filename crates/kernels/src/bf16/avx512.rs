//! Products of pairs of bfloat16 (AVX-512 BF16).

use super::{PAIR, nearest, padded_bf16};
use crate::groups::{Dots, GROUP, Groups, Multiply};
use crate::instructions::arch;
use crate::parallel::Parallel;
use pulp::{Simd, WithSimd};
use std::arch::x86_64::*;
use std::cell::Cell;
use std::mem::transmute;
use std::ops::Range;

/// Bytes of a number.
const SIZE: usize = 2;
/// Pairs of a vector.
const LANES: usize = 16;

/// Weights in pairs. The bias is added to the sums.
#[derive(Debug)]
pub(super) struct Pairs(Groups);

thread_local! {
    /// Memory of rounded rows, reused by the next product.
    static ROUNDED: Cell<Vec<u16>> = const { Cell::new(Vec::new()) };
}

impl Pairs {
    pub(super) fn pack(
        [inputs, outputs]: [usize; 2],
        fill: &mut dyn FnMut(usize, &mut [f32]),
        bias: Option<&[f32]>,
    ) -> Self {
        let (mut groups, mut row) =
            (Groups::zeros(inputs * SIZE, outputs, LANES, GROUP), vec![0.0; inputs]);
        let step = groups.columns * SIZE * PAIR;
        for output in 0..outputs {
            fill(output, &mut row);
            let first = groups.place(output, 0);
            let places =
                groups.panels.all_mut().get_mut(first..).unwrap_or_default().chunks_mut(step);
            for (place, pair) in places.zip(row.chunks(PAIR)) {
                for (bytes, &weight) in place.chunks_exact_mut(SIZE).zip(pair) {
                    bytes.copy_from_slice(&nearest(weight).to_ne_bytes().map(|byte| byte as i8));
                }
            }
        }
        if let Some(bias) = bias {
            groups.ends[..outputs].copy_from_slice(bias);
        }
        Self(groups)
    }

    pub(super) fn inputs(&self) -> usize {
        self.0.bytes / SIZE
    }

    pub(super) fn outputs(&self) -> usize {
        self.0.outputs
    }

    pub(super) fn multiply_columns(
        &self,
        x: &[f32],
        columns: Range<usize>,
        out: &mut [f32],
        threads: &dyn Parallel,
    ) {
        rounded(x, x.len(), |x| {
            // SAFETY: any two bytes of a number are valid bytes.
            let x = unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), size_of_val(x)) };
            // SAFETY: weights are packed only if the processor has the instructions.
            self.0.multiply(x, &columns, out, threads, |work| unsafe { with_avx512(work) });
        });
    }
}

/// As [`dots_of_bf16`](super::dots_of_bf16), if the processor has the instructions.
pub(super) fn dots(x: &[f32], rows: &[u16], out: &mut [f32]) {
    // SAFETY: by contract.
    rounded(x, padded_bf16(x.len()), |x| unsafe { dots_with_avx512(x, rows, out) });
}

/// Calls `work` with the rounded numbers, padded with zeros to `len`.
fn rounded(x: &[f32], len: usize, work: impl FnOnce(&[u16])) {
    let mut memory = ROUNDED.take();
    memory.resize(memory.len().max(len), 0);
    let (to, rest) = memory[..len].split_at_mut(x.len());
    arch().dispatch(Round { x, to });
    rest.fill(0);
    work(&memory[..len]);
    ROUNDED.set(memory);
}

struct Round<'a> {
    x: &'a [f32],
    to: &'a mut [u16],
}

impl WithSimd for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (to, &x) in self.to.iter_mut().zip(self.x) {
            *to = nearest(x);
        }
    }
}

#[derive(Clone, Copy)]
struct Avx512Bf16;

impl Dots for Avx512Bf16 {
    type Sums = __m512;
    type Scaled = __m512;
    const LANES: usize = 16;
    const ROWS: usize = 10;

    #[inline(always)]
    unsafe fn load(self, starts: *const i32) -> __m512 {
        // SAFETY: by contract, here and below. Zeros are zeros in both types.
        unsafe { _mm512_loadu_ps(starts.cast()) }
    }

    #[inline(always)]
    unsafe fn dot(self, sums: __m512, bytes: u32, weights: *const i8) -> __m512 {
        // SAFETY: by contract; both types have the same bits.
        unsafe {
            let (pair, weights) =
                (_mm512_set1_epi32(bytes as i32), _mm512_loadu_si512(weights.cast()));
            _mm512_dpbf16_ps(
                sums,
                transmute::<__m512i, __m512bh>(pair),
                transmute::<__m512i, __m512bh>(weights),
            )
        }
    }

    #[inline(always)]
    unsafe fn scaled(self, sums: __m512, bias: *const f32) -> __m512 {
        // SAFETY: by contract.
        unsafe { _mm512_add_ps(sums, _mm512_loadu_ps(bias)) }
    }

    #[inline(always)]
    unsafe fn store(self, numbers: __m512, out: *mut f32) {
        // SAFETY: by contract.
        unsafe { _mm512_storeu_ps(out, numbers) }
    }
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn with_avx512(work: &Multiply<'_>) {
    work.run(Avx512Bf16);
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn dots_with_avx512(x: &[u16], rows: &[u16], out: &mut [f32]) {
    let n_bytes = size_of_val(x);
    let rows = rows
        .chunks((LANES * x.len()).max(1))
        .map(<[u16]>::as_ptr)
        .chain(std::iter::repeat(rows.as_ptr()));
    for (out, rows) in out.chunks_mut(LANES).zip(rows) {
        // A block that is not full sums its last row several times.
        let offsets: [i32; LANES] =
            std::array::from_fn(|lane| (lane.min(out.len() - 1) * n_bytes) as i32);
        // SAFETY: an array of the same size.
        let mut offsets = unsafe { _mm512_loadu_si512(offsets.as_ptr().cast()) };
        let mut sums = _mm512_setzero_ps();
        for pair in x.as_chunks::<2>().0 {
            let pair = _mm512_set1_epi32(i32::from(pair[0]) | i32::from(pair[1]) << 16);
            // SAFETY: pairs of as many rows as `out` has elements; types with the same bits.
            unsafe {
                let weights = _mm512_i32gather_epi32::<1>(offsets, rows.cast());
                sums = _mm512_dpbf16_ps(
                    sums,
                    transmute::<__m512i, __m512bh>(pair),
                    transmute::<__m512i, __m512bh>(weights),
                );
            }
            offsets = _mm512_add_epi32(offsets, _mm512_set1_epi32(4));
        }
        let mut all = [0.0; LANES];
        // SAFETY: an array of the same length.
        unsafe { _mm512_storeu_ps(all.as_mut_ptr(), sums) };
        out.copy_from_slice(&all[..out.len()]);
    }
}
