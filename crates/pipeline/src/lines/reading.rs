//! The first stage: a thread that encodes lines to windows of batches.

use super::LineOptions;
use super::message::{Batch, Message, Window};
use crate::batches::batches;
use crate::error::{Cause, Error};
use crate::translation::Line;
use crate::translator::Translator;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{Receiver, Sender};
use std::thread;

/// A window ends with the line that reaches this number of bytes, which bounds memory.
const WINDOW_BYTES: usize = 1 << 20;

/// Reads `input` window by window, one for each permit, and sends them. The thread ends when there
/// are no more permits; it can wait for a line until then.
pub(super) fn start<E: From<Error> + Send + 'static>(
    mut input: impl Iterator<Item = Result<Line, E>> + Send + 'static,
    translator: Translator,
    options: LineOptions,
    permits: Receiver<()>,
    windows: Sender<Message<E>>,
) -> Result<(), Error> {
    let read = move || {
        let mut first = 1;
        for (number, ()) in permits.iter().enumerate() {
            let window = panic::catch_unwind(AssertUnwindSafe(|| {
                let (lines, failure) = take(&mut input, options.window);
                encode(&lines, failure, [number, first], &translator, &options)
            }));
            let message = window.map_or_else(Message::Panic, Message::Window);
            let ends = match &message {
                Message::Window(window) => {
                    first += window.translations.len();
                    window.is_last
                }
                Message::Done(_) | Message::Panic(_) => true,
            };
            if windows.send(message).is_err() || ends {
                break;
            }
        }
    };
    let spawned = thread::Builder::new().name("reader".into()).spawn(read);
    spawned.map_err(|error| Cause::System {
        place: "cannot start a thread",
        message: error.to_string(),
    })?;
    Ok(())
}

/// The next lines, none at the end, and the error that ends them.
fn take<E>(
    input: &mut impl Iterator<Item = Result<Line, E>>,
    n_lines: usize,
) -> (Vec<Line>, Option<E>) {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while lines.len() < n_lines.max(1) && bytes < WINDOW_BYTES {
        match input.next() {
            None => break,
            Some(Ok(line)) => {
                bytes += line.text.len() + line.prefix.as_ref().map_or(0, String::len);
                lines.push(line);
            }
            Some(Err(error)) => return (lines, Some(error)),
        }
    }
    (lines, None)
}

/// The window of these lines, given its number and that of its first line.
fn encode<E: From<Error>>(
    lines: &[Line],
    failure: Option<E>,
    [number, first]: [usize; 2],
    translator: &Translator,
    options: &LineOptions,
) -> Window<E> {
    let is_last = lines.is_empty() || failure.is_some();
    let sentences = lines
        .iter()
        .filter(|_| translator.replaces_unknowns())
        .map(|line| line.text.clone())
        .collect();
    let mut window = Window {
        first,
        translations: Vec::new(),
        sentences,
        batches: Vec::new(),
        empty: (0, 0),
        failure,
        is_last,
    };
    let bytes = |line: &Line| line.text.len() + 1;
    let (mut places, mut sources, mut prefixes) = (Vec::new(), Vec::new(), Vec::new());
    for (place, line) in lines.iter().enumerate() {
        let number = first + place;
        let prepared = translator
            .prepare(&line.text)
            .map_err(|error| error.at(format_args!("{} {number}", options.unit)));
        let prefix = translator
            .prefix(line)
            .map_err(|error| error.at(format_args!("{} {number}", options.prefix_unit)));
        match prepared.and_then(|prepared| Ok((prepared, prefix?))) {
            Ok(((translation, ids), prefix)) => {
                window.translations.push(translation);
                match ids {
                    None => window.empty = (window.empty.0 + 1, window.empty.1 + bytes(line)),
                    Some(ids) => {
                        places.push(place);
                        sources.push(ids);
                        prefixes.push(prefix);
                    }
                }
            }
            Err(error) => {
                (window.failure, window.is_last) = (Some(error.into()), true);
                break;
            }
        }
    }
    let is_free = prefixes.iter().all(Vec::is_empty);
    let lengths: Vec<_> = sources.iter().map(Vec::len).collect();
    let take = |all: &mut Vec<Vec<i64>>, indices: &[usize]| {
        indices.iter().map(|&index| std::mem::take(&mut all[index])).collect()
    };
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
    window.batches = batches(&lengths, translator.batch_limit()).into_iter().map(batch).collect();
    window
}
