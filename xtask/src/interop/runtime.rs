//! The columns of the matrix: the programs, their languages and layouts.

/// Maximum absolute difference from PyTorch in encoder states and logits, whose elements are
/// between 1 and 20.
///
/// The first source of `marian` is so sensitive to rounding that PyTorch's own f32 and f64 differ
/// by 1.5e-4; a wrong graph differs by more than 0.1.
pub(crate) const BOUND: f64 = 1e-3;
/// MNN's converter replaces GELU by its tanh form, which differs by 5e-4 and after some
/// layers by 1e-2.
const APPROXIMATE: f64 = 2e-2;

/// The layout of the exported files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Layout {
    /// `cognate export`
    Cognate,
    /// `cognate export --in-place`: the same graphs with weights in the checkpoint's
    /// model.safetensors
    InPlace,
    /// `cognate export --layout hf`
    Hf,
    /// `optimum-cli export onnx`, for comparison: shows whether the runtime or the export fails
    Optimum,
}

impl Layout {
    pub(crate) const ALL: &[Layout] = &[Layout::Cognate, Layout::InPlace, Layout::Hf, Layout::Optimum];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Layout::Cognate => "Cognate",
            Layout::InPlace => "In-place",
            Layout::Hf => "Hugging Face",
            Layout::Optimum => "Optimum's own",
        }
    }

    /// The name of folders and files.
    pub(crate) fn slug(self) -> &'static str {
        match self {
            Layout::Cognate => "cognate",
            Layout::InPlace => "in-place",
            Layout::Hf => "hf",
            Layout::Optimum => "optimum",
        }
    }

    /// The layout's name in `xtask/interop`: Optimum's folders have the Hugging Face layout.
    pub(crate) fn calls(self) -> &'static str {
        match self {
            Layout::Cognate | Layout::InPlace => "cognate",
            Layout::Hf | Layout::Optimum => "hugging-face",
        }
    }
}

/// A program that runs ONNX files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Runtime {
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

/// The language of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    Node,
    Rust,
}

impl Runtime {
    pub(crate) const ALL: &[Runtime] = &[
        Runtime::Onnxruntime,
        Runtime::Reference,
        Runtime::Openvino,
        Runtime::OnnxruntimeNode,
        Runtime::OnnxruntimeWeb,
        Runtime::Rten,
        Runtime::Mnn,
        Runtime::Opencv,
        Runtime::Optimum,
        Runtime::TransformersJs,
        Runtime::TransformersJsWeb,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Runtime::Onnxruntime => "ONNX Runtime",
            Runtime::Reference => "ONNX reference",
            Runtime::Openvino => "OpenVINO",
            Runtime::OnnxruntimeNode => "ORT Node",
            Runtime::OnnxruntimeWeb => "ORT WebAssembly",
            Runtime::Rten => "rten",
            Runtime::Mnn => "MNN",
            Runtime::Opencv => "OpenCV",
            Runtime::Optimum => "Optimum",
            Runtime::TransformersJs => "transformers.js",
            Runtime::TransformersJsWeb => "transformers.js web",
        }
    }

    pub(crate) fn language(self) -> Language {
        match self {
            Runtime::Onnxruntime | Runtime::Reference | Runtime::Openvino | Runtime::Mnn | Runtime::Opencv | Runtime::Optimum => {
                Language::Python
            }
            Runtime::OnnxruntimeNode | Runtime::OnnxruntimeWeb | Runtime::TransformersJs | Runtime::TransformersJsWeb => Language::Node,
            Runtime::Rten => Language::Rust,
        }
    }

    /// The driver's file in `xtask/interop/python` or `xtask/interop/node`, without extension.
    pub(crate) fn driver(self) -> &'static str {
        match self {
            Runtime::Onnxruntime => "run_onnxruntime",
            Runtime::Reference => "run_reference",
            Runtime::Openvino => "run_openvino",
            Runtime::OnnxruntimeNode => "run_onnxruntime_node",
            Runtime::OnnxruntimeWeb => "run_onnxruntime_web",
            Runtime::Rten => "interop-rten",
            Runtime::Mnn => "run_mnn",
            Runtime::Opencv => "run_opencv",
            Runtime::Optimum => "run_optimum",
            Runtime::TransformersJs => "run_transformers_js",
            Runtime::TransformersJsWeb => "run_transformers_js_web",
        }
    }

    /// The maximum difference from PyTorch that is attributed to rounding.
    pub(crate) fn bound(self) -> f64 {
        if self == Runtime::Mnn { APPROXIMATE } else { BOUND }
    }

    /// Whether the runtime supports the layout: Optimum and transformers.js run only
    /// Hugging Face's.
    pub(crate) fn runs(self, layout: Layout) -> bool {
        layout.calls() != Layout::Cognate.calls()
            || !matches!(self, Runtime::Optimum | Runtime::TransformersJs | Runtime::TransformersJsWeb)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn all_means_all() {
        assert_eq!(Runtime::ALL, Runtime::value_variants());
        assert_eq!(Layout::ALL, Layout::value_variants());
    }
}
