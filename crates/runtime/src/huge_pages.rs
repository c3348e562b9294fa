//! Huge pages for memory that is read repeatedly.
//!
//! A step of a decoder reads every weight once: tens of thousands of pages of 4 KiB, more than a
//! processor caches addresses of. Linux uses huge pages of 2 MiB only on request, and engines do
//! not request them. With [`Options::huge_pages`], a separate thread moves the memory that an
//! engine allocated while loading a file into huge pages, after the file has been used for a while,
//! so that short runs are not delayed. With ONNX Runtime this makes a step of Marian's base shape a
//! tenth faster, measured in one process before and after.
//!
//! Other memory of the process is not moved. Stacks of threads that an engine starts while
//! loading are recognised by the guard page below them; since Linux 6.7 the system itself
//! excludes stacks from huge pages. Memory that other threads allocate during loading cannot be
//! distinguished, and is moved too.
//!
//! Nothing happens if huge pages are disabled or not supported.

use crate::Options;
use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// The size and alignment of a huge page, in bytes.
const HUGE: usize = 2 << 20;
/// Number of runs of a file's sessions before its memory is moved.
const FIRST: u64 = 64;
/// `MADV_COLLAPSE` of Linux 6.1 and newer; older kernels reject it.
#[cfg(target_os = "linux")]
const COLLAPSE: libc::c_int = 25;

/// The mapped memory before a file is loaded; `None` without [`Options::huge_pages`].
pub(crate) struct Before(Option<Vec<Range<usize>>>);

impl Before {
    /// Call before a file is loaded.
    pub(crate) fn loading(options: &Options) -> Self {
        Self((options.huge_pages && is_allowed()).then(anonymous))
    }

    /// Call after it is loaded.
    pub(crate) fn loaded(self) -> HugePages {
        let taken = self.0.map(|before| without(&anonymous(), &before));
        HugePages(taken.map(|ranges| {
            Arc::new(Taken { ranges, runs: AtomicU64::new(0), is_dropped: AtomicBool::new(false) })
        }))
    }
}

/// The memory allocated while loading a file.
pub(crate) struct HugePages(Option<Arc<Taken>>);

struct Taken {
    ranges: Vec<Range<usize>>,
    runs: AtomicU64,
    is_dropped: AtomicBool,
}

impl HugePages {
    /// Call after each run of a session.
    pub(crate) fn after_run(&self) {
        let Some(taken) = &self.0 else { return };
        if taken.runs.fetch_add(1, Ordering::Relaxed) + 1 == FIRST {
            let taken = Arc::clone(taken);
            // If the thread cannot be started, the memory is not moved.
            let _ =
                thread::Builder::new().name("huge pages".into()).spawn(move || taken.collapse());
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(taken) = &self.0 {
            // The memory may now be reused for other purposes.
            taken.is_dropped.store(true, Ordering::Relaxed);
        }
    }
}

impl Taken {
    /// Moves the memory huge page by huge page, so that no access waits for long.
    fn collapse(&self) {
        for range in common(&anonymous(), &self.ranges) {
            let first = range.start.next_multiple_of(HUGE);
            for page in (first..range.end).step_by(HUGE).take_while(|page| page + HUGE <= range.end)
            {
                if self.is_dropped.load(Ordering::Relaxed) {
                    return;
                }
                collapse(page);
            }
        }
    }
}

/// Whether programs may request huge pages.
fn is_allowed() -> bool {
    fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|setting| !setting.contains("[never]"))
}

/// The memory of this process that is neither a file nor a stack, by address.
fn anonymous() -> Vec<Range<usize>> {
    fs::read_to_string("/proc/self/maps").map(|maps| anonymous_ranges(&maps)).unwrap_or_default()
}

/// Parses lines such as `7f0000000000-7f0000200000 rw-p 00000000 00:00 0    [heap]`. Memory
/// directly above an inaccessible page is a thread's stack above its guard page.
fn anonymous_ranges(maps: &str) -> Vec<Range<usize>> {
    let (mut found, mut guard_end) = (Vec::new(), None);
    for (range, access, is_memory) in maps.lines().filter_map(mapping) {
        if is_memory && guard_end != Some(range.start) {
            found.push(range.clone());
        }
        guard_end = (access == "---p").then_some(range.end);
    }
    found
}

/// Range and access of a mapping, and whether it is unnamed memory or the heap.
fn mapping(line: &str) -> Option<(Range<usize>, &str, bool)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let [access, _offset, _device, inode] =
        [fields.next()?, fields.next()?, fields.next()?, fields.next()?];
    let is_memory =
        access == "rw-p" && inode == "0" && fields.next().is_none_or(|name| name == "[heap]");
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    Some((address(start)?..address(end)?, access, is_memory))
}

/// The parts of `now` that are not in `before`; both are sorted by address.
fn without(now: &[Range<usize>], before: &[Range<usize>]) -> Vec<Range<usize>> {
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

/// The intersection of two sorted lists.
fn common(one: &[Range<usize>], other: &[Range<usize>]) -> Vec<Range<usize>> {
    let overlap = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start)..a.end.min(b.end);
    one.iter()
        .flat_map(|a| other.iter().map(move |b| overlap(a, b)))
        .filter(|range| !range.is_empty())
        .collect()
}

#[cfg(target_os = "linux")]
fn collapse(page: usize) {
    // SAFETY: the call changes the location of memory, but not its contents. It fails harmlessly if
    // the memory was unmapped.
    unsafe { libc::madvise(page as *mut libc::c_void, HUGE, COLLAPSE) };
}

#[cfg(not(target_os = "linux"))]
fn collapse(_: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(bounds: &[[usize; 2]]) -> Vec<Range<usize>> {
        bounds.iter().map(|&[start, end]| start..end).collect()
    }

    #[test]
    fn memory_of_files_and_stacks_is_left_alone() {
        let memory = "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 ";
        assert_eq!(anonymous_ranges(memory), ranges(&[[0x7f00_0000_0000, 0x7f00_0020_0000]]));
        assert_eq!(
            anonymous_ranges("10-20 rw-p 00000000 00:00 0    [heap]"),
            ranges(&[[0x10, 0x20]])
        );
        let others = [
            "10-20 rw-p 00000000 00:00 0    [stack]",
            "10-20 rw-p 00000000 00:00 0    [anon:stack]",
            "10-20 r--p 00000000 00:00 0",
            "10-20 rw-s 00000000 00:00 0",
            "10-20 rw-p 00000000 08:01 77   /lib/some.so",
            "nonsense",
        ];
        others.iter().for_each(|line| assert_eq!(anonymous_ranges(line), [], "{line}"));
    }

    /// A guard page, the stack of a thread, memory above it, and memory above a hole.
    #[test]
    fn what_lies_above_a_guard_page_is_a_stack() {
        let maps = "10-20 ---p 0 00:00 0\n20-30 rw-p 0 00:00 0\n30-40 rw-p 0 00:00 0\n50-60 ---p 0 00:00 0\n70-80 rw-p 0 00:00 0\n";
        assert_eq!(anonymous_ranges(maps), ranges(&[[0x30, 0x40], [0x70, 0x80]]));
    }

    #[test]
    fn only_what_loading_took_is_moved() {
        for (now, before, expected) in [
            (&[[0, 9]][..], &[][..], &[[0, 9]][..]),
            (&[[0, 9]], &[[0, 9]], &[]),
            (&[[0, 9]], &[[2, 4], [6, 7]], &[[0, 2], [4, 6], [7, 9]]),
            (&[[5, 9], [20, 30]], &[[0, 6], [30, 40]], &[[6, 9], [20, 30]]),
            (&[[5, 6]], &[[0, 9]], &[]),
        ] {
            assert_eq!(
                without(&ranges(now), &ranges(before)),
                ranges(expected),
                "{now:?} without {before:?}"
            );
        }
        for (now, taken, expected) in [
            (&[[0, 9]][..], &[[2, 4], [6, 12]][..], &[[2, 4], [6, 9]][..]),
            (&[[0, 3], [5, 9]], &[[2, 6]], &[[2, 3], [5, 6]]),
            (&[[0, 3]], &[[3, 6]], &[]),
        ] {
            assert_eq!(
                common(&ranges(now), &ranges(taken)),
                ranges(expected),
                "{now:?} and {taken:?}"
            );
        }
    }

    /// The embedding process decides about its memory.
    #[test]
    fn nothing_is_looked_at_unless_asked() {
        assert!(Before::loading(&Options::default()).0.is_none());
        let pages = Before::loading(&Options::default()).loaded();
        (0..2 * FIRST).for_each(|_| pages.after_run());
        assert!(pages.0.is_none());
    }

    /// Memory allocated before and after loading is not moved, nor are stacks of threads started
    /// while loading.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_has_the_memory_that_its_loading_took() {
        const SIZE: usize = 64 << 20;
        if !is_allowed() {
            return eprintln!("skipped: huge pages are turned off");
        }
        let earlier = vec![1u8; SIZE];
        let before = Before::loading(&Options { huge_pages: true, ..Options::default() });
        let weights = vec![1u8; SIZE];
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let worker = thread::Builder::new().stack_size(16 << 20).spawn(move || {
            let place = 0u8;
            tell.send(&raw const place as usize).expect("the test listens");
            let _ = ended.recv();
        });
        let worker = worker.expect("a thread");
        let stack = told.recv().expect("a place");
        let pages = before.loaded();
        let later = vec![1u8; SIZE];
        let taken = &pages.0.as_ref().expect("requested").ranges;
        let middle = |memory: &[u8]| memory.as_ptr() as usize + SIZE / 2;
        let is_taken = |place: usize| taken.iter().any(|range| range.contains(&place));
        let found = [middle(&earlier), middle(&weights), stack, middle(&later)].map(is_taken);
        drop(end);
        worker.join().expect("no panic");
        assert_eq!(found, [false, true, false, false], "earlier, loaded, stack, later");
    }
}
