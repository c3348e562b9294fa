//! Parts of a translation as soon as they are final.

use crate::arguments::check_process;
use crate::errors::{of_kind, raised, warn_of_losses};
use cognate::{Error, ErrorKind, Line, Translation, Translator};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How often signals are looked for.
const INTERVAL: Duration = Duration::from_millis(20);

/// An iterator over parts of a translation. The thread that decodes ends within a step after it is
/// dropped.
#[pyclass(module = "cognate", frozen)]
pub(crate) struct Stream {
    messages: Mutex<Receiver<Message>>,
    model: PathBuf,
    process: u32,
}

/// A message of the thread.
enum Message {
    Part(String),
    Ended(Box<Translation>),
    Failed(Error),
}

/// Translates on another thread.
pub(crate) fn start(translator: Translator, model: &Path, text: String) -> PyResult<Stream> {
    translator.check_stream().map_err(raised)?;
    let (sender, messages) = mpsc::sync_channel(16);
    let work = move || {
        let line = Line { text, prefix: None };
        let gone = |_| Error::new(ErrorKind::Cancelled, "cancelled");
        let mut write = |part: &str| sender.send(Message::Part(part.to_owned())).map_err(gone);
        let last = match translator.stream(&line, 1, &mut write) {
            Ok(translation) => Message::Ended(Box::new(translation)),
            Err(error) => Message::Failed(error),
        };
        // The reader may be gone.
        let _ = sender.send(last);
    };
    let spawned = thread::Builder::new().name("stream".into()).spawn(work);
    spawned.map_err(|error| {
        of_kind(ErrorKind::Engine, format_args!("cannot start a thread: {error}"))
    })?;
    Ok(Stream { messages: Mutex::new(messages), model: model.into(), process: process::id() })
}

#[pymethods]
impl Stream {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        check_process(&self.model, self.process)?;
        loop {
            let next = py.detach(|| {
                self.messages
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .recv_timeout(INTERVAL)
            });
            match next {
                Ok(Message::Part(part)) => return Ok(Some(part)),
                Ok(Message::Failed(error)) => return Err(raised(error)),
                Ok(Message::Ended(translation)) => {
                    warn_of_losses(py, &[*translation])?;
                    return Ok(None);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
        }
    }
}
