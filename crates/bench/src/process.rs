//! Wall time and memory of a program, from its start to its end. The memory is read from
//! `/proc/PID/status` on Linux.
//!
//! Anonymous memory (`RssAnon`) is allocated by the program; it does not contain pages of mapped
//! files, which the system can drop and read again. The highest value is found by sampling every
//! millisecond.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::statistics::Summary;
use xtask::memory;
use xtask::workspace::{call, shown};

pub const INTERVAL: Duration = Duration::from_millis(1);

/// One run of a program.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub time: Duration,
    /// The time on processors, in steps of 10 ms.
    pub processor: f64,
    pub memory: Memory,
}

/// Highest values in bytes; 0 if the program ended before the first sample.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Allocated by the program.
    pub anonymous: u64,
    /// All resident memory, mapped files included.
    pub resident: u64,
}

impl Memory {
    /// The memory of a process now; `resident` is the highest so far.
    fn of(process: u32) -> Option<Memory> {
        Some(Memory {
            anonymous: memory::of(process, "RssAnon")?,
            resident: memory::of(process, "VmHWM")?,
        })
    }

    fn or_higher(self, other: Memory) -> Memory {
        Memory {
            anonymous: self.anonymous.max(other.anonymous),
            resident: self.resident.max(other.resident),
        }
    }
}

/// The times of runs in seconds.
pub fn seconds(runs: &[Measured]) -> Summary {
    Summary::of(runs.iter().map(|run| run.time.as_secs_f64()))
}

/// Sizes of runs in MB.
pub fn megabytes(runs: &[Measured], of: fn(&Memory) -> u64) -> Summary {
    Summary::of(runs.iter().map(|run| of(&run.memory) as f64 / 1e6))
}

/// The highest memory of all runs.
pub fn peak(runs: &[Measured]) -> Memory {
    runs.iter().fold(Memory::default(), |peak, run| peak.or_higher(run.memory))
}

/// Runs `command` to its end; its output is shown only if it fails.
pub fn measure(command: &mut Command) -> Result<Measured> {
    measure_piped(command.stdin(Stdio::null()).stdout(Stdio::null()))
}

/// The same with its own input and output.
pub fn measure_piped(command: &mut Command) -> Result<Measured> {
    let shown = shown(command);
    if Memory::of(std::process::id()).is_none() {
        bail!(
            "{shown}: memory is measured from /proc/PID/status, which this system does not have; run the bench on Linux"
        );
    }
    command.stderr(Stdio::piped());
    let ended = AtomicBool::new(false);
    let (before, start) = (processor_seconds()?, Instant::now());
    let child = command.spawn().with_context(|| format!("{shown}: cannot start"))?;
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
    Ok(Measured { time, processor: processor_seconds()?.of_children - before.of_children, memory })
}

/// Seconds on processors, in steps of 10 ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessorSeconds {
    pub own: f64,
    /// Those of programs that have ended.
    pub of_children: f64,
}

/// Processor seconds of this process so far.
pub fn processor_seconds() -> Result<ProcessorSeconds> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    parse(&stat).with_context(|| format!("/proc/self/stat: expected times, found {stat:?}"))
}

/// From the text of a `stat` file of Linux, which counts hundredths of a second.
pub fn parse(stat: &str) -> Option<ProcessorSeconds> {
    // The program's name, in parentheses, may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || Some(fields.next()?.parse::<u64>().ok()? as f64 / 100.0);
    Some(ProcessorSeconds { own: next()? + next()?, of_children: next()? + next()? })
}

/// The highest values until the process ended.
fn watch(process: u32, ended: &AtomicBool) -> Memory {
    let mut highest = Memory::default();
    while !ended.load(Ordering::Relaxed) {
        highest = highest.or_higher(Memory::of(process).unwrap_or_default());
        thread::sleep(INTERVAL);
    }
    highest
}

/// Waits until the disk is idle, so that no run is slowed by the previous one.
pub fn rest() -> Result<()> {
    call(&mut Command::new("sync"))
}
