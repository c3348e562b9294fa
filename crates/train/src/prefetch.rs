//! Iterators that compute items in advance.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

/// An iterator whose items are computed by a thread, up to `depth` in advance and in order.
///
/// Dropping it ends the thread and waits for it. A panic in the thread resumes in the caller at the
/// missing item.
///
/// ```
/// let squares = cognate_train::Prefetch::new((0..).map(|n| n * n), 2);
/// assert_eq!(squares.take(4).collect::<Vec<u64>>(), [0, 1, 4, 9]);
/// ```
#[derive(Debug)]
pub struct Prefetch<T> {
    /// `None` once dropped.
    items: Option<Receiver<T>>,
    thread: Option<JoinHandle<()>>,
    stop: Stop,
}

/// Stops a thread within an item.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T: Send + 'static> Prefetch<T> {
    /// Starts the thread.
    pub fn new(items: impl Iterator<Item = T> + Send + 'static, depth: usize) -> Self {
        Self::stopping(items, depth, Stop::default())
    }

    /// As [`Prefetch::new`], with a flag that the iterator checks.
    pub(crate) fn stopping(
        items: impl Iterator<Item = T> + Send + 'static,
        depth: usize,
        stop: Stop,
    ) -> Self {
        let (sender, receiver) = sync_channel(depth);
        // The iterator is dropped in the thread, with its own threads.
        let work = move || {
            for item in items {
                if sender.send(item).is_err() {
                    break;
                }
            }
        };
        Self { items: Some(receiver), thread: Some(std::thread::spawn(work)), stop }
    }
}

impl<T> Iterator for Prefetch<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let item = self.items.as_ref()?.recv().ok();
        if item.is_none()
            && let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
        {
            resume_unwind(panic);
        }
        item
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Relaxed);
        // Unblocks a thread that waits for room.
        self.items = None;
        if let Some(thread) = self.thread.take() {
            // Its panic is ignored.
            let _ = thread.join();
        }
    }
}
