//! Randomly mutated files for readers that must not panic. Tests use the same mutations in every
//! run, `cargo xtask fuzz` new ones for a given time.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Environment variable: seconds per target, instead of a fixed number of mutations.
pub const FUZZ_SECONDS: &str = "COGNATE_FUZZ_SECONDS";

/// Random numbers (SplitMix64; Steele et al. 2014).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Calls `read` with `times` mutated copies of `seeds`, or for `COGNATE_FUZZ_SECONDS`. Prints their
/// number as `fuzz TARGET: N executions`.
///
/// # Panics
/// If `read` panics, after reporting the input.
pub fn never_panics(target: &str, seeds: &[Vec<u8>], times: u64, mut read: impl FnMut(&[u8])) {
    assert!(!seeds.is_empty(), "{target}: no seeds");
    let seconds =
        env::var(FUZZ_SECONDS).ok().and_then(|text| text.parse().ok()).map(Duration::from_secs);
    // A fuzzing run uses mutations other than those of the tests.
    let first = seconds.map_or(0, |_| u64::from(std::process::id()) << 32);
    let start = Instant::now();
    let mut number = 0;
    while seconds.map_or(number < times, |seconds| start.elapsed() < seconds) {
        let bytes = mutated(seeds, first + number);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| read(&bytes))) {
            let file = env::temp_dir().join(format!("cognate-{target}-{}", first + number));
            // Best effort: the number is enough to reproduce the bytes.
            let _ = std::fs::write(&file, &bytes);
            eprintln!(
                "{target}: mutation {} of {} bytes panics; written to {}",
                first + number,
                bytes.len(),
                file.display()
            );
            resume_unwind(panic);
        }
        number += 1;
    }
    eprintln!("fuzz {target}: {number} executions");
}

/// The mutation with a number.
pub fn mutated(seeds: &[Vec<u8>], number: u64) -> Vec<u8> {
    let mut random = Random(number);
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..1 + random.below(4) {
        let place = random.below(bytes.len());
        let last = bytes.len().min(place + 1 + random.below(16));
        match random.below(10) {
            0 => bytes.truncate(place),
            1 => bytes.extend_from_within(place..last),
            2 => drop(bytes.drain(place..last)),
            // Splices two files.
            3 => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len());
                let end = other.len().min(from + 1 + random.below(64));
                bytes.splice(place..last, other[from..end].iter().copied());
            }
            // Numbers at which sums overflow.
            4 => {
                let value = [
                    0,
                    1,
                    u64::MAX,
                    u64::MAX / 2,
                    1 << 31,
                    1 << 32,
                    1 << 62,
                    0x8080_8080_8080_8080,
                ][random.below(8)];
                let width = [1, 2, 4, 8][random.below(4)].min(bytes.len() - place);
                bytes[place..place + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
            // Brackets, quotes and digits of JSON.
            5 if place < bytes.len() => bytes[place] = b"{}[]\",:0-9eE.\\"[random.below(14)],
            6 if place < bytes.len() => bytes[place] = random.next() as u8,
            _ if place < bytes.len() => bytes[place] ^= 1 << random.below(8),
            _ => {}
        }
    }
    bytes
}
