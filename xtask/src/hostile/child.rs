//! One command in a process of its own: how it ended, what it said, how long it took and how much memory.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Expect;

/// What runs longer is ended.
const PATIENCE: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(1);

/// KiB of addresses that a process may have, so that what goes wrong does not take the machine with it.
const FENCE: &str = "8000000";

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// `None` where it had to be killed.
    status: Option<ExitStatus>,
    /// On standard error.
    pub(super) said: String,
    /// By the clock.
    pub(super) time: Duration,
    /// On processors: less than the time where the machine has other things to do.
    pub(super) busy: Duration,
    /// The highest resident size in bytes.
    pub(super) memory: u64,
}

/// What a command made of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Refused,
    Accepted,
    /// An engine panicked, of which Cognate made an error.
    Caught,
    /// Accepted, and should not have been.
    Swallowed,
    /// Refused by an error that does not name the file.
    Nameless,
    Panic,
    Crash,
    Slow,
    OverMemory,
}

impl Outcome {
    pub(super) const ALL: [Self; 9] = [
        Self::Refused,
        Self::Accepted,
        Self::Caught,
        Self::Swallowed,
        Self::Nameless,
        Self::Panic,
        Self::Crash,
        Self::Slow,
        Self::OverMemory,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Accepted => "accepted",
            Self::Caught => "caught",
            Self::Swallowed => "SWALLOWED",
            Self::Nameless => "NAMELESS",
            Self::Panic => "PANIC",
            Self::Crash => "CRASH",
            Self::Slow => "SLOW",
            Self::OverMemory => "OVER MEMORY",
        }
    }

    pub(super) fn is_failure(self) -> bool {
        !matches!(self, Self::Refused | Self::Accepted | Self::Caught)
    }
}

/// Runs `program`; `scratch` takes its temporary files and what it says.
pub(super) fn run(program: &Path, arguments: &[OsString], scratch: &Path, library: Option<&Path>) -> Result<Ended> {
    let (temporary, said) = (scratch.join("tmp"), scratch.join("said"));
    fs::create_dir_all(&temporary).with_context(|| temporary.display().to_string())?;
    let file = File::create(&said).with_context(|| said.display().to_string())?;
    let mut command = Command::new("sh");
    // A core file of a crash is of no use here.
    command.args(["-c", &format!("ulimit -c 0; ulimit -v {FENCE}; exec \"$0\" \"$@\"")]).arg(program).args(arguments);
    command.env("TMPDIR", &temporary).env_remove("RUST_BACKTRACE").env_remove("COGNATE_MODEL").current_dir(scratch);
    if let Some(library) = library {
        command.env("ORT_DYLIB_PATH", library);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    let start = Instant::now();
    let child = command.spawn().context("sh: cannot be started")?;
    let id = libc::pid_t::try_from(child.id()).context("a process number")?;
    let (mut killed, mut seen) = (false, 0);
    let (status, busy, highest) = loop {
        if let Some(ended) = reap(id)? {
            break ended;
        }
        if !killed && start.elapsed() > PATIENCE {
            // SAFETY: the process is our own child, and not reaped yet, so that its number is nobody else's.
            unsafe { libc::kill(id, libc::SIGKILL) };
            killed = true;
        }
        seen = resident(id).unwrap_or_default().max(seen);
        std::thread::sleep(INTERVAL);
    };
    let time = start.elapsed();
    // A child begins with the highest size of this process: what lies above is its own.
    let own = resident(libc::pid_t::try_from(std::process::id()).context("a process number")?).unwrap_or_default();
    let memory = if highest > own { highest } else { seen };
    let bytes = fs::read(&said).with_context(|| said.display().to_string())?;
    let said = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Ended { status: (!killed).then_some(status), said, time, busy, memory })
}

/// The highest resident size in bytes that a process had so far, by Linux's account.
fn resident(id: libc::pid_t) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// How a child ended, with its time on processors and the highest resident size in bytes that it had; `None` while it runs.
fn reap(id: libc::pid_t) -> Result<Option<(ExitStatus, Duration, u64)>> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both places live through the call, which writes them or fails; zeros are a legal `rusage`.
    let (found, usage) = unsafe {
        let found = libc::wait4(id, &mut status, libc::WNOHANG, usage.as_mut_ptr());
        (found, usage.assume_init())
    };
    match found {
        0 => Ok(None),
        found if found == id => {
            let kibibytes = u64::try_from(usage.ru_maxrss).unwrap_or_default();
            let part =
                |time: libc::timeval| Duration::from_micros(u64::try_from(time.tv_sec * 1_000_000 + time.tv_usec).unwrap_or_default());
            Ok(Some((ExitStatus::from_raw(status), part(usage.ru_utime) + part(usage.ru_stime), kibibytes * 1024)))
        }
        _ => Err(io::Error::last_os_error()).context("a child cannot be waited for"),
    }
}

/// What the end of a command means.
pub(super) fn judge(ended: &Ended, expect: Expect, time: Duration, memory: u64) -> Outcome {
    let panicked = ["panicked at", "a mistake of this program"].iter().any(|words| ended.said.contains(words));
    let caught = ended.said.contains("error: ") && ended.said.contains(": it panicked: ");
    let name = match expect {
        Expect::Refused(name) | Expect::Either(name) => name,
    };
    match ended.status {
        _ if panicked => Outcome::Panic,
        None => Outcome::Slow,
        Some(status) if status.signal().is_some() => Outcome::Crash,
        _ if ended.time.min(ended.busy) > time => Outcome::Slow,
        _ if ended.memory > memory => Outcome::OverMemory,
        Some(status) if status.success() && matches!(expect, Expect::Refused(_)) => Outcome::Swallowed,
        Some(status) if status.success() => Outcome::Accepted,
        Some(status) if status.code() == Some(101) => Outcome::Panic,
        Some(_) if caught && ended.said.contains(name) => Outcome::Caught,
        Some(_) if ended.said.contains("error: ") && ended.said.contains(name) => Outcome::Refused,
        Some(_) => Outcome::Nameless,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(raw: Option<i32>, said: &str) -> Ended {
        Ended { status: raw.map(ExitStatus::from_raw), said: said.into(), time: Duration::ZERO, busy: Duration::ZERO, memory: 1 }
    }

    #[test]
    fn every_end_is_told_apart() {
        let failed = 1 << 8;
        let either = Expect::Either("config.json");
        for (ended, expect, outcome) in [
            (ended(Some(failed), "cognate: error: a/config.json: no"), either, Outcome::Refused),
            (ended(Some(failed), "cognate: error: no"), either, Outcome::Nameless),
            (ended(Some(failed), "cognate: error: config.json: it panicked: no"), either, Outcome::Caught),
            (ended(Some(failed), "cognate: error: a mistake of this program, please report it"), either, Outcome::Panic),
            (ended(Some(101 << 8), ""), either, Outcome::Panic),
            (ended(Some(libc::SIGSEGV), ""), either, Outcome::Crash),
            (ended(None, ""), either, Outcome::Slow),
            (ended(Some(0), ""), either, Outcome::Accepted),
            (ended(Some(0), ""), Expect::Refused(""), Outcome::Swallowed),
            (Ended { time: Duration::from_secs(3), busy: Duration::from_secs(3), ..ended(Some(0), "") }, either, Outcome::Slow),
            (Ended { time: Duration::from_secs(3), ..ended(Some(0), "") }, either, Outcome::Accepted),
            (Ended { memory: 3, ..ended(Some(0), "") }, either, Outcome::OverMemory),
        ] {
            assert_eq!(judge(&ended, expect, Duration::from_secs(2), 2), outcome, "{ended:?}");
        }
    }

    #[test]
    fn a_process_is_measured() {
        let scratch = tempfile::tempdir().unwrap();
        // Long enough to be looked at: the sizes of what ends at once and is smaller than this process are not known.
        let ended = run(Path::new("sh"), &["-c", "echo no >&2; sleep 1; exit 1"].map(Into::into), scratch.path(), None).unwrap();
        assert_eq!((ended.status.and_then(|status| status.code()), ended.said.as_str()), (Some(1), "no\n"));
        assert!(ended.memory > 100_000, "{ended:?}");
    }
}
