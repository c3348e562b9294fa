//! Cancellation of long work from another thread.

use crate::Result;
use crate::error::Cause;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Cancels work that holds a clone of it.
#[derive(Clone, Debug, Default)]
pub struct CancellationToken(Arc<AtomicBool>);

impl CancellationToken {
    /// Ends the work at its next check, with
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the work is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// # Errors
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled), if the work is cancelled.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Cause::Cancelled.into()) } else { Ok(()) }
    }
}
