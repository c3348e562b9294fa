//! Ctrl-C, and other signals to end.

use anyhow::{Context, Result};
use ctrlc::Error;

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

/// Removes what is not whole yet, and ends the process.
pub(crate) fn end() {
    cognate_export::abandon();
    #[cfg(unix)]
    // SAFETY: the call does not return. `exit` would take libraries down while engines' threads are in them.
    unsafe {
        libc::_exit(INTERRUPTED)
    }
    #[cfg(not(unix))]
    std::process::exit(INTERRUPTED)
}
