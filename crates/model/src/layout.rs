//! How an exported model is divided into files.

use std::fmt;

/// The two contracts of exported files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Ours: the encoder gives cross keys and values, beams are an axis, both graphs share one weights file.
    #[default]
    Cognate,
    /// Optimum's and transformers.js's: the decoder computes cross keys and values on its first step, each graph has a
    /// weights file of its own.
    HuggingFace,
}

impl Layout {
    /// Both.
    pub const ALL: [Layout; 2] = [Layout::Cognate, Layout::HuggingFace];

    /// `cognate` or `hf`.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Cognate => "cognate",
            Layout::HuggingFace => "hf",
        }
    }

    /// The files of the encoder and the decoder, seen from the folder.
    pub fn files(self) -> [&'static str; 2] {
        match self {
            Layout::Cognate => ["encoder.onnx", "decoder.onnx"],
            // transformers.js looks here only, and Optimum finds them by their names.
            Layout::HuggingFace => ["onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx"],
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
