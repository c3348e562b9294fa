//! Parallel text: pairs of sentences in files.
//!
//! Opening reads everything once: it checks the text, drops unusable pairs, and keeps the position
//! of every 64th line and one bit per line: a third of a byte for each pair in two files. Sentences
//! are read again when they are needed, in blocks of 64 lines, so corpora may be larger than
//! memory.

mod blocks;
mod index;

use std::fmt;
use std::path::PathBuf;

use crate::error::{Cause, Result};

pub(crate) use blocks::BlockReader;
use index::Part;

/// Number of lines in a block: the bits of a word mark the kept ones.
pub(crate) const BLOCK: usize = 64;

/// The files of a parallel text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// Two files, line by line.
    Parallel {
        /// Sentences of the source language.
        source: PathBuf,
        /// Their translations.
        target: PathBuf,
    },
    /// One file, with columns separated by tabs and counted from 1.
    Tsv {
        /// The file.
        file: PathBuf,
        /// The source's column.
        source_column: usize,
        /// The target's column.
        target_column: usize,
    },
}

impl Files {
    /// The names of the source's and the target's file, for messages.
    pub(crate) fn names(&self) -> [String; 2] {
        match self {
            Files::Parallel { source, target } => {
                [source, target].map(|path| path.display().to_string())
            }
            Files::Tsv { file, .. } => [(); 2].map(|()| file.display().to_string()),
        }
    }
}

/// The pairs that are dropped before tokenization; a pair with an empty side always is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaning {
    /// Maximum number of words, separated by white space, on either side; `None` for no limit.
    pub max_words: Option<usize>,
}

/// Numbers of dropped pairs by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// One side or both are empty.
    pub empty: u64,
    /// One side or both have too many words.
    pub long: u64,
}

impl fmt::Display for Dropped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} with an empty side, {} with too many words", self.empty, self.long)
    }
}

/// A line of one of the [`Files`] of a corpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The index of the files.
    pub files: u32,
    /// Counted from 1.
    pub line: u64,
}

/// A sentence and its translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Their place in the corpus.
    pub place: Place,
    /// The sentence.
    pub source: String,
    /// Its translation.
    pub target: String,
}

/// Files of parallel text, one after the other.
///
/// ```
/// use cognate_train::{Cleaning, Corpus, Files};
///
/// let folder = tempfile::tempdir()?;
/// let [source, target] = ["train.en", "train.de"].map(|name| folder.path().join(name));
/// std::fs::write(&source, "A man.\r\n\r\nTwo dogs.\r\n")?;
/// std::fs::write(&target, "Ein Mann.\nLeer.\nZwei Hunde.\n")?;
/// let corpus = Corpus::open(&[Files::Parallel { source, target }], &Cleaning::default())?;
/// assert_eq!((corpus.n_lines(), corpus.n_pairs(), corpus.dropped().empty), (3, 2, 1));
/// let targets: Vec<String> = corpus.pairs()?.map(|pair| Ok(pair?.target)).collect::<cognate_train::Result<_>>()?;
/// assert_eq!(targets, ["Ein Mann.", "Zwei Hunde."]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Corpus {
    parts: Vec<Part>,
    /// The number of the first block of each part, followed by the number of all blocks.
    first_blocks: Vec<u64>,
    dropped: Dropped,
    fingerprint: blake3::Hash,
}

impl Corpus {
    /// Reads, checks and indexes files.
    ///
    /// # Errors
    /// If a file cannot be read, is empty or not UTF-8, the files of a pair have different numbers
    /// of lines, a line lacks a column, or no pair is left.
    pub fn open(files: &[Files], cleaning: &Cleaning) -> Result<Self> {
        if files.is_empty() {
            Err(Cause::NoCorpus)?;
        }
        let (mut hasher, mut dropped) = (blake3::Hasher::new(), Dropped::default());
        let parts: Vec<Part> = files
            .iter()
            .map(|files| Part::scan(files, cleaning, &mut hasher, &mut dropped))
            .collect::<Result<_>>()?;
        let mut first_blocks = vec![0];
        for part in &parts {
            first_blocks.push(first_blocks.last().copied().unwrap_or(0) + part.n_blocks() as u64);
        }
        let corpus = Self { parts, first_blocks, dropped, fingerprint: hasher.finalize() };
        if corpus.n_pairs() == 0 {
            let names: Vec<String> = files.iter().map(|files| files.names()[0].clone()).collect();
            Err(Cause::NothingLeft {
                files: names.join(", "),
                n_lines: corpus.n_lines(),
                dropped: dropped.to_string(),
            })?;
        }
        Ok(corpus)
    }

    /// Number of lines of all files; a pair of files counts once.
    pub fn n_lines(&self) -> u64 {
        self.parts.iter().map(|part| part.n_lines).sum()
    }

    /// Number of kept pairs.
    pub fn n_pairs(&self) -> u64 {
        self.parts.iter().map(Part::n_pairs).sum()
    }

    /// Numbers of dropped pairs.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// A hash of all sentences in their order, as hexadecimal digits: a run resumes only on the
    /// same corpus.
    pub fn fingerprint(&self) -> String {
        self.fingerprint.to_hex().to_string()
    }

    /// All kept pairs in order.
    ///
    /// # Errors
    /// If a file cannot be opened again; the iterator fails if it changed.
    pub fn pairs(&self) -> Result<impl Iterator<Item = Result<Pair>> + use<'_>> {
        let mut reader = BlockReader::open(self)?;
        let blocks = (0..self.n_blocks()).map(move |block| reader.read(self, block));
        Ok(blocks.flat_map(|pairs| match pairs {
            Ok(pairs) => pairs.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        }))
    }

    /// The file and line of a pair's source, for messages: `train.en: line 17`.
    pub fn name(&self, place: Place) -> String {
        let file = self
            .parts
            .get(place.files as usize)
            .map_or_else(|| "?".to_owned(), |part| part.files.names()[0].clone());
        format!("{file}: line {}", place.line)
    }

    pub(crate) fn n_blocks(&self) -> u64 {
        self.first_blocks.last().copied().unwrap_or(0)
    }

    /// The part that contains a block, and the block's number in it.
    pub(crate) fn part(&self, block: u64) -> (usize, usize) {
        let part = self.first_blocks.partition_point(|first| *first <= block) - 1;
        (part, (block - self.first_blocks[part]) as usize)
    }
}
