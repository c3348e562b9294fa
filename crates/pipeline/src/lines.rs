//! Translation of lines by threads: one reads and encodes lines ([`reading`]), several translate
//! ([`workers`]), and the caller's thread orders the translations.
//!
//! The number of windows of lines in flight is bounded: a new one is read when the oldest is
//! returned, so that memory does not grow with the input. Batches, and so translations, depend only
//! on the text, not on the number of workers.

mod message;
mod reading;
mod workers;

use self::message::{Done, Message, Window};
use self::workers::Workers;
use crate::error::Error;
use crate::translation::{Line, Translation};
use crate::translator::Translator;
use std::collections::VecDeque;
use std::panic;
use std::sync::mpsc;

/// How lines are read, and their names in errors.
#[derive(Clone, Debug)]
pub struct LineOptions {
    /// The name of a line in errors, before its number: `text.en: line`.
    pub unit: String,
    /// The name of a line's prefix in errors, before its number.
    pub prefix_unit: String,
    /// The maximum number of lines of a window; a window of long lines is shorter.
    pub window: usize,
}

impl Default for LineOptions {
    fn default() -> Self {
        Self { unit: "line".into(), prefix_unit: "prefix".into(), window: 2000 }
    }
}

/// An event of [`Translator::translate_lines`].
#[derive(Debug)]
pub enum LineEvent {
    /// Sentences were translated; their translations follow in the order of the lines.
    Progress {
        /// Number of sentences.
        sentences: usize,
        /// Number of tokens of their translations.
        tokens: usize,
        /// Number of bytes of their lines, with line ends.
        bytes: usize,
    },
    /// The translations of the next lines.
    Translated {
        /// The number of the first line, from 1.
        first: usize,
        /// A translation for each line.
        translations: Vec<Translation>,
    },
}

impl Translator {
    /// Translates lines as they are read, window by window, and calls `handle` with translations in
    /// the order of the lines. Memory does not grow with the input.
    ///
    /// # Errors
    /// The first error in the order of lines, of the input, the translation or `handle`; earlier
    /// lines were passed to `handle`.
    pub fn translate_lines<E: From<Error> + Send + 'static>(
        &self,
        input: impl Iterator<Item = Result<Line, E>> + Send + 'static,
        options: LineOptions,
        handle: impl FnMut(LineEvent) -> Result<(), E>,
    ) -> Result<(), E> {
        run(self, input, options, handle)
    }
}

/// Number of lines that keep a worker busy.
const LINES_OF_A_WORKER: usize = 256;

/// A window that is being translated.
struct Open<E> {
    first: usize,
    translations: Vec<Translation>,
    sentences: Vec<String>,
    /// Number of batches that are not translated yet.
    n_waiting: usize,
    /// The index and the error of the first line without a translation.
    failure: Option<(usize, E)>,
    is_last: bool,
}

fn run<E: From<Error> + Send + 'static>(
    translator: &Translator,
    input: impl Iterator<Item = Result<Line, E>> + Send + 'static,
    options: LineOptions,
    mut handle: impl FnMut(LineEvent) -> Result<(), E>,
) -> Result<(), E> {
    let n_workers = translator.model().workers().get();
    let unit = options.unit.clone();
    let (sender, messages) = mpsc::channel();
    let (permit, permits) = mpsc::channel();
    // One window to return, one to read, and some for the workers.
    let n_ahead =
        2 + n_workers.min((n_workers * LINES_OF_A_WORKER).div_ceil(options.window.max(1)));
    (0..n_ahead).for_each(|_| permit.send(()).expect("the receiver is here"));
    reading::start(input, translator.clone(), options, permits, sender.clone())?;
    let mut workers = Workers::new(translator.clone(), n_workers, sender);
    let mut open: VecDeque<Open<E>> = VecDeque::new();
    let mut n_handed_over = 0;
    loop {
        match messages.recv().expect("the workers keep a sender") {
            Message::Panic(panic) => {
                drop(workers);
                panic::resume_unwind(panic);
            }
            Message::Window(mut window) => {
                let batches = std::mem::take(&mut window.batches);
                let (sentences, bytes) = window.empty;
                handle(LineEvent::Progress { sentences, tokens: 0, bytes })?;
                open.push_back(Open::new(window, batches.len()));
                workers.give(batches, open.iter().map(|window| window.n_waiting).sum())?;
            }
            Message::Done(done) => {
                let number = done.window;
                let tokens =
                    done.translations.iter().map(|(_, translation)| translation.n_tokens()).sum();
                handle(LineEvent::Progress { sentences: done.n_lines, tokens, bytes: done.bytes })?;
                if done.failure.is_some() {
                    // Earlier lines can fail too, and have precedence.
                    workers.stop_before(number + 1);
                }
                open[number - n_handed_over].take(done, &unit);
            }
        }
        while open.front().is_some_and(|window| window.n_waiting == 0)
            && let Some(mut window) = open.pop_front()
        {
            n_handed_over += 1;
            if let Some((place, _)) = &window.failure {
                window.translations.truncate(*place);
            }
            for (translation, sentence) in window.translations.iter_mut().zip(&window.sentences) {
                translator.replace_unknowns(translation, sentence)?;
            }
            handle(LineEvent::Translated {
                first: window.first,
                translations: window.translations,
            })?;
            match window.failure {
                Some((_, error)) => return Err(error),
                None if window.is_last => return Ok(()),
                // The reader may have ended.
                None => drop(permit.send(())),
            }
        }
    }
}

impl<E: From<Error>> Open<E> {
    fn new(window: Window<E>, n_waiting: usize) -> Self {
        let Window { first, translations, sentences, failure, is_last, .. } = window;
        let failure = failure.map(|error| (translations.len(), error));
        Self { first, translations, sentences, n_waiting, failure, is_last }
    }

    /// Stores the translations of a batch.
    fn take(&mut self, done: Done, unit: &str) {
        self.n_waiting -= 1;
        for (place, mut translation) in done.translations {
            let Some(slot) = self.translations.get_mut(place) else { continue };
            translation.begin_with(slot);
            *slot = translation;
        }
        if let Some((place, error)) = done.failure
            && self.failure.as_ref().is_none_or(|(first, _)| place < *first)
        {
            self.failure =
                Some((place, error.at(format_args!("{unit} {}", self.first + place)).into()));
        }
    }
}
