//! Prefetching of memory.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches numbers that are read soon.
#[inline(always)]
pub(crate) fn prefetch<N>(numbers: &[N]) {
    for line in (0..numbers.len()).step_by(LINE / size_of::<N>()) {
        ask(numbers.as_ptr().wrapping_add(line));
    }
}

/// Prefetches as many numbers as `part` has, `distance` numbers after its start: those of the next
/// row, while this one is processed. They need not exist.
#[inline(always)]
pub fn prefetch_behind<N: Copy>(part: &[N], distance: usize) {
    for line in (0..part.len()).step_by(LINE / size_of::<N>()) {
        ask(part.as_ptr().wrapping_add(distance + line));
    }
}

/// Prefetches the line at any address.
#[inline(always)]
pub(crate) fn ask<N>(address: *const N) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: it is a hint without visible effects, valid for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
