//! Runs a command in its own process: its exit, messages, time and memory.

#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
use std::path::Path;
use std::time::Duration;

use super::case::Expect;

#[cfg(target_os = "linux")]
pub(super) use self::linux::run;

/// Processes are measured on Linux only.
#[cfg(not(target_os = "linux"))]
pub(super) fn run(
    program: &Path,
    _arguments: &[String],
    _scratch: &Path,
    _library: Option<&Path>,
) -> anyhow::Result<Ended> {
    anyhow::bail!("{}: time and memory of processes are measured on Linux only", program.display())
}

/// How a process ended.
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "processes are measured on Linux only")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The exit code.
    Exit(i32),
    /// A signal of the system.
    Signal,
    /// Killed at the time limit.
    Killed,
}

/// A command that ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) end: End,
    /// Standard error.
    pub(super) said: String,
    /// Wall time, which includes waiting.
    pub(super) time: Duration,
    /// The highest resident size in bytes.
    pub(super) memory: u64,
}

/// The outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Refused,
    Accepted,
    /// An engine panicked, and Cognate returned an error.
    Caught,
    /// The file was accepted, but an error was expected.
    Swallowed,
    /// The error does not name the file.
    Nameless,
    Panic,
    Crash,
    Slow,
    OverMemory,
}

impl Outcome {
    /// All outcomes with their names in the table; failures are in capitals.
    pub(super) const ALL: [(Self, &'static str); 9] = [
        (Self::Refused, "refused"),
        (Self::Accepted, "accepted"),
        (Self::Caught, "caught"),
        (Self::Swallowed, "SWALLOWED"),
        (Self::Nameless, "NAMELESS"),
        (Self::Panic, "PANIC"),
        (Self::Crash, "CRASH"),
        (Self::Slow, "SLOW"),
        (Self::OverMemory, "OVER MEMORY"),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find(|(outcome, _)| *outcome == self)
            .map_or("unknown", |(_, name)| name)
    }

    pub(super) fn is_failure(self) -> bool {
        !matches!(self, Self::Refused | Self::Accepted | Self::Caught)
    }
}

/// The outcome of a command.
pub(super) fn judge(ended: &Ended, expect: Expect, time: Duration, memory: u64) -> Outcome {
    let panicked =
        ["panicked at", "a bug in cognate"].iter().any(|words| ended.said.contains(words));
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
        End::Exit(_) if ended.said.contains("error: ") && ended.said.contains(name) => {
            Outcome::Refused
        }
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
    fn outcomes_are_distinguished() {
        let failed = |said| ended(End::Exit(1), said);
        let either = Expect::Either("config.json");
        for (ended, expect, outcome) in [
            (failed("cognate: error: a/config.json: no"), either, Outcome::Refused),
            (failed("cognate: error: no"), either, Outcome::Nameless),
            (failed("cognate: error: config.json: it panicked: no"), either, Outcome::Caught),
            (
                failed("cognate: error: internal error (a bug in cognate), please report it"),
                either,
                Outcome::Panic,
            ),
            (ended(End::Exit(101), ""), either, Outcome::Panic),
            (ended(End::Signal, ""), either, Outcome::Crash),
            (ended(End::Killed, ""), either, Outcome::Slow),
            (ended(End::Exit(0), ""), either, Outcome::Accepted),
            (ended(End::Exit(0), ""), Expect::Refused(""), Outcome::Swallowed),
            // Waiting time counts.
            (
                Ended { time: Duration::from_secs(3), ..ended(End::Exit(0), "") },
                either,
                Outcome::Slow,
            ),
            (Ended { memory: 3, ..ended(End::Exit(0), "") }, either, Outcome::OverMemory),
        ] {
            assert_eq!(judge(&ended, expect, Duration::from_secs(2), 2), outcome, "{ended:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_is_measured() {
        let scratch = tempfile::tempdir().unwrap();
        let shell = |script: &str| {
            run(std::path::Path::new("sh"), &["-c", script].map(Into::into), scratch.path(), None)
                .unwrap()
        };
        // Long enough to be sampled: if a process is smaller than this one, its size is unknown at
        // its end.
        let ended = shell("echo no >&2; sleep 1; exit 1");
        assert_eq!((ended.end, ended.said.as_str()), (End::Exit(1), "no\n"));
        assert!(ended.memory > 100_000, "{ended:?}");
        assert!(ended.time >= Duration::from_secs(1), "{ended:?}");
        assert_eq!(shell("kill -SEGV $$").end, End::Signal);
    }
}
