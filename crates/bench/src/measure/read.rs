//! `cognate-bench measure read`: how many bytes of memory this machine reads in a second, again and again the same ones.
//!
//! A step of a decoder reads every weight once, and the next step reads them again: what does not fit into the processor's caches
//! comes from memory, the rest from the caches. So the speed depends on how many bytes there are. Each of several ways to read is
//! tried, in ordinary pages and in huge ones, for what is best differs from processor to processor.

use std::io::Write;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cognate_kernels::prefetch_behind;
use memmap2::MmapMut;
use multiversion::multiversion;
use serde_json::json;

/// Bytes of a block: an ordinary page.
pub const BLOCK: usize = 4096;
/// Passes over the memory of which the fastest counts, and the bytes that a pass reads at least, so that starting threads is nothing.
pub const PASSES: usize = 5;
pub const PASS_BYTES: usize = 1 << 27;
/// The most bytes that can be asked for: 8 GiB, beyond every cache.
pub const MOST_BYTES: usize = 1 << 33;
/// More threads than any machine has.
pub const MOST_THREADS: usize = 1 << 12;

/// Measure how fast this machine reads memory, the same bytes again and again
///
/// Prints a line of JSON: bytes per second for each size, the best of several ways to read.
#[derive(clap::Args)]
pub struct Read {
    /// Threads, each with its part of the bytes
    #[arg(long, value_name = "N", default_value = "1")]
    pub threads: NonZeroUsize,
    /// Bytes that are read again and again, with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', required = true)]
    pub bytes: Vec<NonZeroUsize>,
}

/// A way to read: streams side by side, each a part of the memory, and how many bytes ahead it asks for what comes.
#[derive(Clone, Copy)]
pub struct Way {
    pub streams: usize,
    pub ahead: usize,
}

pub const WAYS: [Way; 4] =
    [Way { streams: 1, ahead: 0 }, Way { streams: 1, ahead: 2 * BLOCK }, Way { streams: 4, ahead: 0 }, Way { streams: 4, ahead: BLOCK }];

/// Runs the command.
pub fn run(options: &Read, out: &mut dyn Write) -> Result<()> {
    ensure!(options.threads.get() <= MOST_THREADS, "--threads: expected at most {MOST_THREADS}, found {}", options.threads);
    let speeds: Vec<f64> = options.bytes.iter().map(|bytes| fastest(bytes.get(), options.threads.get())).collect::<Result<_>>()?;
    super::print_line(out, &json!({ "bytes_per_second": speeds }))
}

/// Bytes in a second, of the best way.
pub fn fastest(bytes: usize, threads: usize) -> Result<f64> {
    let mut best = 0.0f64;
    let least = 4 * BLOCK * threads;
    ensure!((least..=MOST_BYTES).contains(&bytes), "--bytes: expected {least} (16 KiB for each thread) to {MOST_BYTES}, found {bytes}");
    for in_huge_pages in [false, true] {
        // Of whole blocks for as many streams as there are at most.
        let part = (bytes / threads).next_multiple_of(4 * BLOCK);
        let memory = (0..threads).map(|_| memory(part, in_huge_pages)).collect::<Result<Vec<_>>>()?;
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

/// Memory that has been written to, in huge pages where it is said and the system has them.
pub fn memory(bytes: usize, in_huge_pages: bool) -> Result<MmapMut> {
    let mut memory = MmapMut::map_anon(bytes).context("no memory to read")?;
    #[cfg(target_os = "linux")]
    {
        let pages = if in_huge_pages { memmap2::Advice::HugePage } else { memmap2::Advice::NoHugePage };
        // A system without huge pages has ordinary ones.
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

/// The sum of a block's numbers of 64 bits, without carries; reads each byte once, by the processor's longest vectors.
#[allow(clippy::needless_range_loop, reason = "iterators over two sides are not always inlined into functions of other instruction sets")]
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "aarch64+neon"))]
pub fn sum(block: &[u8]) -> u64 {
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
