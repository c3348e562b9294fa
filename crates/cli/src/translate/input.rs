//! The sentences to translate: arguments, a file or standard input, with optional prefixes of their
//! translations.

use crate::messages;
use crate::parallel::ParallelLines;
use anyhow::Result;
use cognate::Line;
use std::fs::Metadata;
use std::io::{self, IsTerminal};
use std::path::Path;

/// Lines of a window by default.
const WINDOW: usize = 2000;

/// Smaller files are translated by one worker.
const SMALL_FILE: u64 = 1 << 12;

/// The sentences to translate.
pub(crate) struct Input {
    lines: ParallelLines,
    /// The name of the prefixes in messages.
    prefixes: Option<String>,
    /// The name of a sentence in messages, before its number.
    pub(crate) unit: String,
    /// The files that are read, by the options that name them.
    pub(crate) files: Vec<(&'static str, Metadata)>,
    /// The size of a file.
    pub(crate) bytes: Option<u64>,
    /// Whether the sentences are typed on a terminal.
    pub(crate) is_typed: bool,
    /// Whether there can be enough sentences for several workers.
    pub(crate) is_long: bool,
    /// Maximum number of lines of a window.
    pub(crate) window_len: usize,
}

impl Input {
    /// The sentences `text`, or if there are none the lines of the file `input`, or of standard
    /// input; `window` lines at a time.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(crate) fn open(
        text: Vec<String>,
        input: Option<&Path>,
        window: Option<usize>,
    ) -> Result<Self> {
        let mut lines = ParallelLines::default();
        let (mut files, mut bytes, is_given) = (Vec::new(), None, !text.is_empty());
        let path = input.unwrap_or(Path::new("-"));
        let is_typed = !is_given && path == Path::new("-") && io::stdin().is_terminal();
        if is_given {
            lines.add(text, "the arguments");
        } else {
            let option = if path == Path::new("-") { "standard input" } else { "--input" };
            let metadata = lines.open(option, path)?;
            bytes = metadata
                .as_ref()
                .filter(|metadata| option == "--input" && metadata.is_file())
                .map(Metadata::len);
            files.extend(metadata.map(|metadata| (option, metadata)));
        }
        if is_typed {
            messages::note("type one sentence per line; Ctrl-D ends");
        }
        Ok(Self {
            unit: if is_given { "sentence".into() } else { format!("{}: line", lines.name(0)) },
            lines,
            prefixes: None,
            files,
            bytes,
            is_typed,
            is_long: !is_given && !is_typed && bytes.is_none_or(|bytes| bytes >= SMALL_FILE),
            window_len: window.unwrap_or(if is_typed { 1 } else { WINDOW }),
        })
    }

    /// Adds the prefixes of the translations: the lines of a file, or of standard input.
    ///
    /// # Errors
    /// If the file cannot be opened, or standard input has the sentences.
    pub(crate) fn with_prefixes(mut self, path: &Path) -> Result<Self> {
        const OPTION: &str = "--target-prefixes";
        self.files.extend(self.lines.open(OPTION, path)?.map(|metadata| (OPTION, metadata)));
        self.prefixes = Some(self.lines.name(1).to_owned());
        Ok(self)
    }

    /// The name of the prefix of a sentence in messages.
    pub(crate) fn prefix_unit(&self) -> String {
        self.prefixes.as_ref().map_or("--target-prefix".into(), |name| format!("{name}: line"))
    }
}

impl Iterator for Input {
    type Item = Result<Line>;

    fn next(&mut self) -> Option<Result<Line>> {
        let line = |lines: Vec<String>| {
            let mut lines = lines.into_iter();
            Line { text: lines.next().unwrap_or_default(), prefix: lines.next() }
        };
        self.lines.next().transpose().map(|lines| lines.map(line))
    }
}
