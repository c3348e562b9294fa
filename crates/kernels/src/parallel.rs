//! Work that is divided among threads.

use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

/// Threads that divide work.
pub trait Parallel {
    /// Calls `work` for each index below `n`, in any order, possibly concurrently, and returns
    /// after all calls.
    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync));

    /// Number of threads.
    fn threads(&self) -> usize;
}

/// Only the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Serial;

impl Parallel for Serial {
    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..n).for_each(work);
    }

    fn threads(&self) -> usize {
        1
    }
}

/// Number of multiplications below which starting threads costs more than it saves.
const ENOUGH: usize = 1 << 16;

/// Divides the panels of a product `[rows, inputs, panels]` among the threads.
pub(crate) fn by_columns(
    threads: &dyn Parallel,
    sizes: [usize; 3],
    work: impl Fn(Range<usize>) + Sync,
) {
    let [rows, inputs, panels] = sizes;
    by_parts(threads, panels, rows * inputs * panels * 16, work);
}

/// Divides `n` parts among the threads, if they need enough multiplications.
pub(crate) fn by_parts(
    threads: &dyn Parallel,
    n: usize,
    multiplications: usize,
    work: impl Fn(Range<usize>) + Sync,
) {
    let parts = threads.threads().min(n);
    if parts <= 1 || multiplications < ENOUGH {
        return work(0..n);
    }
    threads.each(parts, &|part| work(n * part / parts..n * (part + 1) / parts));
}

/// A slice of which threads write different parts.
pub(crate) struct Shared<'o, T> {
    start: *mut T,
    len: usize,
    _lent: PhantomData<&'o mut [T]>,
}

// SAFETY: the only access is `part`, whose callers take parts that do not overlap.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'o, T> Shared<'o, T> {
    pub(crate) fn new(numbers: &'o mut [T]) -> Self {
        Self { start: numbers.as_mut_ptr(), len: numbers.len(), _lent: PhantomData }
    }

    /// Where a number is.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub(crate) fn at(&self, place: usize) -> *mut T {
        assert!(place < self.len, "within the numbers");
        self.start.wrapping_add(place)
    }

    /// `n` numbers from `start` on.
    ///
    /// # Safety
    /// No other part that is in use overlaps this one.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "parts do not overlap")]
    pub(crate) unsafe fn part(&self, start: usize, n: usize) -> &mut [T] {
        assert!(start + n <= self.len, "within the numbers");
        // SAFETY: they are within the borrowed slice, and the caller guarantees the rest.
        unsafe { slice::from_raw_parts_mut(self.start.add(start), n) }
    }
}
