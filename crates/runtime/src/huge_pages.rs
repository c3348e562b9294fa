//! Huge pages for memory that is read over and over.
//!
//! A step of a decoder reads every weight once: tens of thousands of pages of 4 KiB, more than a processor keeps addresses of,
//! so that it looks up one after the other. Linux gives ordinary programs huge pages of 2 MiB only on request, and engines do not
//! ask. Here the memory that a process has taken since its first model is moved into huge pages, by a thread of its own, once it
//! has been in use for a while: a process of one short run is not kept from its work. On ONNX Runtime a step of Marian's base shape
//! took a tenth less time, measured in one process before and after.
//!
//! Where the system's administrator has turned huge pages off, or the system has none, nothing happens.

use std::fs;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// The size and alignment of a huge page, in bytes.
#[cfg(target_os = "linux")]
const HUGE: usize = 2 << 20;
/// Runs of sessions after which memory is moved the first time, and again after as many times more: engines take more memory when
/// larger inputs come.
const FIRST: u64 = 64;
const FACTOR: u64 = 8;
/// `MADV_COLLAPSE` of Linux 6.1 and newer; older ones refuse it.
#[cfg(target_os = "linux")]
const COLLAPSE: libc::c_int = 25;

/// What was there before the first model.
static BEFORE: OnceLock<Vec<Range<usize>>> = OnceLock::new();
static RUNS: AtomicU64 = AtomicU64::new(0);
static IS_MOVING: AtomicBool = AtomicBool::new(false);
static ARE_LEFT: AtomicBool = AtomicBool::new(false);

/// From now on, models stay in the system's ordinary pages.
pub fn leave_pages() {
    ARE_LEFT.store(true, Ordering::Relaxed);
}

/// A model is about to be loaded.
pub(crate) fn before_loading() {
    BEFORE.get_or_init(|| if is_allowed() { anonymous() } else { Vec::new() });
}

/// A session has run.
pub(crate) fn after_run() {
    let runs = RUNS.fetch_add(1, Ordering::Relaxed) + 1;
    let is_due = runs.is_multiple_of(FIRST) && is_power(runs / FIRST);
    if is_due && is_allowed() && !IS_MOVING.swap(true, Ordering::AcqRel) {
        let moved = thread::Builder::new().name("huge pages".into()).spawn(|| {
            added(&anonymous(), BEFORE.get().map_or(&[], Vec::as_slice)).into_iter().for_each(|range| collapse(&range));
            IS_MOVING.store(false, Ordering::Release);
        });
        if moved.is_err() {
            IS_MOVING.store(false, Ordering::Release);
        }
    }
}

/// Whether it is 1 or a power of [`FACTOR`].
fn is_power(mut number: u64) -> bool {
    while number.is_multiple_of(FACTOR) {
        number /= FACTOR;
    }
    number == 1
}

/// Whether programs may ask for huge pages.
fn is_allowed() -> bool {
    !ARE_LEFT.load(Ordering::Relaxed)
        && fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").is_ok_and(|setting| !setting.contains("[never]"))
}

/// The memory of this process that is no file's and no stack, in the order of addresses.
fn anonymous() -> Vec<Range<usize>> {
    fs::read_to_string("/proc/self/maps").map(|maps| maps.lines().filter_map(anonymous_range).collect()).unwrap_or_default()
}

/// A line as `7f0000000000-7f0000200000 rw-p 00000000 00:00 0    [heap]`.
fn anonymous_range(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let [access, _offset, _device, inode] = [fields.next()?, fields.next()?, fields.next()?, fields.next()?];
    let is_memory = access == "rw-p" && inode == "0" && fields.next().is_none_or(|name| name == "[heap]");
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    is_memory.then_some(address(start)?..address(end)?)
}

/// The parts of `now` that are not in `before`; both in the order of addresses.
fn added(now: &[Range<usize>], before: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut added = Vec::new();
    for range in now {
        let mut start = range.start;
        for old in before.iter().filter(|old| old.start < range.end && old.end > range.start) {
            added.push(start..old.start.max(start));
            start = start.max(old.end);
        }
        added.push(start..range.end.max(start));
    }
    added.retain(|range| !range.is_empty());
    added
}

/// Moves what fills whole huge pages, one after the other, so that nobody waits long for a page.
#[cfg(target_os = "linux")]
fn collapse(range: &Range<usize>) {
    let first = range.start.next_multiple_of(HUGE);
    for page in (first..range.end).step_by(HUGE).take_while(|page| page + HUGE <= range.end) {
        // SAFETY: the call changes where memory lies, and none of its contents. Memory that has been given back meanwhile makes it
        // fail, which is as good.
        unsafe { libc::madvise(page as *mut libc::c_void, HUGE, COLLAPSE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn collapse(_: &Range<usize>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_files_and_stacks_is_left_alone() {
        let memory = "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 ";
        assert_eq!(anonymous_range(memory), Some(0x7f00_0000_0000..0x7f00_0020_0000));
        assert_eq!(anonymous_range("10-20 rw-p 00000000 00:00 0    [heap]"), Some(0x10..0x20));
        let others = [
            "10-20 rw-p 00000000 00:00 0    [stack]",
            "10-20 r--p 00000000 00:00 0",
            "10-20 rw-s 00000000 00:00 0",
            "10-20 rw-p 00000000 08:01 77   /lib/some.so",
            "nonsense",
        ];
        others.iter().for_each(|line| assert_eq!(anonymous_range(line), None, "{line}"));
    }

    #[test]
    fn only_what_came_later_is_moved() {
        let ranges = |bounds: &[[usize; 2]]| bounds.iter().map(|&[start, end]| start..end).collect::<Vec<_>>();
        for (now, before, expected) in [
            (&[[0, 9]][..], &[][..], &[[0, 9]][..]),
            (&[[0, 9]], &[[0, 9]], &[]),
            (&[[0, 9]], &[[2, 4], [6, 7]], &[[0, 2], [4, 6], [7, 9]]),
            (&[[5, 9], [20, 30]], &[[0, 6], [30, 40]], &[[6, 9], [20, 30]]),
            (&[[5, 6]], &[[0, 9]], &[]),
        ] {
            assert_eq!(added(&ranges(now), &ranges(before)), ranges(expected), "{now:?} without {before:?}");
        }
    }

    #[test]
    fn the_times_between_moves_grow() {
        let due: Vec<u64> = (1..=5000).filter(|runs: &u64| runs.is_multiple_of(FIRST) && is_power(runs / FIRST)).collect();
        assert_eq!(due, [64, 512, 4096]);
    }
}
