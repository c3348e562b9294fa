//! How an exported model is divided into files.

use crate::Parts;
use std::fmt;

/// The contracts of exported files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Ours: the encoder gives cross keys and values, beams are an axis, both graphs share one weights file.
    #[default]
    Cognate,
    /// Optimum's and transformers.js's: the decoder computes cross keys and values on its first step, each graph has a
    /// weights file of its own.
    HuggingFace,
    /// Ours for ONNX Runtime alone: as [`Layout::Cognate`], with caches that a step writes into and beams share.
    SharedCache,
}

impl Layout {
    /// All.
    pub const ALL: [Layout; 3] = [Layout::Cognate, Layout::HuggingFace, Layout::SharedCache];

    /// Those that every engine runs.
    pub const PORTABLE: [Layout; 2] = [Layout::Cognate, Layout::HuggingFace];

    /// `cognate`, `hf` or `shared-cache`.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Cognate => "cognate",
            Layout::HuggingFace => "hf",
            Layout::SharedCache => "shared-cache",
        }
    }

    /// The files of the encoder and the decoder, seen from the folder.
    pub fn files(self) -> [&'static str; 2] {
        match self {
            Layout::Cognate => ["encoder.onnx", "decoder.onnx"],
            Layout::SharedCache => ["encoder.onnx", "decoder_shared_cache.onnx"],
            // transformers.js looks here only, and Optimum finds them by their names.
            Layout::HuggingFace => ["onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx"],
        }
    }

    /// The file of an encoder alone, seen from the folder.
    pub fn file(self) -> &'static str {
        match self {
            Layout::Cognate => "model.onnx",
            Layout::SharedCache => "model_ort.onnx",
            Layout::HuggingFace => "onnx/model.onnx",
        }
    }

    /// The files of a model with these parts.
    pub fn files_of(self, parts: Parts) -> Vec<&'static str> {
        match parts {
            Parts::Both => self.files().into(),
            Parts::Encoder(_) => vec![self.file()],
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
