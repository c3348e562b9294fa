//! Lines of UTF-8 text, one sentence a line.
//!
//! A line ends at `\n` or `\r\n`. Empty lines, spaces, NUL and Unicode's other separators are kept,
//! so that lines of parallel files stay aligned. A byte order mark at the start of the text is
//! removed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::error::{Cause, Result};

/// The maximum length of a line without its end: 1 MiB. It bounds the memory for a file without
/// line ends.
const MAX_LINE_BYTES: usize = 1 << 20;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// How compressed files begin: no UTF-8.
const COMPRESSIONS: [(&[u8], &str); 3] =
    [(b"\x1f\x8b", "gzip"), (b"\xfd7zXZ", "xz"), (b"\x28\xb5\x2f\xfd", "zstd")];

/// An iterator over the lines of a text; it ends after the first error.
///
/// ```
/// use cognate_text::Lines;
///
/// let lines: Vec<String> = Lines::new(&b"one\r\n\ntwo"[..], "stdin").collect::<Result<_, _>>()?;
/// assert_eq!(lines, ["one", "", "two"]);
///
/// let error = Lines::new(&b"one\nt\xff"[..], "stdin").last().expect("two lines").expect_err("byte ff");
/// assert_eq!(error.to_string(), "stdin: line 2: not UTF-8 at byte 2; convert the file to UTF-8");
/// # Ok::<(), cognate_text::Error>(())
/// ```
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    name: String,
    /// Number of lines started.
    number: usize,
    /// Number of bytes read.
    position: u64,
    finished: bool,
}

impl Lines<BufReader<File>> {
    /// The lines of a file.
    ///
    /// Fails if the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let name = path.as_ref().display().to_string();
        match File::open(path) {
            Ok(file) => Ok(Self::new(BufReader::new(file), name)),
            Err(error) => Err(Cause::Unreadable { file: name, reason: error.to_string() })?,
        }
    }
}

impl<R: BufRead> Lines<R> {
    /// The lines of a reader; `name` is its name in errors, such as a path or `stdin`.
    pub fn new(reader: R, name: impl Into<String>) -> Self {
        Self { reader, name: name.into(), number: 0, position: 0, finished: false }
    }

    /// The number of bytes read: the start of the next line.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next line, `None` after the last.
    fn read(&mut self) -> Result<Option<String>> {
        self.number += 1;
        let (file, line) = (|| self.name.clone(), self.number);
        let mut bytes = Vec::new();
        // A byte order mark, `\r\n`, and one byte more to detect a line that is too long.
        let room = MAX_LINE_BYTES as u64 + BYTE_ORDER_MARK.len_utf8() as u64 + 3;
        let result = self.reader.by_ref().take(room).read_until(b'\n', &mut bytes);
        match result {
            Ok(0) => return Ok(None),
            Ok(n_bytes) => self.position += n_bytes as u64,
            Err(error) => {
                Err(Cause::UnreadableLine { file: file(), line, reason: error.to_string() })?;
            }
        }
        if bytes.pop_if(|last| *last == b'\n').is_some() {
            bytes.pop_if(|last| *last == b'\r');
        }
        if line == 1 && bytes.starts_with(BYTE_ORDER_MARK.to_string().as_bytes()) {
            bytes.drain(..BYTE_ORDER_MARK.len_utf8());
        }
        let compression = COMPRESSIONS.iter().find(|(start, _)| bytes.starts_with(start));
        if let (1, Some((_, format))) = (line, compression) {
            Err(Cause::Compressed { file: file(), format })?;
        }
        if bytes.len() > MAX_LINE_BYTES {
            Err(Cause::LongLine { file: file(), line, limit: MAX_LINE_BYTES })?;
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(error) => {
                let byte = error.utf8_error().valid_up_to() + 1;
                Err(Cause::NotUtf8 { file: file(), line, byte })?
            }
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let line = self.read().transpose();
        self.finished = !matches!(line, Some(Ok(_)));
        line
    }
}

/// All lines of a file.
///
/// Fails if the file cannot be read, is not UTF-8, or has a line longer than 1 MiB.
pub fn read_lines(path: impl AsRef<Path>) -> Result<Vec<String>> {
    Lines::open(path)?.collect()
}
