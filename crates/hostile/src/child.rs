//! One command in a process of its own: how it ended, what it said, how long it took and how much memory.

#[cfg_attr(target_os = "linux", path = "child/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "child/elsewhere.rs")]
mod process;

use std::time::Duration;

use super::Expect;

pub(super) use self::process::run;

/// How a process ended.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "processes are measured on Linux only"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By itself, with this exit code.
    Exit(i32),
    /// By a signal of the system.
    Signal,
    /// By us, after too long a time.
    Killed,
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) end: End,
    /// On standard error.
    pub(super) said: String,
    /// By the clock: what a person waits, also where a command sleeps or waits for something.
    pub(super) time: Duration,
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

/// What the end of a command means.
pub(super) fn judge(ended: &Ended, expect: Expect, time: Duration, memory: u64) -> Outcome {
    let panicked = ["panicked at", "a bug in cognate"].iter().any(|words| ended.said.contains(words));
    let caught = ended.said.contains("error: ") && ended.said.contains(": it panicked: ");
    let name = match expect {
        Expect::Refused(name) | Expect::Either(name) => name,
    };
    match ended.end {
        _ if panicked => Outcome::Panic,
        End::Killed => Outcome::Slow,
        End::Signal => Outcome::Crash,
        _ if ended.time > time => Outcome::Slow,
        _ if ended.memory > memory => Outcome::OverMemory,
        End::Exit(0) if matches!(expect, Expect::Refused(_)) => Outcome::Swallowed,
        End::Exit(0) => Outcome::Accepted,
        End::Exit(101) => Outcome::Panic,
        End::Exit(_) if caught && ended.said.contains(name) => Outcome::Caught,
        End::Exit(_) if ended.said.contains("error: ") && ended.said.contains(name) => Outcome::Refused,
        End::Exit(_) => Outcome::Nameless,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(end: End, said: &str) -> Ended {
        Ended { end, said: said.into(), time: Duration::ZERO, memory: 1 }
    }

    #[test]
    fn every_end_is_told_apart() {
        let failed = |said| ended(End::Exit(1), said);
        let either = Expect::Either("config.json");
        for (ended, expect, outcome) in [
            (failed("cognate: error: a/config.json: no"), either, Outcome::Refused),
            (failed("cognate: error: no"), either, Outcome::Nameless),
            (failed("cognate: error: config.json: it panicked: no"), either, Outcome::Caught),
            (failed("cognate: error: internal error (a bug in cognate), please report it"), either, Outcome::Panic),
            (ended(End::Exit(101), ""), either, Outcome::Panic),
            (ended(End::Signal, ""), either, Outcome::Crash),
            (ended(End::Killed, ""), either, Outcome::Slow),
            (ended(End::Exit(0), ""), either, Outcome::Accepted),
            (ended(End::Exit(0), ""), Expect::Refused(""), Outcome::Swallowed),
            // Also where it sleeps, and no processor is busy with it.
            (Ended { time: Duration::from_secs(3), ..ended(End::Exit(0), "") }, either, Outcome::Slow),
            (Ended { memory: 3, ..ended(End::Exit(0), "") }, either, Outcome::OverMemory),
        ] {
            assert_eq!(judge(&ended, expect, Duration::from_secs(2), 2), outcome, "{ended:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_is_measured() {
        let scratch = tempfile::tempdir().unwrap();
        let shell = |script: &str| run(std::path::Path::new("sh"), &["-c", script].map(Into::into), scratch.path(), None).unwrap();
        // Long enough to be looked at: the sizes of what ends at once and is smaller than this process are not known.
        let ended = shell("echo no >&2; sleep 1; exit 1");
        assert_eq!((ended.end, ended.said.as_str()), (End::Exit(1), "no\n"));
        assert!(ended.memory > 100_000, "{ended:?}");
        // It sleeps, which takes no processor.
        assert!(ended.time >= Duration::from_secs(1), "{ended:?}");
        assert_eq!(shell("kill -SEGV $$").end, End::Signal);
    }
}
