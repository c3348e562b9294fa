//! Parts of a translation as soon as they are final.

use crate::arguments::check_process;
use crate::errors::{of_kind, raised};
use cognate::{Error, ErrorKind, Line, Translator};
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
    parts: Mutex<Receiver<Result<String, Error>>>,
    model: PathBuf,
    process: u32,
}

/// Translates on another thread.
pub(crate) fn start(translator: Translator, model: &Path, text: String) -> PyResult<Stream> {
    translator.check_stream().map_err(raised)?;
    let (sender, parts) = mpsc::sync_channel(16);
    let work = move || {
        let line = Line { text, prefix: None };
        let gone = |_| Error::new(ErrorKind::Cancelled, "cancelled");
        let mut write = |part: &str| sender.send(Ok(part.to_owned())).map_err(gone);
        if let Err(error) = translator.stream(&line, 1, &mut write) {
            // The reader may be gone.
            let _ = sender.send(Err(error));
        }
    };
    let spawned = thread::Builder::new().name("stream".into()).spawn(work);
    spawned.map_err(|error| {
        of_kind(ErrorKind::Engine, format_args!("cannot start a thread: {error}"))
    })?;
    Ok(Stream { parts: Mutex::new(parts), model: model.into(), process: process::id() })
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
                self.parts
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .recv_timeout(INTERVAL)
            });
            match next {
                Ok(part) => return part.map(Some).map_err(raised),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
        }
    }
}
