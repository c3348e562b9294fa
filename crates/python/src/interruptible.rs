//! Work without the GIL that Ctrl-C ends.

use pyo3::prelude::*;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How often signals are looked for.
const INTERVAL: Duration = Duration::from_millis(20);

/// Runs `work` on another thread while this one releases the GIL and looks for signals. After a
/// signal whose handler raises, as that of Ctrl-C, the flag becomes false, and the exception is
/// raised as soon as `work` ends.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> T + Send,
) -> PyResult<T> {
    let is_wanted = AtomicBool::new(true);
    let (sender, mut done) = mpsc::channel();
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let result = work(&is_wanted);
            // The receiver lives as long as this scope.
            let _ = sender.send(());
            result
        });
        let mut raised = None;
        loop {
            let done = &mut done;
            let state = py.detach(move || done.recv_timeout(INTERVAL));
            // A panic drops no sender, but ends the thread.
            if state != Err(RecvTimeoutError::Timeout) || running.is_finished() {
                break;
            }
            if raised.is_none()
                && let Err(error) = py.check_signals()
            {
                raised = Some(error);
                is_wanted.store(false, Ordering::Relaxed);
            }
        }
        let result =
            py.detach(|| running.join()).unwrap_or_else(|panic| panic::resume_unwind(panic));
        raised.map_or(Ok(result), Err)
    })
}
