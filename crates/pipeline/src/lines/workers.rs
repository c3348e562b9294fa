//! The second stage: threads that translate batches, with separate sessions and shared weights.

use super::message::{Batch, Done, Message};
use crate::error::{Cause, Result};
use crate::translator::Translator;
use cognate_generate::{Decoder, SentenceBatch};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Threads that translate. They are started on demand and end with this value.
pub(super) struct Workers<E> {
    worker: Worker<E>,
    /// `None` after the last batch.
    batches: Option<Sender<Batch>>,
    threads: Vec<JoinHandle<()>>,
    most: usize,
}

/// What each thread needs.
struct Worker<E> {
    translator: Translator,
    batches: Arc<Mutex<Receiver<Batch>>>,
    /// Windows from this number on are not needed.
    limit: Arc<AtomicUsize>,
    results: Sender<Message<E>>,
}

impl<E> Clone for Worker<E> {
    fn clone(&self) -> Self {
        let Self { translator, batches, limit, results } = self;
        Self {
            translator: translator.clone(),
            batches: batches.clone(),
            limit: limit.clone(),
            results: results.clone(),
        }
    }
}

impl<E: Send + 'static> Workers<E> {
    /// A pool without threads, and later at most `most`.
    pub(super) fn new(translator: Translator, most: usize, results: Sender<Message<E>>) -> Self {
        let (batches, received) = mpsc::channel();
        let (limit, received) =
            (Arc::new(AtomicUsize::new(usize::MAX)), Arc::new(Mutex::new(received)));
        let worker = Worker { translator, batches: received, limit, results };
        Self { worker, batches: Some(batches), threads: Vec::new(), most }
    }

    /// Queues batches; `n_waiting` batches are then not translated. Results are sent as messages in
    /// any order.
    pub(super) fn give(&mut self, batches: Vec<Batch>, n_waiting: usize) -> Result<()> {
        while self.threads.len() < self.most.min(n_waiting) {
            let worker = self.worker.clone();
            let name = format!("worker {}", self.threads.len());
            let spawned = thread::Builder::new().name(name).spawn(move || worker.work());
            let failed = |error: std::io::Error| Cause::System {
                place: "cannot start another worker",
                message: error.to_string(),
            };
            self.threads.push(spawned.map_err(failed)?);
        }
        let sender = self.batches.as_ref().expect("taken only when dropped");
        batches
            .into_iter()
            .for_each(|batch| sender.send(batch).expect("a receiver is in this value"));
        Ok(())
    }
}

impl<E> Workers<E> {
    /// Cancels the batches of window `limit` and of later ones.
    pub(super) fn stop_before(&self, limit: usize) {
        self.worker.limit.fetch_min(limit, Ordering::Relaxed);
    }
}

impl<E> Drop for Workers<E> {
    /// Waits for running steps: the process must not end while an engine computes.
    fn drop(&mut self) {
        self.stop_before(0);
        self.batches = None;
        for thread in self.threads.drain(..) {
            // Panics are sent as messages.
            let _ = thread.join();
        }
    }
}

impl<E> Worker<E> {
    /// Translates until the queue is closed or the receiver is gone.
    fn work(self) {
        let mut decoder = None;
        loop {
            // One thread waits at the queue, the others for the lock.
            let next = self.batches.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(batch) = next else { return };
            if batch.window >= self.limit.load(Ordering::Relaxed) {
                continue;
            }
            let translated =
                panic::catch_unwind(AssertUnwindSafe(|| self.translate(&mut decoder, batch)));
            let message = translated.map_or_else(Message::Panic, Message::Done);
            if self.results.send(message).is_err() {
                return;
            }
        }
    }

    fn translate(&self, decoder: &mut Option<Box<dyn Decoder>>, batch: Batch) -> Done {
        let Batch { window, lines, numbers, sources, prefixes, bytes } = batch;
        let mut done =
            Done { window, n_lines: lines.len(), bytes, translations: Vec::new(), failure: None };
        let decoder = match decoder {
            Some(decoder) => decoder,
            none => match self.translator.model().decoder() {
                Ok(made) => none.insert(made),
                Err(error) => {
                    done.failure = lines.iter().min().map(|&place| (place, error));
                    return done;
                }
            },
        };
        // The results of a cancelled batch are not used: its window is after a failure.
        let is_wanted = || window < self.limit.load(Ordering::Relaxed);
        let sentences =
            SentenceBatch { sources: (&sources).into(), prefixes: &prefixes, numbers: &numbers };
        let (found, failure) =
            self.translator.translate_batch(decoder.as_mut(), &sentences, is_wanted);
        done.translations =
            found.into_iter().map(|(index, translation)| (lines[index], translation)).collect();
        done.failure = failure.map(|(index, error)| (lines[index], error));
        done
    }
}
