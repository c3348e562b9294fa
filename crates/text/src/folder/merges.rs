//! `merges.txt`: the merges of byte pair encoding, best first.

use std::path::Path;

use crate::error::{Cause, Result};
use crate::tokenizer_file;
use crate::words::is_space;

const EXPECTED: &str = "merges.txt: a heading, then two pieces a line";

/// The treatment of lines that are not pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OddLines {
    Refuse,
    Skip,
}

/// The pairs of a file. As in transformers, its first line is a heading and its last is empty.
pub(crate) fn read(path: &Path, odd_lines: OddLines) -> Result<Vec<(String, String)>> {
    let file = path.display().to_string();
    let bytes = tokenizer_file::read(path, EXPECTED)?;
    let text = String::from_utf8(bytes).map_err(|error| Cause::NotUtf8 {
        file: file.clone(),
        line: 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count(),
        byte: error.utf8_error().valid_up_to() + 1,
    })?;
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut merges = Vec::new();
    let lines: Vec<&str> = text.split('\n').collect();
    for (number, line) in lines.iter().enumerate().take(lines.len().saturating_sub(1)).skip(1) {
        let pieces: Vec<&str> = line.split(is_space).filter(|piece| !piece.is_empty()).collect();
        match pieces[..] {
            [left, right] => merges.push((left.to_owned(), right.to_owned())),
            _ if odd_lines == OddLines::Skip => {}
            _ => Err(Cause::BadMerge {
                file: file.clone(),
                line: number + 1,
                n_pieces: pieces.len(),
            })?,
        }
    }
    Ok(merges)
}
