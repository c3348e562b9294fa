//! Messages about a loaded model.

use std::fmt;
use std::path::PathBuf;

/// A message about a loaded model, which is not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The model has several languages and no target language is set.
    NoTargetLanguage {
        /// The model's folder.
        folder: PathBuf,
        /// The languages.
        codes: Vec<String>,
    },
    /// Tensors of the checkpoint are ignored.
    UnusedTensors {
        /// The checkpoint.
        folder: PathBuf,
        /// The tensors' names.
        names: Vec<String>,
    },
    /// The tokenizer cannot be read.
    NoTokenizer {
        /// The reason.
        reason: String,
        /// The consequence.
        consequence: &'static str,
    },
    /// Lines of a text have more tokens than the model's positions and were truncated.
    LinesCut {
        /// The text.
        file: String,
        /// Number of truncated lines.
        n_cut: usize,
        /// Number of lines.
        n_lines: usize,
        /// The maximum number of tokens.
        limit: usize,
    },
    /// A GPU leaves operations to the processor, which is slow.
    LeftToProcessor {
        /// Operators and names of the graphs' nodes.
        nodes: Vec<String>,
    },
    /// Several threads were requested, but the engine uses one.
    OneThread {
        /// The engine's name.
        engine: &'static str,
    },
    /// The report of a verification cannot be stored.
    ReportNotStored {
        /// The reason.
        reason: String,
    },
    /// The graphs of an export in place do not output attention weights, and its checkpoint is
    /// exported again.
    ExportedAgain {
        /// The folder.
        folder: PathBuf,
    },
}

impl Notice {
    /// Whether results can differ from the expected ones.
    pub fn is_warning(&self) -> bool {
        !matches!(self, Notice::ExportedAgain { .. })
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::NoTargetLanguage { folder, codes } => {
                write!(
                    f,
                    "{}: no target language is set; pass --target-language, one of {}",
                    folder.display(),
                    listed(codes)
                )
            }
            Notice::UnusedTensors { folder, names } => {
                let (n, tensors) =
                    (names.len(), if names.len() == 1 { "tensor is" } else { "tensors are" });
                write!(
                    f,
                    "{}: {n} {tensors} not used by the model of config.json: {}",
                    folder.display(),
                    listed(names)
                )
            }
            Notice::NoTokenizer { reason, consequence } => write!(f, "{reason}; {consequence}"),
            Notice::LinesCut { file, n_cut, n_lines, limit } => {
                write!(
                    f,
                    "{file}: {n_cut} of {n_lines} lines were truncated to {limit} tokens, the model's positions"
                )
            }
            Notice::LeftToProcessor { nodes } => {
                let (n, are) =
                    (nodes.len(), if nodes.len() == 1 { "node runs" } else { "nodes run" });
                write!(
                    f,
                    "{n} {are} on the processor, not on the GPU, and will be slow: {}",
                    listed(nodes)
                )
            }
            Notice::OneThread { engine } => {
                write!(f, "--threads: {engine} uses one thread; only ort uses several")
            }
            Notice::ReportNotStored { reason } => {
                write!(f, "the report of the verification is not stored: {reason}")
            }
            Notice::ExportedAgain { folder } => write!(
                f,
                "{}: the graphs do not output attention weights; the checkpoint is exported to a temporary folder",
                folder.display()
            ),
        }
    }
}

/// Names separated by commas, at most eight.
pub fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
