//! Asking for memory before it is read.

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// Asks for numbers that are read soon.
#[inline(always)]
pub(crate) fn prefetch(numbers: &[f32]) {
    for line in (0..numbers.len()).step_by(LINE / size_of::<f32>()) {
        ask(numbers.as_ptr().wrapping_add(line));
    }
}

/// Asks for as many numbers as there are in `part`, `distance` numbers behind it: those of the next
/// row, while this one is worked on. There need not be any.
#[inline(always)]
pub fn prefetch_behind<N: Copy>(part: &[N], distance: usize) {
    for line in (0..part.len()).step_by(LINE / size_of::<N>()) {
        ask(part.as_ptr().wrapping_add(distance + line));
    }
}

/// Asks for the line at an address, which may be any.
#[inline(always)]
pub(crate) fn ask<N>(address: *const N) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: it is a hint, which reads and writes nothing that a program could see, at any
        // address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
