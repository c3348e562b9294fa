//! Wall time and memory of a program, from start to end. The memory is Linux's account in `/proc/PID/status`.
//!
//! Anonymous memory (`RssAnon`) is what a program allocated itself; pages of mapped files, which the system may drop and
//! read again, are not in it. The highest value is found by looking every millisecond.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use xtask::workspace::{call, shown};

pub const INTERVAL: Duration = Duration::from_millis(1);

/// What one run of a program took.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub time: Duration,
    pub memory: Memory,
}

/// Highest values in bytes; 0 for a program that ended before it was looked at.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Allocated by the program itself.
    pub anonymous: u64,
    /// All that was resident, mapped files included.
    pub resident: u64,
}

/// Runs `command` to its end; its output is swallowed and shown only where it fails.
pub fn measure(command: &mut Command) -> Result<Measured> {
    let shown = shown(command);
    if memory_of(std::process::id()).is_none() {
        bail!("{shown}: memory is measured from /proc/PID/status, which this system does not have; run the bench on Linux");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let ended = AtomicBool::new(false);
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("{shown}: cannot be started"))?;
    let process = child.id();
    let (output, time, memory) = thread::scope(|scope| {
        let watch = scope.spawn(|| watch(process, &ended));
        let output = child.wait_with_output();
        let time = start.elapsed();
        ended.store(true, Ordering::Relaxed);
        (output, time, watch.join().expect("the watch only reads a file"))
    });
    let output = output.with_context(|| format!("{shown}: cannot be waited for"))?;
    if !output.status.success() {
        bail!("{shown}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(Measured { time, memory })
}

/// The highest values seen until the process ended.
pub fn watch(process: u32, ended: &AtomicBool) -> Memory {
    let mut highest = Memory::default();
    while !ended.load(Ordering::Relaxed) {
        if let Some(now) = memory_of(process) {
            highest.anonymous = highest.anonymous.max(now.anonymous);
            highest.resident = highest.resident.max(now.resident);
        }
        thread::sleep(INTERVAL);
    }
    highest
}

pub fn memory_of(process: u32) -> Option<Memory> {
    parse(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

/// `RssAnon` now and `VmHWM`, the highest resident size so far, which a process that has ended no longer has.
pub fn parse(status: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes * 1024)
    };
    Some(Memory { anonymous: field("RssAnon")?, resident: field("VmHWM")? })
}

/// Waits until the disk has everything, so that no run pays for the one before.
pub fn rest() -> Result<()> {
    call(&mut Command::new("sync"))
}
