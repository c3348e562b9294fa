//! The messages between threads.

use crate::error::Error;
use crate::translation::Translation;
use std::any::Any;

/// A message to the caller's thread.
pub(super) enum Message<E> {
    /// Lines were read; windows are in order.
    Window(Window<E>),
    /// A batch was translated, or failed.
    Done(Done),
    /// A thread panicked.
    Panic(Box<dyn Any + Send>),
}

/// Encoded lines.
pub(super) struct Window<E> {
    /// The number of its first line, from 1.
    pub(super) first: usize,
    /// One for each line, with the warnings about it.
    pub(super) translations: Vec<Translation>,
    /// The sentences, if unknown tokens are replaced by their words.
    pub(super) sentences: Vec<String>,
    /// The sentences, the longest first.
    pub(super) batches: Vec<Batch>,
    /// The number of lines that are in no batch, and their bytes with line ends.
    pub(super) empty: (usize, usize),
    /// The error of the next line.
    pub(super) failure: Option<E>,
    pub(super) is_last: bool,
}

/// Sentences that are translated together.
pub(super) struct Batch {
    /// The number of its window, from 0.
    pub(super) window: usize,
    /// The indices of its sentences in the window.
    pub(super) lines: Vec<usize>,
    /// The numbers of its sentences in the input, from 1.
    pub(super) numbers: Vec<u64>,
    pub(super) sources: Vec<Vec<i64>>,
    /// The prefixes of their translations; empty for none.
    pub(super) prefixes: Vec<Vec<i64>>,
    /// The bytes of its lines, with line ends.
    pub(super) bytes: usize,
}

/// The result of a batch.
pub(super) struct Done {
    /// The number of its window, from 0.
    pub(super) window: usize,
    pub(super) n_lines: usize,
    /// The bytes of its lines, with line ends.
    pub(super) bytes: usize,
    /// Translations with the indices of their sentences in the window; all before a failure.
    pub(super) translations: Vec<(usize, Translation)>,
    /// The index and the error of the first sentence without a translation.
    pub(super) failure: Option<(usize, Error)>,
}
