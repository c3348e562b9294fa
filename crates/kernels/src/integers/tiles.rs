//! Products of tiles of bytes (AMX-INT8), for many rows.

use crate::groups::{GROUP, Groups, Multiply};
use crate::tiles::{BLOCK, BYTES, Configured, ROWS};
use std::arch::asm;
use std::arch::x86_64::*;

/// Bytes of rows that stay in the second-level cache while all weights are read.
const CACHED: usize = 1 << 17;

/// Whether a product of `n` rows can be computed by tiles, which have to be full.
pub(super) fn fit(n: usize, weights: &Groups) -> bool {
    n >= ROWS && weights.bytes > 0 && weights.bytes.is_multiple_of(BYTES)
}

/// Sums of a block.
#[repr(align(64))]
struct Sums([[i32; BLOCK]; BLOCK]);

/// Computes some panels of a product.
///
/// # Safety
/// Tiles [are usable](crate::tiles::are_usable), and the product [`fit`]s.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn multiply(work: &Multiply<'_>) {
    let width = work.weights.bytes;
    assert!(fit(work.n, work.weights) && work.weights.columns == BLOCK, "full tiles");
    assert_eq!(work.x.len(), work.n * width, "[n, inputs]");
    let step = (CACHED / width).next_multiple_of(BLOCK);
    // SAFETY: by contract.
    let _configured = unsafe { Configured::new() };
    let mut sums = Sums([[0; BLOCK]; BLOCK]);
    for first in (0..work.n).step_by(step) {
        let end = (first + step).min(work.n);
        for panel in work.panels.clone() {
            let packed = &work.weights.panels.all()[panel * width * BLOCK..][..width * BLOCK];
            for row in (first..end).step_by(BLOCK) {
                // The last tiles end with the last row: they compute some rows again.
                let rows = [row, row + ROWS].map(|row| row.min(work.n - ROWS));
                let x = rows.map(|row| work.x[row * width..][..ROWS * width].as_ptr());
                // SAFETY: there are 16 rows of `width` bytes from each start, and a panel of
                // `width / 4` groups of 32 columns; tiles are configured.
                unsafe { sum(x, width, packed.as_ptr(), &mut sums) };
                for (rows, sums) in rows.into_iter().zip(sums.0.as_chunks::<ROWS>().0) {
                    write(work, panel, rows, sums);
                }
            }
        }
    }
}

/// The products of two times 16 rows of `width` bytes and a panel.
///
/// # Safety
/// Tiles are configured, and there are as many bytes at the pointers.
unsafe fn sum(x: [*const u8; 2], width: usize, panel: *const i8, sums: &mut Sums) {
    // SAFETY: the caller's; there are as many sums as are written.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            "tileloadd tmm4, [{upper} + {width}]",
            "tileloadd tmm6, [{panel} + {line}]",
            "tdpbusd tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{panel} + {line} + 64]",
            "tdpbusd tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{lower} + {width}]",
            "tdpbusd tmm2, tmm5, tmm6",
            "tdpbusd tmm3, tmm5, tmm7",
            "add {upper}, 64",
            "add {lower}, 64",
            "add {panel}, 2048",
            "dec {count}",
            "jnz 2b",
            "tilestored [{sums} + {line}], tmm0",
            "tilestored [{sums} + {line} + 64], tmm1",
            "tilestored [{sums} + {line} + 2048], tmm2",
            "tilestored [{sums} + {line} + 2112], tmm3",
            upper = inout(reg) x[0] => _,
            lower = inout(reg) x[1] => _,
            width = in(reg) width,
            panel = inout(reg) panel => _,
            // The bytes from one group of a panel to the next, and from one row of sums.
            line = in(reg) BLOCK * GROUP,
            count = inout(reg) width / BYTES => _,
            sums = in(reg) &raw mut *sums,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// Scales the sums of 16 rows and writes them.
#[target_feature(enable = "avx512f")]
fn write(work: &Multiply<'_>, panel: usize, row: usize, sums: &[[i32; BLOCK]; ROWS]) {
    const LANES: usize = 16;
    let (Groups { starts, ends, outputs, .. }, columns) = (work.weights, &work.columns);
    for half in (0..BLOCK).step_by(LANES) {
        let first = panel * BLOCK + half;
        let n = outputs.saturating_sub(first).min(LANES);
        let [starts, ends]: [*const i32; 2] =
            [starts[first..][..LANES].as_ptr(), ends[first..][..LANES].as_ptr().cast()];
        for (index, sums) in sums.iter().enumerate() {
            let start = (row + index) * columns.len() + first.min(*outputs) - columns.start;
            // SAFETY: each thread writes its own panels; vectors are of 16 numbers of the slices.
            unsafe {
                let out = work.out.part(start, n);
                let sums = _mm512_add_epi32(
                    _mm512_loadu_si512(sums[half..].as_ptr().cast()),
                    _mm512_loadu_si512(starts.cast()),
                );
                let numbers = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_loadu_ps(ends.cast()));
                _mm512_mask_storeu_ps(out.as_mut_ptr(), ((1_u32 << n) - 1) as u16, numbers);
            }
        }
    }
}
