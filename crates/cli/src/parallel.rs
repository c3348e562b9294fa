//! Texts that are read line by line together.

use anyhow::{Context, Result, bail};
use cognate_text::Lines;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

const STDIN: &str = "stdin";

/// Texts with equal numbers of lines.
#[derive(Default)]
pub(crate) struct ParallelLines {
    texts: Vec<Text>,
    number: usize,
}

struct Text {
    lines: Box<dyn Iterator<Item = cognate_text::Result<String>> + Send>,
    name: String,
}

impl ParallelLines {
    /// Adds lines in memory.
    pub(crate) fn add(&mut self, lines: Vec<String>, name: &str) {
        self.texts.push(Text { lines: Box::new(lines.into_iter().map(Ok)), name: name.into() });
    }

    /// Adds a file, or standard input for `-`. `option` is the option that names it. Returns its
    /// metadata.
    ///
    /// # Errors
    /// If the file cannot be opened, or two texts are standard input.
    pub(crate) fn open(&mut self, option: &str, path: &Path) -> Result<Option<Metadata>> {
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { STDIN.into() } else { path.display().to_string() };
        let (reader, metadata): (Box<dyn BufRead + Send>, _) = if is_stdin {
            if self.texts.iter().any(|text| text.name == STDIN) {
                bail!("{option}: standard input is another text already; pass a file");
            }
            (Box::new(BufReader::new(io::stdin())), standard_input())
        } else {
            let unreadable = || format!("{option}: {name}: cannot be read");
            let file = File::open(path).with_context(unreadable)?;
            let metadata = file.metadata().with_context(unreadable)?;
            if metadata.is_dir() {
                bail!("{option}: {name}: is a folder; expected a text file, one sentence a line");
            }
            (Box::new(BufReader::new(file)), Some(metadata))
        };
        self.texts.push(Text { lines: Box::new(Lines::new(reader, name.clone())), name });
        Ok(metadata)
    }

    /// The name of a text in messages.
    pub(crate) fn name(&self, index: usize) -> &str {
        &self.texts[index].name
    }

    /// The next line of each text; `None` at the end.
    ///
    /// # Errors
    /// If a line cannot be read, or a text ends before another.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<String>>> {
        self.number += 1;
        let lines = self.texts.iter_mut().map(|text| text.lines.next().transpose());
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        match (lines.iter().position(Option::is_none), lines.iter().position(Option::is_some)) {
            (Some(short), Some(long)) => {
                let [short, long] = [short, long].map(|index| self.name(index));
                bail!(
                    "{short}: line {} is missing; expected as many lines as in {long}",
                    self.number
                )
            }
            _ => Ok(lines.into_iter().collect()),
        }
    }
}

/// The metadata of standard input.
#[cfg(unix)]
fn standard_input() -> Option<Metadata> {
    use std::os::fd::AsFd;
    File::from(io::stdin().as_fd().try_clone_to_owned().ok()?).metadata().ok()
}

#[cfg(not(unix))]
fn standard_input() -> Option<Metadata> {
    None
}
