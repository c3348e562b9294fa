//! What a user should know about a model that was loaded.

use std::fmt;
use std::path::PathBuf;

/// Something noteworthy about a loaded model; the work goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The model knows several languages, and none is named to translate into.
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
        /// Why.
        reason: String,
        /// What cannot be done without it.
        consequence: &'static str,
    },
    /// Lines of a text are longer than the model can take, and were cut.
    LinesCut {
        /// The text.
        file: String,
        /// The lines that were cut.
        n_cut: usize,
        /// All lines.
        n_lines: usize,
        /// The tokens that the model can take.
        limit: usize,
    },
    /// The processor lacks instructions for 8-bit products.
    NoVnni,
    /// More than one thread was asked for, and the engine uses one.
    OneThread {
        /// The engine's name.
        engine: &'static str,
    },
    /// The graphs of an export in place give no attention weights, and the checkpoint beside them is exported again.
    ExportedAgain {
        /// The folder.
        folder: PathBuf,
    },
}

impl Notice {
    /// Whether results may not be as expected.
    pub fn is_warning(&self) -> bool {
        !matches!(self, Notice::ExportedAgain { .. })
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::NoTargetLanguage { folder, codes } => {
                write!(f, "{}: no target language is named; --target-language takes {}", folder.display(), listed(codes))
            }
            Notice::UnusedTensors { folder, names } => {
                let (n, tensors) = (names.len(), if names.len() == 1 { "tensor is" } else { "tensors are" });
                write!(f, "{}: {n} {tensors} not used by the model of config.json: {}", folder.display(), listed(names))
            }
            Notice::NoTokenizer { reason, consequence } => write!(f, "{reason}; {consequence}"),
            Notice::LinesCut { file, n_cut, n_lines, limit } => {
                write!(f, "{file}: {n_cut} of {n_lines} lines have more than {limit} tokens, the limit of the model, and were cut")
            }
            Notice::NoVnni => f.write_str(
                "this processor has no instructions for 8-bit products (VNNI), without which ONNX Runtime's sums saturate; \
                 expect worse translations, or choose an export in f32",
            ),
            Notice::OneThread { engine } => write!(f, "--threads: {engine} runs on one thread; only ort uses more"),
            Notice::ExportedAgain { folder } => write!(
                f,
                "{}: its graphs give no attention weights; its checkpoint is exported again, to a temporary folder",
                folder.display()
            ),
        }
    }
}

/// Names with commas between them, the first eight of many.
pub fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
