//! Tiles of 16 rows of 64 bytes, which Intel's AMX multiplies: many times as many numbers at a time
//! as vectors.
//!
//! Stable Rust has no functions for these instructions, which are in Intel's Software Developer's
//! Manual, volume 2.

use crate::instructions::Instructions;
use pulp::x86::V4;
use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::sync::OnceLock;

/// Rows of a tile.
pub(crate) const ROWS: usize = 16;
/// Bytes of a row of a tile.
pub(crate) const BYTES: usize = 64;
/// Rows and columns of a block: two tiles each, whose sums are in four tiles.
pub(crate) const BLOCK: usize = 2 * ROWS;

/// Whether tiles can be used: the processor has them, and the system lets this process use them.
pub(crate) fn are_usable() -> bool {
    static USABLE: OnceLock<bool> = OnceLock::new();
    let are_present = || {
        let has_leaf = __cpuid_count(0, 0).eax >= 7;
        let has = |bit: u32| __cpuid_count(7, 0).edx >> bit & 1 == 1;
        // AMX-BF16, AMX-TILE and AMX-INT8.
        has_leaf && [22, 24, 25].into_iter().all(has) && V4::try_new().is_some() && is_permitted()
    };
    Instructions::All.are_allowed() && *USABLE.get_or_init(are_present)
}

/// Linux lets a process use tiles once it has asked.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: a request that changes no memory of this process.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// The operand of `ldtilecfg`: palette 1, in which all tiles have 16 rows of 64 bytes.
#[repr(align(64))]
struct Shapes(#[expect(dead_code, reason = "the processor reads them")] [u8; 64]);

static FULL: Shapes = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = BYTES as u8;
        bytes[48 + tile] = ROWS as u8;
        tile += 1;
    }
    Shapes(bytes)
};

/// Tiles are [`FULL`] while this exists. Compiled code does not use them otherwise.
pub(crate) struct Configured;

impl Configured {
    /// # Safety
    /// Tiles [`are_usable`].
    pub(crate) unsafe fn new() -> Self {
        // SAFETY: the caller's; the configuration is as large as the instruction reads.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const FULL, options(nostack, readonly)) };
        Self
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: the processor has tiles. Without any in use, less is saved when threads take
        // turns.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}
