//! The columns of the matrix: the programs, their languages and layouts.

use super::task::Task;

/// Maximum absolute difference from PyTorch in encoder states and logits, whose elements are
/// between 1 and 20.
///
/// The first source of `marian` is so sensitive to rounding that PyTorch's own f32 and f64 differ
/// by 1.5e-4; a wrong graph differs by more than 0.1.
pub const BOUND: f64 = 1e-3;
/// MNN's converter replaces GELU by its tanh form, which differs by 5e-4 and after some
/// layers by 1e-2.
const APPROXIMATE: f64 = 2e-2;

/// The layout of the exported files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Layout {
    /// `cognate export`
    Cognate,
    /// `cognate export --in-place`: the same graphs with weights in the checkpoint's
    /// model.safetensors
    InPlace,
    /// `cognate export --layout hf`
    Hf,
    /// `cognate export --layout generate`: a graph that decodes, once for greedy decoding and once
    /// for 4 beams
    Generate,
    /// `optimum-cli export onnx`, for comparison: shows whether the runtime or the export fails
    Optimum,
}

impl Layout {
    /// The title, the name of folders and files, and the layout's name in `xtask/interop`:
    /// Optimum's folders have the Hugging Face layout.
    fn row(self) -> [&'static str; 3] {
        match self {
            Layout::Cognate => ["Cognate", "cognate", "cognate"],
            Layout::InPlace => ["In-place", "in-place", "cognate"],
            Layout::Hf => ["Hugging Face", "hf", "hugging-face"],
            Layout::Generate => ["Generate", "generate", "generate"],
            Layout::Optimum => ["Optimum's own", "optimum", "hugging-face"],
        }
    }

    pub fn title(self) -> &'static str {
        self.row()[0]
    }

    pub fn slug(self) -> &'static str {
        self.row()[1]
    }

    pub fn calls(self) -> &'static str {
        self.row()[2]
    }

    /// Whether models of the task have this layout.
    pub fn has(self, task: &Task) -> bool {
        self != Layout::Generate || task.is_text_to_text()
    }
}

/// A program that runs ONNX files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Runtime {
    Onnxruntime,
    Reference,
    Openvino,
    OnnxruntimeNode,
    OnnxruntimeWeb,
    Rten,
    Mnn,
    Opencv,
    Optimum,
    TransformersJs,
    TransformersJsWeb,
}

/// The language of a driver; those in Rust are called by one in Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Python,
    Node,
    Rust,
}

impl Runtime {
    /// The title, and the language and file of the driver in `xtask/interop/python` or
    /// `xtask/interop/node`, without extension.
    fn row(self) -> (&'static str, Language, &'static str) {
        match self {
            Runtime::Onnxruntime => ("ONNX Runtime", Language::Python, "run_onnxruntime"),
            Runtime::Reference => ("ONNX reference", Language::Python, "run_reference"),
            Runtime::Openvino => ("OpenVINO", Language::Python, "run_openvino"),
            Runtime::OnnxruntimeNode => ("ORT Node", Language::Node, "run_onnxruntime_node"),
            Runtime::OnnxruntimeWeb => ("ORT WebAssembly", Language::Node, "run_onnxruntime_web"),
            Runtime::Rten => ("rten", Language::Rust, "run_rten"),
            Runtime::Mnn => ("MNN", Language::Python, "run_mnn"),
            Runtime::Opencv => ("OpenCV", Language::Python, "run_opencv"),
            Runtime::Optimum => ("Optimum", Language::Python, "run_optimum"),
            Runtime::TransformersJs => ("transformers.js", Language::Node, "run_transformers_js"),
            Runtime::TransformersJsWeb => {
                ("transformers.js web", Language::Node, "run_transformers_js_web")
            }
        }
    }

    pub fn title(self) -> &'static str {
        self.row().0
    }

    pub fn language(self) -> Language {
        self.row().1
    }

    pub fn driver(self) -> &'static str {
        self.row().2
    }

    /// The maximum difference from PyTorch that is attributed to rounding.
    pub fn bound(self) -> f64 {
        if self == Runtime::Mnn { APPROXIMATE } else { BOUND }
    }

    /// Whether the runtime is asked. Optimum and transformers.js run only Hugging Face's layout;
    /// MNN's GELU is too far from Whisper's.
    pub fn runs(self, layout: Layout, task: &Task) -> bool {
        if self == Runtime::Mnn && task.is_speech() {
            return false;
        }
        layout.calls() == Layout::Hf.calls()
            || !matches!(
                self,
                Runtime::Optimum | Runtime::TransformersJs | Runtime::TransformersJsWeb
            )
    }
}
