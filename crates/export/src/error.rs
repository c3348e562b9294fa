//! Errors of writing and reading ONNX files.

use std::io;
use std::path::{Path, PathBuf};

/// A failed export or read; the message says where, and what was expected.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Problem);

/// The cause of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An invalid graph, or one that ONNX cannot represent.
    Graph,
    /// Weights that conflict or are too large.
    Weights,
    /// A folder that cannot be written: it exists, or contains other files.
    Destination,
    /// A read or write failed.
    Io,
    /// A file that is not an ONNX model, too large, or rejected.
    Format,
}

impl Error {
    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match &self.0 {
            Problem::Graph(_)
            | Problem::SameName { .. }
            | Problem::NoName { .. }
            | Problem::EmptyAxis { .. }
            | Problem::Contrib { .. }
            | Problem::LonelyCache { .. } => ErrorKind::Graph,
            Problem::Conflict { .. }
            | Problem::TooLargeInline { .. }
            | Problem::NotInPlace { .. } => ErrorKind::Weights,
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
    #[error(
        "{graph}: {name} is the name of {first} and of {second}; ONNX requires different names"
    )]
    SameName { graph: String, name: String, first: &'static str, second: &'static str },
    #[error("{graph}: {kind} has an empty name, which ONNX reserves for omitted inputs")]
    NoName { graph: String, kind: &'static str },
    #[error("{place}: expected a Reshape to positive sizes, found {shape}")]
    EmptyAxis { place: String, shape: cognate_graph::Shape },

    #[error("{place}: {operation} has no standard ONNX operator; set the target to ONNX Runtime")]
    Contrib { place: String, operation: &'static str },
    #[error("{place}: expected an attention that reads the cache where it is written, found none")]
    LonelyCache { place: String },

    // Weights.
    #[error(
        "{name}: {first} and {second} share a weights file, but have different weights with this name"
    )]
    Conflict { name: String, first: String, second: String },
    #[error(
        "{graph}: expected at most {limit} bytes of weights in an ONNX file, found {bytes}; write them to a separate file"
    )]
    TooLargeInline { graph: String, bytes: u64, limit: u64 },

    #[error("{}: graphs cannot point at its weights; export to a new folder without --in-place\n  {}", folder.display(), problems.join("\n  "))]
    NotInPlace { folder: PathBuf, problems: Vec<String> },

    // Folders.
    #[error("{}: exists already; pass --force to replace it", path.display())]
    Exists { path: PathBuf },
    #[error("{}: {message}", path.display())]
    NoFolder { path: PathBuf, message: &'static str },
    #[error("{}: contains {}; only earlier exports are replaced", path.display(), some_of(names))]
    Foreign { path: PathBuf, names: Vec<String> },
    #[error("{}: is not a regular file and is not replaced", path.display())]
    NoFile { path: PathBuf },
    #[error("{name:?}: expected a file name without folders")]
    FileName { name: String },
    #[error("{name}: duplicate file name")]
    SameFile { name: String },

    #[error("{}: cannot {action}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },

    #[error("{}: differs from what was written; is the disk damaged?", path.display())]
    ReadBack { path: PathBuf },

    // Reading.
    #[error("{}: expected an ONNX file of at most {limit} bytes, found more", path.display())]
    TooLong { path: PathBuf, limit: u64 },
    #[error("{}: not an ONNX model: {message}", path.display())]
    NoModel { path: PathBuf, message: String },
    #[error("{}: {message}", path.display())]
    Unsound { path: PathBuf, message: String },
    #[error(
        "COGNATE_LIMITS: expected parts=N, depth=N (at most 64) or elements=N, separated by commas, found {found:?}"
    )]
    Limits { found: String },
    #[error("{}: changed while it was read; try again when no program writes to it", path.display())]
    Changed { path: PathBuf },
}

/// The first names, and the number of others.
pub(crate) fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 3;
    match names.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{} and {more} more", names[..SHOWN].join(", ")),
        _ => names.join(", "),
    }
}

/// Adds the attempted action and its path to errors of the system.
pub(crate) trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error(Problem::Io { action, path: path.into(), source }))
    }
}
