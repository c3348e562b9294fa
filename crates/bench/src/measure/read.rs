//! `cognate-bench measure read`: the number of bytes that this machine reads per second, if it
//! reads the same memory repeatedly.
//!
//! Each step of a decoder reads all weights. Weights beyond the processor's caches come from
//! memory, so the speed depends on their size. The best way to read differs between processors:
//! several are tried, in ordinary and in huge pages.

use std::io::Write;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cognate_kernels::prefetch_behind;
use memmap2::MmapMut;
use pulp::Arch;
use serde_json::json;

/// Bytes of a block: an ordinary page.
pub const BLOCK: usize = 4096;
/// Number of passes over the memory, of which the fastest counts, and minimum number of bytes of a
/// pass, compared with which starting threads is fast.
pub const PASSES: usize = 5;
pub const PASS_BYTES: usize = 1 << 27;
/// Largest size: 8 GiB, beyond every cache.
pub const MOST_BYTES: usize = 1 << 33;
/// Largest number of threads.
pub const MOST_THREADS: usize = 1 << 12;

/// Measure how fast this machine reads the same memory repeatedly
///
/// Prints a line of JSON: bytes per second for each size, the best of several ways to read.
#[derive(clap::Args)]
pub struct Read {
    /// Number of threads, each with a part of the bytes
    #[arg(long, value_name = "N", default_value = "1")]
    pub threads: NonZeroUsize,
    /// Sizes in bytes, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', required = true)]
    pub bytes: Vec<NonZeroUsize>,
}

/// A way to read: the number of parallel streams over parts of the memory, and the distance of
/// prefetching in bytes.
#[derive(Clone, Copy)]
pub struct Way {
    pub streams: usize,
    pub ahead: usize,
}

pub const WAYS: [Way; 4] = [
    Way { streams: 1, ahead: 0 },
    Way { streams: 1, ahead: 2 * BLOCK },
    Way { streams: 4, ahead: 0 },
    Way { streams: 4, ahead: BLOCK },
];

/// Runs the command.
pub fn run(options: &Read, out: &mut dyn Write) -> Result<()> {
    ensure!(
        options.threads.get() <= MOST_THREADS,
        "--threads: expected at most {MOST_THREADS}, found {}",
        options.threads
    );
    let speeds: Vec<f64> = options
        .bytes
        .iter()
        .map(|bytes| fastest(bytes.get(), options.threads.get()))
        .collect::<Result<_>>()?;
    super::print_line(out, &json!({ "bytes_per_second": speeds }))
}

/// Bytes per second of the best way.
pub fn fastest(bytes: usize, threads: usize) -> Result<f64> {
    let mut best = 0.0f64;
    let least = 4 * BLOCK * threads;
    ensure!(
        (least..=MOST_BYTES).contains(&bytes),
        "--bytes: expected {least} (16 KiB for each thread) to {MOST_BYTES}, found {bytes}"
    );
    for in_huge_pages in [false, true] {
        // A multiple of blocks for all streams.
        let part = (bytes / threads).next_multiple_of(4 * BLOCK);
        let memory =
            (0..threads).map(|_| memory(part, in_huge_pages)).collect::<Result<Vec<_>>>()?;
        let repeats = PASS_BYTES.div_ceil(part * threads);
        for way in WAYS {
            for _ in 0..PASSES {
                let start = Instant::now();
                thread::scope(|scope| {
                    for memory in &memory {
                        scope.spawn(move || (0..repeats).for_each(|_| way.read(memory)));
                    }
                });
                best = best.max((part * threads * repeats) as f64 / start.elapsed().as_secs_f64());
            }
        }
    }
    Ok(best)
}

/// Memory that has been written to, in huge pages if requested and available.
pub fn memory(bytes: usize, in_huge_pages: bool) -> Result<MmapMut> {
    let mut memory = MmapMut::map_anon(bytes).context("no memory to read")?;
    #[cfg(target_os = "linux")]
    {
        let pages =
            if in_huge_pages { memmap2::Advice::HugePage } else { memmap2::Advice::NoHugePage };
        // Systems without huge pages use ordinary ones.
        let _ = memory.advise(pages);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = in_huge_pages;
    memory.fill(1);
    Ok(memory)
}

impl Way {
    pub fn read(self, memory: &[u8]) {
        let stream = memory.len() / self.streams;
        let streams: Vec<&[u8]> = memory.chunks_exact(stream).collect();
        for start in (0..stream).step_by(BLOCK) {
            for stream in &streams {
                let block = &stream[start..start + BLOCK];
                if self.ahead > 0 {
                    prefetch_behind(block, self.ahead);
                }
                std::hint::black_box(sum(block));
            }
        }
    }
}

/// The wrapping sum of a block's 64-bit numbers; reads each byte once, with the processor's longest
/// vectors.
pub fn sum(block: &[u8]) -> u64 {
    Arch::new().dispatch(
        #[inline(always)]
        || sum_lines(block),
    )
}

#[inline(always)]
#[allow(
    clippy::needless_range_loop,
    reason = "iterators over two sides are not always inlined into functions of other instruction sets"
)]
fn sum_lines(block: &[u8]) -> u64 {
    const NUMBERS: usize = 64;
    let mut sums = [0u64; NUMBERS];
    let (numbers, _) = block.as_chunks::<8>();
    let (lines, _) = numbers.as_chunks::<NUMBERS>();
    for line in lines {
        for place in 0..NUMBERS {
            sums[place] = sums[place].wrapping_add(u64::from_le_bytes(line[place]));
        }
    }
    let mut sum = 0u64;
    for part in sums {
        sum = sum.wrapping_add(part);
    }
    sum
}
