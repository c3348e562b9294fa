//! `log.jsonl`: one line of JSON for each stretch of updates and each validation.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::checkpoint::{LOG, Output};
use super::events::{Stretch, Validation};
use crate::error::{Cause, Error, Result};

/// The maximum number of bytes of a line.
const MOST_IN_A_LINE: u64 = 1 << 16;

/// A line of a log.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LogLine {
    /// Updates.
    Stretch(Stretch),
    /// A validation.
    Validation(Validation),
}

/// Reads a run's log: `log.jsonl`, or the run's folder. An incomplete last line is left out.
///
/// # Errors
/// If the file cannot be read, or a line is not one of a log; the error names the line.
pub fn read_log(path: &Path) -> Result<Vec<LogLine>> {
    let path = if path.is_dir() { path.join(LOG) } else { path.to_owned() };
    let wrong = |reason: String| Cause::Unreadable { file: path.display().to_string(), reason };
    let mut lines = BufReader::new(File::open(&path).map_err(|error| wrong(error.to_string()))?);
    let mut found = Vec::new();
    for number in 1.. {
        let mut line = Vec::new();
        let most = MOST_IN_A_LINE + 1;
        lines
            .by_ref()
            .take(most)
            .read_until(b'\n', &mut line)
            .map_err(|error| wrong(error.to_string()))?;
        if line.last() != Some(&b'\n') && (line.len() as u64) < most {
            break;
        }
        let read = serde_json::from_slice(&line)
            .map_err(|_| wrong(format!("line {number}: not a line of a training log")))?;
        found.push(read);
    }
    Ok(found)
}

/// The file, open for more lines.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    name: String,
    last: String,
}

impl Log {
    /// Opens the log of a run at `update`; removes lines of later updates, whose work was lost.
    pub(super) fn open(output: &Output, update: u64) -> Result<Self> {
        let path = output.path().join(LOG);
        let name = path.display().to_string();
        let failed = |error: std::io::Error| {
            Error::from(Cause::Unreadable { file: name.clone(), reason: error.to_string() })
        };
        let kept: Vec<String> = match File::open(&path) {
            Ok(file) => BufReader::new(file)
                .lines()
                .map_while(Result::ok)
                .filter(|line| is_until(line, update))
                .collect(),
            Err(_) => Vec::new(),
        };
        let text: String = kept.iter().map(|line| format!("{line}\n")).collect();
        output.write(LOG, &text)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(failed)?;
        Ok(Self { file, name, last: kept.last().cloned().unwrap_or_default() })
    }

    /// Writes `line`, unless it is the last one: a finished run that is resumed has the same result.
    pub(super) fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let failed = |reason: String| Cause::Folder {
            folder: self.name.clone(),
            problem: format!("cannot be written: {reason}"),
        };
        let text = serde_json::to_string(line).map_err(|error| failed(error.to_string()))?;
        if text != self.last {
            writeln!(self.file, "{text}").map_err(|error| failed(error.to_string()))?;
            self.last = text;
        }
        Ok(())
    }
}

fn is_until(line: &str, update: u64) -> bool {
    serde_json::from_str::<Value>(line)
        .is_ok_and(|line| line["update"].as_u64().is_some_and(|found| found <= update))
}
