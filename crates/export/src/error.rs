//! What can go wrong between a graph and a folder of ONNX files.

use std::io;
use std::path::{Path, PathBuf};

/// An export or a reading that failed; the message says where, and what was expected.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Problem);

/// What an [`Error`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A graph that is not legal, or that ONNX cannot say.
    Graph,
    /// Weights that contradict one another or are too large.
    Weights,
    /// A folder that cannot be written as asked: it exists, or holds other things.
    Destination,
    /// The system refused to read or write.
    Io,
    /// A file that is no ONNX model, too large to be one, or not fit for an engine.
    Format,
}

impl Error {
    /// What the error is about.
    pub fn kind(&self) -> ErrorKind {
        match &self.0 {
            Problem::Graph(_)
            | Problem::SameName { .. }
            | Problem::NoName { .. }
            | Problem::EmptyAxis { .. }
            | Problem::Contrib { .. }
            | Problem::LonelyCache { .. } => ErrorKind::Graph,
            Problem::Conflict { .. } | Problem::TooLargeInline { .. } | Problem::NotInPlace { .. } => ErrorKind::Weights,
            Problem::Exists { .. }
            | Problem::NoFolder { .. }
            | Problem::NoFile { .. }
            | Problem::Foreign { .. }
            | Problem::FileName { .. }
            | Problem::SameFile { .. } => ErrorKind::Destination,
            Problem::Io { .. } | Problem::ReadBack { .. } => ErrorKind::Io,
            Problem::TooLong { .. }
            | Problem::NoModel { .. }
            | Problem::Unsound { .. }
            | Problem::Changed { .. }
            | Problem::Limits { .. } => ErrorKind::Format,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    // Lowering.
    #[error(transparent)]
    Graph(#[from] cognate_graph::Error),
    #[error("{graph}: {name} names both {first} and {second}; ONNX wants a name for each")]
    SameName { graph: String, name: String, first: &'static str, second: &'static str },
    #[error("{graph}: {kind} has an empty name, which ONNX keeps for inputs left out")]
    NoName { graph: String, kind: &'static str },
    #[error("{place}: ONNX reshapes to positive sizes only, found {shape}")]
    EmptyAxis { place: String, shape: cognate_graph::Shape },

    #[error("{place}: no standard operator of ONNX does what {operation} does; write the graph for ONNX Runtime alone")]
    Contrib { place: String, operation: &'static str },
    #[error("{place}: a cache is written by the attention that reads it at the same place, and there is none")]
    LonelyCache { place: String },

    // Weights.
    #[error("{name}: {first} and {second} share a weights file, but want different weights of this name")]
    Conflict { name: String, first: String, second: String },
    #[error("{graph}: {bytes} bytes of weights, more than the {limit} that one ONNX file may hold; write them to a file of their own")]
    TooLargeInline { graph: String, bytes: u64, limit: u64 },

    #[error("{}: graphs cannot point at its weights; export to a folder of its own, without --in-place\n  {}", folder.display(), problems.join("\n  "))]
    NotInPlace { folder: PathBuf, problems: Vec<String> },

    // Folders.
    #[error("{}: exists already; pass --force to replace it", path.display())]
    Exists { path: PathBuf },
    #[error("{}: {message}", path.display())]
    NoFolder { path: PathBuf, message: &'static str },
    #[error("{}: holds {}, which this export does not write; only an earlier export is replaced", path.display(), some_of(names))]
    Foreign { path: PathBuf, names: Vec<String> },
    #[error("{}: is no regular file, and is not replaced", path.display())]
    NoFile { path: PathBuf },
    #[error("{name:?}: a file of the folder wants a plain name")]
    FileName { name: String },
    #[error("{name}: two files of the folder have this name")]
    SameFile { name: String },

    #[error("{}: cannot {action}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },

    #[error("{}: does not read back as it was written; is the disk damaged?", path.display())]
    ReadBack { path: PathBuf },

    // Reading.
    #[error("{}: more than the {limit} bytes that an ONNX file may have", path.display())]
    TooLong { path: PathBuf, limit: u64 },
    #[error("{}: not an ONNX model: {message}", path.display())]
    NoModel { path: PathBuf, message: String },
    #[error("{}: {message}", path.display())]
    Unsound { path: PathBuf, message: String },
    #[error("COGNATE_LIMITS: expected parts=N, depth=N (at most 64) or elements=N, with commas between, found {found:?}")]
    Limits { found: String },
    #[error("{}: changed while it was read; read it again when nothing writes there", path.display())]
    Changed { path: PathBuf },
}

/// The first names, and how many more there are.
pub(crate) fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 3;
    match names.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{} and {more} more", names[..SHOWN].join(", ")),
        _ => names.join(", "),
    }
}

/// Says what was tried, and on which path, when the system refuses.
pub(crate) trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error(Problem::Io { action, path: path.into(), source }))
    }
}
