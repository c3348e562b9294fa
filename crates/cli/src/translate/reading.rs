//! The first stage: lines become windows of batches of tokens, on a thread of its own, while others are translated.

use super::batches::batches;
use super::input::{Input, Line};
use super::pipeline::Message;
use super::translator::Translator;
use super::warnings::Warning;
use anyhow::{Context, Result};
use cognate_pipeline::EncodedSource;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;

/// Some lines, ready to be translated.
pub(crate) struct Window {
    /// The number of its first line, from 1.
    pub(crate) first: usize,
    pub(crate) n_lines: usize,
    /// What is to be translated, the longest sentences first.
    pub(crate) batches: Vec<Batch>,
    /// How many lines are in no batch, and their bytes with line ends.
    pub(crate) empty: (usize, usize),
    pub(crate) found: Vec<(usize, Warning)>,
    /// What keeps the lines after these from being translated.
    pub(crate) failure: Option<anyhow::Error>,
    pub(crate) is_last: bool,
}

/// Sentences to be translated together.
pub(crate) struct Batch {
    /// The number of its window, from 0.
    pub(crate) window: usize,
    /// The places of its sentences in the window.
    pub(crate) lines: Vec<usize>,
    /// The numbers of its sentences in the input, from 1.
    pub(crate) numbers: Vec<u64>,
    pub(crate) sources: Vec<Vec<i64>>,
    /// What their translations begin with, each of them or none.
    pub(crate) prefixes: Vec<Vec<i64>>,
    /// The bytes of its lines, with line ends.
    pub(crate) bytes: usize,
}

/// Reads all of `input` window by window, each when there is a permit, and sends them on. The thread ends by itself where
/// nobody gives permits any more, but may wait for a line until then.
///
/// # Errors
/// If there can be no thread.
pub(crate) fn start(
    mut input: Input,
    translator: Arc<Translator>,
    budget: usize,
    permits: Receiver<()>,
    windows: Sender<Message>,
) -> Result<()> {
    let read = move || {
        let mut first = 1;
        for (number, ()) in permits.iter().enumerate() {
            let window = panic::catch_unwind(AssertUnwindSafe(|| window(&mut input, number, first, &translator, budget)));
            let message = window.map_or_else(Message::Panic, Message::Window);
            let ends = match &message {
                Message::Window(window) => {
                    first += window.n_lines;
                    window.is_last
                }
                _ => true,
            };
            if windows.send(message).is_err() || ends {
                break;
            }
        }
    };
    thread::Builder::new().name("reader".into()).spawn(read).context("a thread to read with")?;
    Ok(())
}

/// The next window, whose first line has the number `first`.
fn window(input: &mut Input, number: usize, first: usize, translator: &Translator, budget: usize) -> Window {
    let (lines, failure) = input.window();
    let mut window = Window {
        first,
        n_lines: lines.len(),
        batches: Vec::new(),
        empty: (0, 0),
        found: Vec::new(),
        is_last: lines.is_empty() || failure.is_some(),
        failure,
    };
    let bytes = |line: &Line| line.text.len() + 1;
    let (mut places, mut sources, mut prefixes) = (Vec::new(), Vec::new(), Vec::new());
    for (place, line) in lines.iter().enumerate() {
        let number = first + place;
        let encoded = translator.encode(&line.text).with_context(|| format!("{} {number}", input.unit));
        let prefix = translator.prefix(line).with_context(|| input.prefix_place(number));
        match encoded.and_then(|encoded| Ok((encoded, prefix?))) {
            Ok((EncodedSource::Empty, _)) => {
                window.empty = (window.empty.0 + 1, window.empty.1 + bytes(line));
                window.found.push((number, Warning::Empty));
            }
            Ok((EncodedSource::Tokens { ids, cut_from }, prefix)) => {
                places.push(place);
                sources.push(ids);
                prefixes.push(prefix);
                window.found.extend(translator.lacks_language(&line.text).then_some((number, Warning::NoLanguage)));
                let too_long = |tokens| (number, Warning::TooLong { tokens, limit: translator.max_positions() });
                window.found.extend(cut_from.map(too_long));
            }
            Err(error) => {
                (window.n_lines, window.failure, window.is_last) = (place, Some(error), true);
                break;
            }
        }
    }
    let is_free = prefixes.iter().all(Vec::is_empty);
    let lengths: Vec<_> = sources.iter().map(Vec::len).collect();
    let take = |all: &mut Vec<Vec<i64>>, indices: &[usize]| indices.iter().map(|&index| std::mem::take(&mut all[index])).collect();
    let batch = |indices: Vec<usize>| {
        let lines_of: Vec<_> = indices.iter().map(|&index| places[index]).collect();
        Batch {
            window: number,
            bytes: lines_of.iter().map(|&place| bytes(&lines[place])).sum(),
            numbers: lines_of.iter().map(|place| (first + place) as u64).collect(),
            lines: lines_of,
            sources: take(&mut sources, &indices),
            prefixes: if is_free { Vec::new() } else { take(&mut prefixes, &indices) },
        }
    };
    window.batches = batches(&lengths, budget).into_iter().map(batch).collect();
    window
}
