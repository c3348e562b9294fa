//! Memory of processes, from `/proc/PID/status` of Linux.

/// A size of a process in bytes, such as `VmRSS` (resident), `VmHWM` (the highest resident) or
/// `RssAnon` (without mapped files). `None` if the process has ended, or on other systems.
pub fn of(process: u32, field: &str) -> Option<u64> {
    in_status(&fs_err::read_to_string(format!("/proc/{process}/status")).ok()?, field)
}

/// A size in bytes from the text of a `status` file.
pub fn in_status(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
