//! Where sentences come from: arguments, a file, standard input; and what stands before a sentence's number.

use anyhow::{Context, Result, bail};
use cognate_text::Lines;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::Path;

/// Lines of a window, where nobody waits for each.
const WINDOW: usize = 2000;

/// A window of long lines ends with the one that reaches this many bytes, so that memory is bounded.
const WINDOW_BYTES: usize = 1 << 20;

/// A file below this size has few lines: they are hardly worth more than one worker.
const FEW_BYTES: u64 = 1 << 12;

/// Where sentences come from.
pub(crate) struct Input {
    lines: Box<dyn Iterator<Item = cognate_text::Result<String>> + Send>,
    /// What a sentence is called in messages.
    pub(crate) unit: String,
    /// The size of a file.
    pub(crate) bytes: Option<u64>,
    /// Whether somebody types.
    pub(crate) is_typed: bool,
    /// Whether there may be so many sentences that several workers have something to do.
    pub(crate) is_long: bool,
    /// The most lines of a window.
    pub(crate) window_len: usize,
}

impl Input {
    /// The sentences `text`, or if there are none the lines of the file `input`, or of standard input; `window` lines at a time.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(crate) fn open(text: Vec<String>, input: Option<&Path>, window: Option<usize>) -> Result<Self> {
        let mut opened = match input.filter(|path| *path != Path::new("-")) {
            _ if !text.is_empty() => Self {
                lines: Box::new(text.into_iter().map(Ok)),
                unit: "sentence".into(),
                bytes: None,
                is_typed: false,
                is_long: false,
                window_len: WINDOW,
            },
            Some(path) => {
                let place = path.display();
                let file = File::open(path).with_context(|| format!("--input: {place}: cannot be read"))?;
                let metadata = file.metadata().with_context(|| format!("--input: {place}: cannot be looked at"))?;
                if metadata.is_dir() {
                    bail!("--input: {place}: is a folder; expected a text file, one sentence a line");
                }
                let bytes = metadata.is_file().then_some(metadata.len());
                Self::reading(BufReader::new(file), place.to_string(), bytes, false)
            }
            None => Self::reading(BufReader::new(io::stdin()), "stdin".into(), None, io::stdin().is_terminal()),
        };
        opened.window_len = window.unwrap_or(opened.window_len);
        Ok(opened)
    }

    fn reading(reader: impl BufRead + Send + 'static, name: String, bytes: Option<u64>, is_typed: bool) -> Self {
        Self {
            unit: format!("{name}: line"),
            lines: Box::new(Lines::new(reader, name)),
            bytes,
            is_typed,
            is_long: !is_typed && bytes.is_none_or(|bytes| bytes >= FEW_BYTES),
            window_len: if is_typed { 1 } else { WINDOW },
        }
    }

    /// The next lines, none at the end, and what kept others from being read.
    pub(crate) fn window(&mut self) -> (Vec<String>, Option<cognate_text::Error>) {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < self.window_len && bytes < WINDOW_BYTES {
            match self.lines.next() {
                None => break,
                Some(Ok(line)) => {
                    bytes += line.len();
                    lines.push(line);
                }
                Some(Err(error)) => return (lines, Some(error)),
            }
        }
        (lines, None)
    }
}
