//! Binding programs to processors.
//!
//! A program of one thread that the system moves from a processor to one that is busy with something else takes up to twice as
//! long for the same call. Bound to as many processors as it has threads, every program meets the same.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// `program` on the first `threads` processors that are ours to use; on any of them where Linux's `taskset` is missing.
pub fn bound(program: &Path, threads: usize) -> Command {
    let Some(list) = are_bound().then(allowed).flatten().and_then(|allowed| first(&allowed, threads)) else {
        return Command::new(program);
    };
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &list]).arg(program);
    command
}

/// Whether programs can be bound here.
pub fn are_bound() -> bool {
    let asked = Command::new("taskset").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// As Linux lists them: `0-3,8`.
pub fn allowed() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix("Cpus_allowed_list:")?.trim().to_owned()))
}

/// The first `count` of a list; nothing where it is shorter.
pub fn first(list: &str, count: usize) -> Option<String> {
    let mut processors = Vec::new();
    for range in list.split(',') {
        let (start, end) = range.split_once('-').unwrap_or((range, range));
        processors.extend(start.parse::<usize>().ok()?..=end.parse().ok()?);
    }
    let first: Vec<String> = processors.get(..count)?.iter().map(usize::to_string).collect();
    Some(first.join(","))
}
