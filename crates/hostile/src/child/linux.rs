//! Runs a process and measures its time and memory, by `/proc` and `wait4`.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{End, Ended};

/// Time limit.
const PATIENCE: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(1);

/// Limit of a process's address space in KiB, which protects the machine.
const FENCE: &str = "8000000";

/// Runs `program`; its temporary files and messages are in `scratch`.
pub(crate) fn run(
    program: &Path,
    arguments: &[String],
    scratch: &Path,
    library: Option<&Path>,
) -> Result<Ended> {
    let (temporary, said) = (scratch.join("tmp"), scratch.join("said"));
    fs::create_dir_all(&temporary).with_context(|| temporary.display().to_string())?;
    let file = File::create(&said).with_context(|| said.display().to_string())?;
    let mut command = Command::new("sh");
    // Without core files.
    command
        .args(["-c", &format!("ulimit -c 0; ulimit -v {FENCE}; exec \"$0\" \"$@\"")])
        .arg(program)
        .args(arguments);
    command
        .env("TMPDIR", &temporary)
        .env_remove("RUST_BACKTRACE")
        .env_remove("COGNATE_MODEL")
        .current_dir(scratch);
    if let Some(library) = library {
        command.env("ORT_DYLIB_PATH", library);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    let start = Instant::now();
    let child = command.spawn().context("sh: cannot start")?;
    let (resident, id) = (
        |id| xtask::memory::of(id, "VmHWM").unwrap_or_default(),
        libc::pid_t::try_from(child.id()).context("a process id")?,
    );
    let (mut killed, mut seen) = (false, 0);
    let (status, highest) = loop {
        if let Some(ended) = reap(id)? {
            break ended;
        }
        if !killed && start.elapsed() > PATIENCE {
            // SAFETY: the process is a child of this one and not reaped, so its id is not reused.
            unsafe { libc::kill(id, libc::SIGKILL) };
            killed = true;
        }
        seen = resident(child.id()).max(seen);
        std::thread::sleep(INTERVAL);
    };
    let time = start.elapsed();
    // A child inherits the peak size of this process; only a higher one is its own.
    let own = resident(std::process::id());
    let memory = if highest > own { highest } else { seen };
    let bytes = fs::read(&said).with_context(|| said.display().to_string())?;
    let said = String::from_utf8_lossy(&bytes).into_owned();
    let end = match status.code() {
        _ if killed => End::Killed,
        Some(code) => End::Exit(code),
        None => End::Signal,
    };
    Ok(Ended { end, said, time, memory })
}

/// The status of a child that ended and its highest resident size in bytes; `None` while it runs.
fn reap(id: libc::pid_t) -> Result<Option<(ExitStatus, u64)>> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both places outlive the call, which writes them or fails; zeros are a valid `rusage`.
    let (found, usage) = unsafe {
        let found = libc::wait4(id, &mut status, libc::WNOHANG, usage.as_mut_ptr());
        (found, usage.assume_init())
    };
    match found {
        0 => Ok(None),
        found if found == id => {
            let kibibytes = u64::try_from(usage.ru_maxrss).unwrap_or_default();
            Ok(Some((ExitStatus::from_raw(status), kibibytes * 1024)))
        }
        _ => Err(io::Error::last_os_error()).context("a child cannot be waited for"),
    }
}
