//! The division of an exported model into files.

use crate::Parts;
use std::fmt;
use std::str::FromStr;

/// The contracts of exported files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Cognate's: the encoder returns cross keys and values, beams are an axis, both graphs share
    /// one weights file.
    #[default]
    Cognate,
    /// Optimum's and transformers.js's: the decoder computes cross keys and values on its first
    /// step, each graph has its own weights file.
    HuggingFace,
    /// One graph that decodes: encoder, decoder and search in a loop.
    Generate,
    /// The graphs of [`Layout::HuggingFace`] as a model repository of Triton, with a model that
    /// translates.
    Triton,
    /// [`Layout::Cognate`] for ONNX Runtime only, with caches that steps write into
    /// and beams share.
    SharedCache,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Layout; 5] = [
        Layout::Cognate,
        Layout::HuggingFace,
        Layout::SharedCache,
        Layout::Generate,
        Layout::Triton,
    ];

    /// The layouts that every engine runs.
    pub const PORTABLE: [Layout; 2] = [Layout::Cognate, Layout::HuggingFace];

    /// The layouts that `cognate export --layout` writes.
    pub const CHOICES: [Layout; 4] =
        [Layout::Cognate, Layout::HuggingFace, Layout::Generate, Layout::Triton];

    /// `cognate`, `hf`, `generate`, `triton` or `shared-cache`.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Cognate => "cognate",
            Layout::HuggingFace => "hf",
            Layout::SharedCache => "shared-cache",
            Layout::Generate => "generate",
            Layout::Triton => "triton",
        }
    }

    /// The paths of the graphs, relative to the folder; the encoder first.
    pub fn files(self) -> &'static [&'static str] {
        match self {
            Layout::Cognate => &["encoder.onnx", "decoder.onnx"],
            Layout::Generate => &["generate.onnx"],
            Layout::SharedCache => &["encoder.onnx", "decoder_shared_cache.onnx"],
            // transformers.js reads only this folder, and Optimum finds the files by name.
            Layout::HuggingFace => &["onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx"],
            // A folder for each model, and one for each of its versions.
            Layout::Triton => &["encoder/1/model.onnx", "decoder/1/model.onnx"],
        }
    }

    /// The path of an encoder-only or decoder-only model, relative to the folder.
    pub fn file(self) -> &'static str {
        match self {
            Layout::Cognate | Layout::Generate => "model.onnx",
            Layout::SharedCache => "model_ort.onnx",
            Layout::HuggingFace => "onnx/model.onnx",
            Layout::Triton => "model/1/model.onnx",
        }
    }

    /// Whether inputs and outputs have Optimum's names.
    pub fn is_optimum(self) -> bool {
        matches!(self, Layout::HuggingFace | Layout::Triton)
    }

    /// The paths of a model with these parts, relative to the folder.
    pub fn files_of(self, parts: Parts) -> Vec<&'static str> {
        match parts {
            Parts::Both => self.files().into(),
            Parts::Encoder(_) | Parts::Decoder => vec![self.file()],
        }
    }
}

impl FromStr for Layout {
    type Err = String;

    /// One of [`Layout::CHOICES`].
    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::CHOICES.into_iter().find(|layout| layout.name() == name);
        found.ok_or_else(|| {
            format!("expected {}, found {name}", Self::CHOICES.map(Self::name).join(", "))
        })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
