//! Work without the GIL that Ctrl-C ends.

use cognate::CancellationToken;
use pyo3::prelude::*;
use std::panic;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How often signals are looked for.
const INTERVAL: Duration = Duration::from_millis(20);

/// Runs `work` on another thread while this one releases the GIL and looks for signals. A signal
/// whose handler raises, as that of Ctrl-C, cancels it, and the exception is raised as soon as
/// `work` ends.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&CancellationToken) -> T + Send,
) -> PyResult<T> {
    let cancellation = CancellationToken::default();
    let (sender, mut done) = mpsc::channel();
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let result = work(&cancellation);
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
                cancellation.cancel();
            }
        }
        let result =
            py.detach(|| running.join()).unwrap_or_else(|panic| panic::resume_unwind(panic));
        raised.map_or(Ok(result), Err)
    })
}
