//! Where sentences come from: arguments, a file, standard input; and what stands before a sentence's number. Beside them may
//! come what the translation of each begins with.

use anyhow::{Context, Result, bail};
use cognate::Line;
use cognate_text::Lines;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::Path;

const STDIN: &str = "stdin";

/// Lines of a window, where nobody waits for each.
const WINDOW: usize = 2000;

/// A file below this size has few lines: they are hardly worth more than one worker.
const FEW_BYTES: u64 = 1 << 12;

type Reading = Box<dyn Iterator<Item = cognate_text::Result<String>> + Send>;

/// What translations begin with, line by line.
struct Prefixes {
    lines: Reading,
    name: String,
    /// Lines that were read.
    number: usize,
}

/// Where sentences come from.
pub(crate) struct Input {
    lines: Reading,
    /// What the sentences' text is called.
    name: String,
    prefixes: Option<Prefixes>,
    /// What a sentence is called in messages.
    pub(crate) unit: String,
    /// The regular files that are read, by the options that name them.
    pub(crate) files: Vec<(&'static str, Metadata)>,
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
                name: "the arguments".into(),
                prefixes: None,
                unit: "sentence".into(),
                files: Vec::new(),
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
                let reading = Self::reading(BufReader::new(file), place.to_string(), bytes, false);
                Self { files: vec![("--input", metadata)], ..reading }
            }
            None => {
                let reading = Self::reading(BufReader::new(io::stdin()), STDIN.into(), None, io::stdin().is_terminal());
                Self { files: standard_input().map(|metadata| ("standard input", metadata)).into_iter().collect(), ..reading }
            }
        };
        opened.window_len = window.unwrap_or(opened.window_len);
        Ok(opened)
    }

    fn reading(reader: impl BufRead + Send + 'static, name: String, bytes: Option<u64>, is_typed: bool) -> Self {
        Self {
            unit: format!("{name}: line"),
            lines: Box::new(Lines::new(reader, name.clone())),
            name,
            prefixes: None,
            files: Vec::new(),
            bytes,
            is_typed,
            is_long: !is_typed && bytes.is_none_or(|bytes| bytes >= FEW_BYTES),
            window_len: if is_typed { 1 } else { WINDOW },
        }
    }

    /// The same with what the translation of each sentence begins with, from the lines of a file, or of standard input.
    ///
    /// # Errors
    /// If the file cannot be opened, or standard input has the sentences.
    pub(crate) fn with_prefixes(mut self, path: &Path) -> Result<Self> {
        let (reader, name): (Box<dyn BufRead + Send>, String) = if path == Path::new("-") {
            if self.name == STDIN {
                bail!("--target-prefixes: standard input has the sentences; give these by --input, or the prefixes in a file");
            }
            (Box::new(BufReader::new(io::stdin())), STDIN.into())
        } else {
            let name = path.display().to_string();
            let file = File::open(path).with_context(|| format!("--target-prefixes: {name}: cannot be read"))?;
            self.files.extend(file.metadata().map(|metadata| ("--target-prefixes", metadata)));
            (Box::new(BufReader::new(file)), name)
        };
        self.prefixes = Some(Prefixes { lines: Box::new(Lines::new(reader, name.clone())), name, number: 0 });
        Ok(self)
    }

    /// What the prefix of a sentence is called in messages.
    pub(crate) fn prefix_unit(&self) -> String {
        self.prefixes.as_ref().map_or("--target-prefix".into(), |prefixes| format!("{}: line", prefixes.name))
    }

    fn line(&mut self) -> Result<Option<Line>> {
        let text = self.lines.next().transpose()?;
        let Some(prefixes) = &mut self.prefixes else { return Ok(text.map(|text| Line { text, prefix: None })) };
        prefixes.number += 1;
        let (sentences, file, number) = (&self.name, &prefixes.name, prefixes.number);
        match (text, prefixes.lines.next().transpose()?) {
            (None, None) => Ok(None),
            (Some(text), prefix @ Some(_)) => Ok(Some(Line { text, prefix })),
            (Some(_), None) => bail!("{file}: ends before line {number}; expected a line for each sentence of {sentences}"),
            (None, Some(_)) => bail!("{file}: line {number}: is one too many; expected a line for each sentence of {sentences}"),
        }
    }
}

impl Iterator for Input {
    type Item = Result<Line>;

    fn next(&mut self) -> Option<Result<Line>> {
        self.line().transpose()
    }
}

/// What standard input reads.
#[cfg(unix)]
fn standard_input() -> Option<Metadata> {
    use std::os::fd::AsFd;
    File::from(io::stdin().as_fd().try_clone_to_owned().ok()?).metadata().ok()
}

#[cfg(not(unix))]
fn standard_input() -> Option<Metadata> {
    None
}
