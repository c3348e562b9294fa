//! The second stage: threads that translate batches, each with sessions of its own over the same weights.

use super::pipeline::{Done, Message};
use super::reading::Batch;
use super::translator::Translator;
use anyhow::{Context, Result};
use cognate_generate::{Batch as Sentences, Decoder};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Threads that translate; they come as there is work for them, and end with this value.
pub(crate) struct Workers {
    /// What each of them needs.
    desk: Desk,
    /// `None` when there will be no more.
    batches: Option<Sender<Batch>>,
    threads: Vec<JoinHandle<()>>,
    most: usize,
}

#[derive(Clone)]
struct Desk {
    translator: Arc<Translator>,
    batches: Arc<Mutex<Receiver<Batch>>>,
    /// Windows from this number on are not worth translating any more.
    limit: Arc<AtomicUsize>,
    results: Sender<Message>,
}

impl Workers {
    /// No threads yet, and later at most `most`.
    pub(crate) fn new(translator: Arc<Translator>, most: usize, results: Sender<Message>) -> Self {
        let (batches, received) = mpsc::channel();
        let (limit, received) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::new(Mutex::new(received)));
        let desk = Desk { translator, batches: received, limit, results };
        Self { desk, batches: Some(batches), threads: Vec::new(), most }
    }

    /// Has batches translated, of which then `n_waiting` are not yet; results come as messages, in any order.
    ///
    /// # Errors
    /// If there can be no thread.
    pub(crate) fn give(&mut self, batches: Vec<Batch>, n_waiting: usize) -> Result<()> {
        while self.threads.len() < self.most.min(n_waiting) {
            let desk = self.desk.clone();
            let name = format!("worker {}", self.threads.len());
            let spawned = thread::Builder::new().name(name).spawn(move || desk.work());
            self.threads.push(spawned.context("--workers: no thread for another worker; give fewer")?);
        }
        let sender = self.batches.as_ref().expect("taken only when dropped");
        // The receiver is here, too.
        batches.into_iter().for_each(|batch| sender.send(batch).expect("a receiver"));
        Ok(())
    }

    /// Leaves the batches of window `limit` and of later ones, those that are being translated too.
    pub(crate) fn stop_before(&self, limit: usize) {
        self.desk.limit.fetch_min(limit, Ordering::Relaxed);
    }
}

impl Drop for Workers {
    /// Waits for steps that are being computed: the process must not end under an engine that computes.
    fn drop(&mut self) {
        self.stop_before(0);
        self.batches = None;
        for thread in self.threads.drain(..) {
            // Panics are sent, not thrown.
            let _ = thread.join();
        }
    }
}

impl Desk {
    /// Translates until there is nothing more, or nobody wants the results.
    fn work(self) {
        let mut decoder = None;
        loop {
            // Only one waits at the queue, the others at its door.
            let next = self.batches.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(batch) = next else { return };
            if batch.window >= self.limit.load(Ordering::Relaxed) {
                continue;
            }
            let translated = panic::catch_unwind(AssertUnwindSafe(|| self.translate(&mut decoder, batch)));
            let message = translated.map_or_else(Message::Panic, Message::Done);
            if self.results.send(message).is_err() {
                return;
            }
        }
    }

    /// Translates a batch. If it fails, each of its sentences by itself, in their order, until the one that fails is found.
    fn translate(&self, decoder: &mut Option<Box<dyn Decoder>>, batch: Batch) -> Done {
        let Batch { window, lines, numbers, sources, prefixes, bytes } = batch;
        let mut done = Done { window, n_lines: lines.len(), bytes, translations: Vec::with_capacity(lines.len()), failure: None };
        // The results of a batch that is given up are never written: its window comes after a failure.
        let is_wanted = || window < self.limit.load(Ordering::Relaxed);
        let mut translate = |sources: &[Vec<i64>], prefixes: &[Vec<i64>], numbers: &[u64]| {
            let decoder = match &mut *decoder {
                Some(decoder) => decoder,
                none => none.insert(self.translator.decoder()?),
            };
            self.translator.translate(decoder.as_mut(), &Sentences { sources, prefixes, numbers }, is_wanted)
        };
        let first = translate(&sources, &prefixes, &numbers);
        let is_alone = lines.len() == 1;
        match first {
            Ok(translations) => done.translations = lines.into_iter().zip(translations).collect(),
            Err(error) if is_alone => done.failure = Some((lines[0], error)),
            Err(_) => {
                let mut order: Vec<_> = (0..lines.len()).collect();
                order.sort_by_key(|&index| lines[index]);
                for index in order {
                    let (place, one) = (lines[index], index..=index);
                    let prefix = prefixes.get(one.clone()).unwrap_or_default();
                    match translate(&sources[one.clone()], prefix, &numbers[one]) {
                        Ok(translations) => done.translations.extend(translations.into_iter().map(|translation| (place, translation))),
                        Err(error) => {
                            done.failure = Some((place, error));
                            break;
                        }
                    }
                }
            }
        }
        done
    }
}
