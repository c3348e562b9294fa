//! Sentences of many callers, translated together.
//!
//! Each worker has a batch. It takes waiting sentences with the settings of the first caller: one
//! of each caller in turn, the earliest first, as many as fit. If the decoder lets sentences join,
//! they enter between its steps, as long as nobody with other settings is first; otherwise when the
//! batch has ended. A translation is delivered when its sentence ends, and is the one that the
//! sentence gets alone. The sentences of a caller that has left are dropped, running ones within a
//! decoding step.

mod batch;

use self::batch::{Batch, Running};
use crate::error::{Cause, Error, Result};
use crate::translation::{Line, Translation};
use crate::translator::Translator;
use cognate_generate::Decoder;
use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Sentences join a batch if they are at least one for so many others,
const FEWEST: usize = 8;
/// or if so many steps have passed since others joined: all wait while an encoder reads them.
const STEPS: usize = 4;

/// Options of a queue.
pub struct QueueOptions {
    /// The maximum number of waiting sentences.
    pub waiting: usize,
    /// The maximum number of tokens that the sentences of a batch may grow to, sources and all
    /// hypotheses included; a sentence alone may have more.
    pub held: usize,
    /// Called by the workers.
    pub observer: Box<dyn Fn(QueueEvent) + Send + Sync>,
}

/// What the workers of a queue do.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum QueueEvent {
    /// A sentence enters a batch.
    Began {
        /// How long it waited.
        waited: Duration,
    },
    /// A batch advanced by one token.
    Advanced {
        /// Number of its sentences.
        sentences: usize,
    },
    /// A sentence was translated.
    Finished {
        /// Number of generated tokens, end tokens included.
        tokens: usize,
        /// How long it took since it entered.
        took: Duration,
    },
}

/// What a caller receives about one of its sentences.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A part of the text that is final; of streams only.
    Part(String),
    /// The complete translation.
    Translation(Translation),
}

/// Receives answers: the sentence's index, and the answer or the error that ends the sentence.
pub type Receiver = Box<dyn Fn(usize, Result<Answer>) + Send + Sync>;

/// The sentences of one call; dropping it cancels them.
#[must_use]
pub struct Ticket(Arc<Caller>);

/// Sentences of many callers for the workers of one model. Dropping it waits for what has begun.
pub struct TranslationQueue {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Caller {
    has_left: AtomicBool,
    streams: bool,
    receive: Receiver,
}

struct Sentence {
    /// Its index in the call.
    place: usize,
    text: String,
    ids: Vec<i64>,
    prefix: Vec<i64>,
    /// With the warnings about the source.
    prepared: Translation,
    translator: Translator,
    caller: Arc<Caller>,
    arrived: Instant,
}

struct Call {
    translator: Translator,
    caller: Arc<Caller>,
    sentences: VecDeque<Sentence>,
}

#[derive(Default)]
struct Waiting {
    calls: VecDeque<Call>,
    n_idle: usize,
    is_closed: bool,
}

struct Shared {
    waiting: Mutex<Waiting>,
    has_more: Condvar,
    options: QueueOptions,
}

impl TranslationQueue {
    /// Starts the model's number of workers.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn new(translator: &Translator, options: QueueOptions) -> Result<Self> {
        let shared =
            Arc::new(Shared { waiting: Mutex::default(), has_more: Condvar::new(), options });
        let mut queue = Self { shared, workers: Vec::new() };
        for number in 0..translator.model().workers().get() {
            let (shared, translator) = (queue.shared.clone(), translator.clone());
            let spawned = thread::Builder::new()
                .name(format!("worker {number}"))
                .spawn(move || shared.work(&translator));
            let failed = |error: std::io::Error| Cause::System {
                place: "cannot start another worker",
                message: error.to_string(),
            };
            queue.workers.push(spawned.map_err(failed)?);
        }
        Ok(queue)
    }

    /// Queues sentences for `translator`, the queue's or one made of it by [`Translator::with`].
    /// With `streams` the receiver gets parts of texts, too.
    ///
    /// # Errors
    /// If a sentence cannot be encoded or has too many tokens
    /// ([`ErrorKind::TooLong`](crate::ErrorKind::TooLong)), the queue is full
    /// ([`ErrorKind::Busy`](crate::ErrorKind::Busy)), or the settings do not stream.
    pub fn submit(
        &self,
        translator: &Translator,
        lines: &[Line],
        streams: bool,
        receive: Receiver,
    ) -> Result<Ticket> {
        if streams {
            translator.check_stream()?;
        }
        let caller = Arc::new(Caller { has_left: AtomicBool::new(false), streams, receive });
        let (mut sentences, mut empty) = (VecDeque::new(), Vec::new());
        for (place, line) in lines.iter().enumerate() {
            let at = |error: Error| error.at(format_args!("sentence {}", place + 1));
            let (prepared, ids) = translator.prepare(&line.text).map_err(at)?;
            if let Some((tokens, limit)) = prepared.too_long() {
                return Err(at(Cause::TooLong { tokens, limit }.into()));
            }
            let Some(ids) = ids else {
                empty.push((place, prepared));
                continue;
            };
            let prefix = translator.prefix(line).map_err(at)?;
            let (text, translator, caller, arrived) =
                (line.text.clone(), translator.clone(), caller.clone(), Instant::now());
            sentences.push_back(Sentence {
                place,
                text,
                ids,
                prefix,
                prepared,
                translator,
                caller,
                arrived,
            });
        }
        if !sentences.is_empty() {
            let mut waiting = self.shared.lock();
            waiting.drop_cancelled();
            let limit = self.shared.options.waiting;
            if waiting.len() + sentences.len() > limit {
                return Err(Cause::Busy { limit }.into());
            }
            waiting.calls.push_back(Call {
                translator: translator.clone(),
                caller: caller.clone(),
                sentences,
            });
            drop(waiting);
            self.shared.has_more.notify_all();
        }
        for (place, translation) in empty {
            (caller.receive)(place, Ok(Answer::Translation(translation)));
        }
        Ok(Ticket(caller))
    }

    /// The number of sentences that have not begun.
    pub fn n_waiting(&self) -> usize {
        self.shared.lock().len()
    }
}

impl Drop for TranslationQueue {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.has_more.notify_all();
        for worker in self.workers.drain(..) {
            // Panics were delivered as errors.
            let _ = worker.join();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.has_left.store(true, Ordering::Relaxed);
    }
}

impl Caller {
    fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Translates until the queue is closed and empty.
    fn work(&self, translator: &Translator) {
        let mut decoder: Option<Box<dyn Decoder>> = None;
        while let Some((first, sentences)) = self.next() {
            let mut batch = Batch::new(&first, sentences, &*self.options.observer);
            let run = panic::catch_unwind(AssertUnwindSafe(|| {
                let decoder = match &mut decoder {
                    Some(decoder) => decoder,
                    none => none.insert(translator.model().decoder()?),
                };
                batch.translate(decoder.as_mut(), &|running| self.joining(&first, running));
                Ok(())
            }));
            match run {
                Ok(Ok(())) => {}
                Ok(Err(error)) => batch.fail(&error),
                Err(_) => {
                    // Its state can be inconsistent.
                    decoder = None;
                    batch.fail(&Error::new(crate::ErrorKind::Engine, "the engine panicked"));
                }
            }
        }
    }

    /// Waits for the sentences of a batch, and the translator of the first; `None` after the last.
    fn next(&self) -> Option<(Translator, Vec<Sentence>)> {
        let mut waiting = self.lock();
        loop {
            waiting.drop_cancelled();
            if let Some(first) = waiting.calls.front() {
                let first = first.translator.clone();
                let sentences = waiting.take(&first, Running::default(), self.options.held);
                drop(waiting);
                self.begin(&sentences);
                return Some((first, sentences));
            }
            if waiting.is_closed {
                return None;
            }
            waiting.n_idle += 1;
            waiting = self.has_more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.n_idle -= 1;
        }
    }

    /// The sentences that join a batch.
    fn joining(&self, translator: &Translator, running: Running) -> Vec<Sentence> {
        let mut waiting = self.lock();
        waiting.drop_cancelled();
        let is_first = waiting
            .calls
            .front()
            .is_some_and(|call| call.translator.settings() == translator.settings());
        let is_worth = running.steps >= STEPS || waiting.len() * FEWEST >= running.sentences;
        if !is_first || !is_worth {
            return Vec::new();
        }
        let sentences = waiting.take(translator, running, self.options.held);
        drop(waiting);
        self.begin(&sentences);
        sentences
    }

    fn begin(&self, sentences: &[Sentence]) {
        sentences.iter().for_each(|sentence| {
            (self.options.observer)(QueueEvent::Began { waited: sentence.arrived.elapsed() })
        });
    }
}

impl Waiting {
    fn len(&self) -> usize {
        self.calls.iter().map(|call| call.sentences.len()).sum()
    }

    fn drop_cancelled(&mut self) {
        self.calls.retain(|call| !call.caller.has_left());
    }

    /// Sentences that have the settings of `translator`, for a batch with these others; at least
    /// one for an empty batch. Idle workers get as much each.
    fn take(&mut self, translator: &Translator, running: Running, held: usize) -> Vec<Sentence> {
        let share = self.len().div_ceil(self.n_idle + 1);
        let (limit, settings) = (translator.batch_limit(), translator.settings());
        let growth = settings.max_new_tokens.min(settings.max_length);
        let may_hold = |sentences: usize, longest: usize| {
            let of_hypothesis = longest.saturating_add(growth);
            sentences.saturating_mul(settings.n_hypotheses()).saturating_mul(of_hypothesis)
        };
        let fits: Vec<_> = (0..self.calls.len())
            .filter(|&index| self.calls[index].translator.settings() == translator.settings())
            .collect();
        let (mut sentences, mut longest) = (Vec::new(), running.longest);
        loop {
            let before = sentences.len();
            for &index in &fits {
                let Some(next) = self.calls[index].sentences.front() else { continue };
                let together = running.sentences + sentences.len() + 1;
                let length = longest.max(next.ids.len());
                let has_room = sentences.len() < share
                    && together <= limit.sentences
                    && together * length <= limit.tokens
                    && may_hold(together, length) <= held;
                if together == 1 || has_room {
                    longest = length;
                    sentences.extend(self.calls[index].sentences.pop_front());
                }
            }
            if sentences.len() == before {
                break;
            }
        }
        // Those that were served wait behind the others.
        let is_served = |call: &Call| {
            sentences.iter().any(|sentence: &Sentence| Arc::ptr_eq(&sentence.caller, &call.caller))
        };
        let (served, mut calls): (VecDeque<_>, VecDeque<_>) =
            self.calls.drain(..).partition(is_served);
        calls.extend(served.into_iter().filter(|call| !call.sentences.is_empty()));
        self.calls = calls;
        sentences
    }
}
