//! Reading a corpus again, block by block in any order.
//!
//! Files are read and not mapped: a file that another program truncates is an error here; with a
//! mapping it would end the process.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};

use super::index::sides;
use super::{BLOCK, Corpus, Files, Pair, Place};
use crate::error::{Cause, Result};

/// The open files of a corpus.
#[derive(Debug)]
pub(crate) struct BlockReader {
    /// The files of each part.
    files: Vec<Vec<File>>,
}

impl BlockReader {
    pub(crate) fn open(corpus: &Corpus) -> Result<Self> {
        let open = |path: &std::path::PathBuf| {
            File::open(path).map_err(|error| {
                Cause::Unreadable { file: path.display().to_string(), reason: error.to_string() }
                    .into()
            })
        };
        let part = |files: &Files| match files {
            Files::Parallel { source, target } => [source, target].into_iter().map(open).collect(),
            Files::Tsv { file, .. } => [file].into_iter().map(open).collect(),
        };
        Ok(Self {
            files: corpus.parts.iter().map(|index| part(&index.files)).collect::<Result<_>>()?,
        })
    }

    /// The kept pairs of a block.
    pub(crate) fn read(&mut self, corpus: &Corpus, block: u64) -> Result<Vec<Pair>> {
        let (part_index, block) = corpus.part(block);
        let part = &corpus.parts[part_index];
        let first = (block * BLOCK) as u64;
        let n_lines = (part.n_lines - first).min(BLOCK as u64) as usize;
        let names = part.files.names();
        let mut texts = Vec::new();
        for ((file, starts), name) in
            self.files[part_index].iter_mut().zip(&part.starts).zip(&names)
        {
            texts.push(text(file, name, starts[block]..starts[block + 1], first)?);
        }
        let mut columns = Vec::new();
        for (text, name) in texts.iter().zip(&names) {
            let mut lines: Vec<&str> = text.split('\n').collect();
            lines.pop_if(|rest| rest.is_empty() && text.ends_with('\n'));
            if lines.len() != n_lines {
                Err(Cause::Changed { file: name.clone(), line: first + 1 })?;
            }
            columns.push(lines);
        }
        let mut pairs = Vec::new();
        for bit in (0..n_lines).filter(|bit| part.kept[block] >> bit & 1 == 1) {
            let line = first + bit as u64 + 1;
            // The last line, without a line feed, keeps a carriage return, as when it was indexed.
            let is_last = |column: &Vec<&str>, text: &String| {
                bit + 1 == column.len() && !text.ends_with('\n')
            };
            let lines: Vec<&str> = columns
                .iter()
                .zip(&texts)
                .map(|(column, text)| {
                    if is_last(column, text) {
                        column[bit]
                    } else {
                        column[bit].strip_suffix('\r').unwrap_or(column[bit])
                    }
                })
                .collect();
            let (source, target) = sides(&part.files, &lines, line)?;
            let place = Place { files: part_index as u32, line };
            pairs.push(Pair { place, source: source.to_owned(), target: target.to_owned() });
        }
        Ok(pairs)
    }
}

/// The text of a range of bytes; `first` lines precede it.
fn text(file: &mut File, name: &str, range: std::ops::Range<u64>, first: u64) -> Result<String> {
    let changed = || Cause::Changed { file: name.to_owned(), line: first + 1 };
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let read = file.seek(SeekFrom::Start(range.start)).and_then(|_| file.read_exact(&mut bytes));
    match read {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(changed())?,
        Err(error) => Err(Cause::Unreadable { file: name.to_owned(), reason: error.to_string() })?,
    }
    Ok(String::from_utf8(bytes).map_err(|_| changed())?)
}
