//! The way of lines through the threads, and its last stage: translations in the order of their lines.
//!
//! A thread reads and tokenises ([`reading`]), some translate ([`workers`](super::workers)), this one puts
//! translations in order and writes. Few windows are on the way at a time: a new one is read when the oldest is written, so a
//! slow sentence holds back a bounded number of others, and memory does not grow with the input.

use super::input::Input;
use super::output::Output;
use super::progress::Progress;
use super::reading::{self, Window};
use super::translator::{Translation, Translator};
use super::warnings::{Warning, Warnings};
use super::workers::Workers;
use anyhow::Result;
use std::any::Any;
use std::collections::VecDeque;
use std::panic;
use std::sync::{Arc, mpsc};

/// What the other threads tell the writing one.
pub(crate) enum Message {
    /// Lines were read; windows come in order.
    Window(Window),
    /// A batch was translated, or not.
    Done(Done),
    /// A thread met a mistake of this program.
    Panic(Box<dyn Any + Send>),
}

/// What became of a batch.
pub(crate) struct Done {
    /// The number of its window, from 0.
    pub(crate) window: usize,
    pub(crate) n_lines: usize,
    /// The bytes of its lines, with line ends.
    pub(crate) bytes: usize,
    /// Translations with the places of their sentences in the window; all that come before a failure.
    pub(crate) translations: Vec<(usize, Translation)>,
    /// The place of the first sentence that has no translation, and why.
    pub(crate) failure: Option<(usize, anyhow::Error)>,
}

/// So many lines give a worker enough to do for a while.
const LINES_OF_A_WORKER: usize = 256;

/// A window on its way.
struct Open {
    first: usize,
    translations: Vec<String>,
    /// Batches that are not translated yet.
    n_waiting: usize,
    found: Vec<(usize, Warning)>,
    /// The place of the first line that has no translation, and why.
    failure: Option<(usize, anyhow::Error)>,
    is_last: bool,
}

/// Translates `input` with at most `n_workers` threads, in batches of `budget` tokens, and writes to `output`.
///
/// # Errors
/// The first by the order of lines; the lines before it are written.
pub(crate) fn run(translator: Translator, input: Input, n_workers: usize, budget: usize, output: &mut Output<'_>) -> Result<()> {
    let translator = Arc::new(translator);
    let mut progress = Progress::new(input.bytes);
    let mut warnings = Warnings::new(input.unit.clone());
    let (is_file, is_typed) = (input.bytes.is_some(), input.is_typed);

    let (sender, messages) = mpsc::channel();
    let (permit, permits) = mpsc::channel();
    // One window to be written, one to be read, and some for the workers to be at.
    let n_ahead = 2 + n_workers.min((n_workers * LINES_OF_A_WORKER).div_ceil(input.window_len));
    (0..n_ahead).for_each(|_| permit.send(()).expect("the receiver is here"));
    reading::start(input, translator.clone(), budget, permits, sender.clone())?;
    let mut workers = Workers::new(translator.clone(), n_workers, sender);
    let mut open: VecDeque<Open> = VecDeque::new();
    let mut n_written = 0;
    loop {
        match messages.recv().expect("the workers keep a sender") {
            Message::Panic(panic) => {
                drop(workers);
                panic::resume_unwind(panic);
            }
            Message::Window(mut window) => {
                if is_file || (n_written > 0 && !is_typed) {
                    progress.show();
                }
                let batches = std::mem::take(&mut window.batches);
                progress.add(window.empty.0, 0, window.empty.1);
                open.push_back(Open::new(window, batches.len()));
                workers.give(batches, open.iter().map(|window| window.n_waiting).sum())?;
            }
            Message::Done(done) => {
                let number = done.window;
                let n_tokens = done.translations.iter().map(|(_, translation)| translation.n_tokens).sum();
                progress.add(done.n_lines, n_tokens, done.bytes);
                if done.failure.is_some() {
                    // What comes before may fail, too, and would be told in its place.
                    workers.stop_before(number + 1);
                }
                open[number - n_written].take(done, &warnings.unit, translator.settings().max_new_tokens);
            }
        }
        while open.front().is_some_and(|window| window.n_waiting == 0)
            && let Some(window) = open.pop_front()
        {
            n_written += 1;
            let n_good = window.failure.as_ref().map_or(window.translations.len(), |(place, _)| *place);
            let found = window.found.into_iter().filter(|(number, _)| *number < window.first + n_good);
            progress.suspend(|| {
                warnings.tell(found.collect());
                output.write(&window.translations[..n_good])
            })?;
            if let Some((_, error)) = window.failure {
                return Err(error);
            }
            if window.is_last {
                progress.finish();
                warnings.finish();
                return Ok(());
            }
            // A reader that has ended needs none.
            let _ = permit.send(());
        }
    }
}

impl Open {
    fn new(window: Window, n_waiting: usize) -> Self {
        let Window { first, n_lines, found, failure, is_last, .. } = window;
        let failure = failure.map(|error| (n_lines, error));
        Self { first, translations: vec![String::new(); n_lines], n_waiting, found, failure, is_last }
    }

    /// Puts translations in their places; `limit` is that on their tokens.
    fn take(&mut self, done: Done, unit: &str, limit: usize) {
        self.n_waiting -= 1;
        for (place, translation) in done.translations {
            if !translation.complete {
                self.found.push((self.first + place, Warning::Unfinished { limit }));
            }
            self.translations[place] = translation.text;
        }
        if let Some((place, error)) = done.failure
            && self.failure.as_ref().is_none_or(|(first, _)| place < *first)
        {
            self.failure = Some((place, error.context(format!("{unit} {}", self.first + place))));
        }
    }
}
