//! One pass over the files of a corpus: checks them, selects pairs and finds where blocks begin.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use cognate_text::Lines;

use super::{BLOCK, Cleaning, Dropped, Files};
use crate::error::{Cause, Result};

/// The files of a pair, and their index.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) files: Files,
    pub(crate) n_lines: u64,
    /// The byte at which each block begins, and the end of the last one, for each file.
    pub(crate) starts: Vec<Vec<u64>>,
    /// The kept lines of each block, one bit each.
    pub(crate) kept: Vec<u64>,
}

impl Part {
    pub(super) fn scan(
        files: &Files,
        cleaning: &Cleaning,
        hasher: &mut blake3::Hasher,
        dropped: &mut Dropped,
    ) -> Result<Self> {
        let paths: Vec<&Path> = match files {
            Files::Parallel { source, target } => vec![source, target],
            Files::Tsv { file, source_column, target_column } => {
                if *source_column.min(target_column) == 0 {
                    Err(Cause::ColumnZero { file: file.display().to_string() })?;
                }
                vec![file]
            }
        };
        let mut starts: Vec<Vec<u64>> =
            paths.iter().map(|path| Ok(vec![text_start(path)?])).collect::<Result<_>>()?;
        let mut readers =
            paths.iter().map(Lines::open).collect::<cognate_text::Result<Vec<_>>>()?;
        let (mut n_lines, mut kept) = (0, Vec::new());
        loop {
            let lines: Vec<Option<String>> = readers
                .iter_mut()
                .map(|lines| lines.next().transpose())
                .collect::<Result<_, _>>()?;
            let Some(lines) = lines.iter().map(Option::as_deref).collect::<Option<Vec<&str>>>()
            else {
                let present: Vec<bool> = lines.iter().map(Option::is_some).collect();
                if present.contains(&true) {
                    Err(differing(files, &mut readers, n_lines, &present)?)?;
                }
                break;
            };
            let bit = n_lines as usize % BLOCK;
            if bit == 0 {
                kept.push(0_u64);
            }
            n_lines += 1;
            let (source, target) = sides(files, &lines, n_lines)?;
            for side in [source, target] {
                hasher.update(side.as_bytes()).update(b"\n");
            }
            let reason = reason(source, target, cleaning, dropped);
            match (reason, kept.last_mut()) {
                (Some(count), _) => *count += 1,
                (None, Some(word)) => *word |= 1 << bit,
                (None, None) => {}
            }
            if bit + 1 == BLOCK {
                starts
                    .iter_mut()
                    .zip(&readers)
                    .for_each(|(starts, lines)| starts.push(lines.position()));
            }
        }
        if n_lines == 0 {
            Err(Cause::NoLines { file: paths[0].display().to_string() })?;
        }
        if !n_lines.is_multiple_of(BLOCK as u64) {
            starts
                .iter_mut()
                .zip(&readers)
                .for_each(|(starts, lines)| starts.push(lines.position()));
        }
        Ok(Self { files: files.clone(), n_lines, starts, kept })
    }

    pub(crate) fn n_blocks(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn n_pairs(&self) -> u64 {
        self.kept.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// The source and the target of a line of the files.
pub(super) fn sides<'l>(
    files: &Files,
    lines: &[&'l str],
    number: u64,
) -> Result<(&'l str, &'l str)> {
    match files {
        Files::Parallel { .. } => Ok((lines[0], lines[1])),
        Files::Tsv { file, source_column, target_column } => {
            let column = |column: usize| lines[0].split('\t').nth(column - 1);
            match (column(*source_column), column(*target_column)) {
                (Some(source), Some(target)) => Ok((source, target)),
                _ => Err(Cause::Columns {
                    file: file.display().to_string(),
                    line: number,
                    found: lines[0].split('\t').count(),
                    expected: *source_column.max(target_column),
                })?,
            }
        }
    }
}

/// The counter of the reason for which a pair is dropped; `None` if it is kept.
fn reason<'d>(
    source: &str,
    target: &str,
    cleaning: &Cleaning,
    dropped: &'d mut Dropped,
) -> Option<&'d mut u64> {
    if source.trim().is_empty() || target.trim().is_empty() {
        return Some(&mut dropped.empty);
    }
    let max_words = cleaning.max_words?;
    [source, target]
        .iter()
        .any(|side| side.split_whitespace().nth(max_words).is_some())
        .then_some(&mut dropped.long)
}

/// The error of two files of which one has ended, with the numbers of lines of both.
fn differing(
    files: &Files,
    readers: &mut [Lines<BufReader<File>>],
    n_lines: u64,
    present: &[bool],
) -> Result<Cause> {
    let [source_file, target_file] = files.names();
    let mut counts = [n_lines; 2];
    for ((lines, present), count) in readers.iter_mut().zip(present).zip(&mut counts) {
        *count += u64::from(*present);
        for line in lines {
            line?;
            *count += 1;
        }
    }
    let [n_source, n_target] = counts;
    if counts.contains(&0) {
        let file = if n_source == 0 { source_file } else { target_file };
        return Ok(Cause::NoLines { file });
    }
    Ok(Cause::LineCounts { source_file, n_source, target_file, n_target })
}

/// Where the text begins: after a byte order mark.
fn text_start(path: &Path) -> Result<u64> {
    let unreadable = |error: std::io::Error| Cause::Unreadable {
        file: path.display().to_string(),
        reason: error.to_string(),
    };
    let mut start = Vec::new();
    cognate_model::open_file(path)
        .map_err(unreadable)?
        .take(3)
        .read_to_end(&mut start)
        .map_err(unreadable)?;
    Ok(if start == "\u{feff}".as_bytes() { 3 } else { 0 })
}
