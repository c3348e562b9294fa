//! Ctrl-C and other termination signals.

use anyhow::{Context, Result};
use ctrlc::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The exit status of a program that Ctrl-C has ended, as in shells.
const INTERRUPTED: i32 = 130;

/// Installs a handler that removes partial files and ends the process. Signals that the process
/// ignores, as under `nohup`, stay ignored.
///
/// # Errors
/// If the system refuses the handler.
pub(crate) fn end_cleanly() -> Result<()> {
    match ctrlc::try_set_handler(|| end()) {
        Ok(()) | Err(Error::MultipleHandlers) => Ok(()),
        Err(error) => Err(error).context("cannot watch for Ctrl-C"),
    }
}

/// Whether the process is being ended by a signal.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Waits if a signal is ending the process: the interrupted work can fail earlier, with another
/// status.
pub(crate) fn wait_if_ending() {
    while IS_ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Removes partial files and ends the process.
pub(crate) fn end() -> ! {
    IS_ENDING.store(true, Ordering::SeqCst);
    cognate_export::abandon();
    #[cfg(unix)]
    // SAFETY: the call does not return. `exit` would take libraries down while engines' threads are
    // in them.
    unsafe {
        libc::_exit(INTERRUPTED)
    }
    #[cfg(not(unix))]
    std::process::exit(INTERRUPTED)
}
