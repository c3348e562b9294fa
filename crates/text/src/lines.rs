//! Lines of UTF-8 text, one sentence a line.
//!
//! A line ends at `\n`, which may have `\r` before it; both are taken off, nothing else is: empty lines, spaces, NUL
//! and Unicode's other separators stay, so that line `n` of one file meets line `n` of the other. A byte order mark
//! at the start of the text is taken off.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::error::{Cause, Result};

/// The longest line that is read: 1 MiB, its end not counted. It bounds the memory that a file without line ends takes.
const MAX_LINE_BYTES: usize = 1 << 20;

const BYTE_ORDER_MARK: char = '\u{feff}';

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
    /// Lines begun so far.
    number: usize,
    /// Bytes read so far.
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
    /// The lines of a reader; `name` is the text's name in errors: a path, `stdin`.
    pub fn new(reader: R, name: impl Into<String>) -> Self {
        Self { reader, name: name.into(), number: 0, position: 0, finished: false }
    }

    /// The bytes read so far: where the next line begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next line, `None` after the last.
    fn read(&mut self) -> Result<Option<String>> {
        self.number += 1;
        let (file, line) = (|| self.name.clone(), self.number);
        let mut bytes = Vec::new();
        // Room for a byte order mark, `\r\n`, and one byte more, which tells a line that is too long.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn lines(text: &[u8]) -> Result<Vec<String>> {
        Lines::new(text, "text").collect()
    }

    #[test]
    fn lines_end_at_line_feeds_only() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            ("\n", &[""]),
            ("a", &["a"]),
            ("a\nb\n", &["a", "b"]),
            ("a\r\n\r\nb", &["a", "", "b"]),
            ("a\rb\r", &["a\rb\r"]),
            ("a\0b\n", &["a\0b"]),
            (" a \u{2028}b\u{85}c\n", &[" a \u{2028}b\u{85}c"]),
            ("\u{feff}a\n\u{feff}b", &["a", "\u{feff}b"]),
        ];
        for (text, expected) in cases {
            assert_eq!(lines(text.as_bytes()).unwrap(), *expected, "{text:?}");
        }
    }

    #[test]
    fn the_longest_line_fits_and_one_byte_more_does_not() {
        let longest = "x".repeat(MAX_LINE_BYTES);
        for text in [format!("\u{feff}{longest}\r\n{longest}\r\nend"), format!("{longest}\n{longest}\nend")] {
            assert_eq!(lines(text.as_bytes()).unwrap(), [&longest, &longest, "end"]);
        }
        for end in ["", "\n", "\r\n"] {
            let text = format!("a\n{longest}x{end}");
            assert_eq!(
                lines(text.as_bytes()).unwrap_err().to_string(),
                "text: line 2: longer than 1048576 bytes; expected text with one sentence a line"
            );
        }
    }

    #[test]
    fn the_position_is_where_the_next_line_begins() {
        let text = "\u{feff}a\r\n\nü";
        let mut lines = Lines::new(text.as_bytes(), "text");
        let positions: Vec<u64> = std::iter::from_fn(|| lines.next().map(|_| lines.position())).collect();
        assert_eq!(positions, [6, 7, 9]);
    }

    #[test]
    fn nothing_follows_an_error() {
        let mut lines = Lines::new(&b"\xff\nb\n"[..], "text");
        assert!(lines.next().unwrap().is_err());
        assert!(lines.next().is_none());
    }
}
