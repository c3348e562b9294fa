//! Binding programs to processors.
//!
//! A program of one thread takes up to twice as long for a call if the system moves it to a busy
//! processor. Each program is therefore bound to as many processors as it has threads.

use fs_err as fs;
use std::path::Path;
use std::process::Command;

/// `program` on the first `threads` processors that this process may use; on any of them if Linux's
/// `taskset` is missing.
pub fn bound(program: &Path, threads: usize) -> Command {
    let Some(list) =
        are_bound().then(allowed).flatten().and_then(|allowed| first(&allowed, threads))
    else {
        return Command::new(program);
    };
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &list]).arg(program);
    command
}

/// Whether programs can be bound.
pub fn are_bound() -> bool {
    xtask::workspace::succeeds(Command::new("taskset").arg("--version"))
}

/// The processors of programs for the committed page.
pub fn described() -> &'static str {
    if are_bound() { "as many processors as threads, always the same" } else { "any processor" }
}

/// The processors of this process in Linux's form: `0-3,8`.
pub fn allowed() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix("Cpus_allowed_list:")?.trim().to_owned()))
}

/// The first `count` processors of a list; `None` if it is shorter.
pub fn first(list: &str, count: usize) -> Option<String> {
    let mut processors = Vec::new();
    for range in list.split(',') {
        let (start, end) = range.split_once('-').unwrap_or((range, range));
        processors.extend(start.parse::<usize>().ok()?..=end.parse().ok()?);
    }
    let first: Vec<String> = processors.get(..count)?.iter().map(usize::to_string).collect();
    Some(first.join(","))
}
