//! Ctrl-C, and other signals to end.

use anyhow::{Context, Result};
use ctrlc::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The status of a program that Ctrl-C has ended, as shells tell it.
const INTERRUPTED: i32 = 130;

/// From now on a signal to end removes what is not whole yet, and ends the process. A process that was told to ignore signals, as
/// `nohup` does, goes on ignoring them.
///
/// # Errors
/// If the system refuses.
pub(crate) fn end_cleanly() -> Result<()> {
    match ctrlc::try_set_handler(end) {
        Ok(()) | Err(Error::MultipleHandlers) => Ok(()),
        Err(error) => Err(error).context("cannot watch for Ctrl-C"),
    }
}

/// Whether the process is being ended by a signal.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Waits for the end if a signal is ending the process: the work that it interrupts may fail first, with another status.
pub(crate) fn wait_if_ending() {
    while IS_ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Removes what is not whole yet, and ends the process.
pub(crate) fn end() {
    IS_ENDING.store(true, Ordering::SeqCst);
    cognate_export::abandon();
    #[cfg(unix)]
    // SAFETY: the call does not return. `exit` would take libraries down while engines' threads are in them.
    unsafe {
        libc::_exit(INTERRUPTED)
    }
    #[cfg(not(unix))]
    std::process::exit(INTERRUPTED)
}
