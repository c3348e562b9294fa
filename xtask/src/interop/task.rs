//! What a model computes, known from its class: which graphs it has, and what other programs call
//! it.

use anyhow::{Context, Result};
use serde_json::Value;

/// The graphs of a model, which determine how drivers run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From text, pixels or frames to text.
    EncoderDecoder,
    Encoder,
    /// Continues prompts.
    Decoder,
}

impl Kind {
    /// The kind's name in `xtask/interop`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::EncoderDecoder => "encoder-decoder",
            Kind::Encoder => "encoder",
            Kind::Decoder => "decoder",
        }
    }

    /// The maximum number of tokens with which the golden outputs were generated.
    pub fn max_new_tokens(self) -> u32 {
        match self {
            Kind::EncoderDecoder => 24,
            Kind::Encoder => 0,
            Kind::Decoder => 12,
        }
    }
}

/// A row of `TASKS`.
#[derive(Debug)]
pub struct Task {
    /// The end of the names of transformers' classes.
    ending: &'static str,
    pub kind: Kind,
    /// `ORTModelFor...` in Optimum, `AutoModelFor...` in transformers.js.
    pub auto_class: &'static str,
    /// Of `optimum-cli export onnx --task`.
    pub optimum: &'static str,
}

/// The first row whose ending fits counts.
#[rustfmt::skip]
const TASKS: [Task; 12] = [
    Task { ending: "WhisperForConditionalGeneration", kind: Kind::EncoderDecoder, auto_class: SPEECH_TO_TEXT, optimum: "automatic-speech-recognition-with-past" },
    Task { ending: "VisionEncoderDecoderModel", kind: Kind::EncoderDecoder, auto_class: "Vision2Seq", optimum: "image-to-text-with-past" },
    Task { ending: "EncoderDecoderModel", kind: Kind::EncoderDecoder, auto_class: TEXT_TO_TEXT, optimum: "text2text-generation-with-past" },
    Task { ending: "ForConditionalGeneration", kind: Kind::EncoderDecoder, auto_class: TEXT_TO_TEXT, optimum: "text2text-generation-with-past" },
    Task { ending: "MarianMTModel", kind: Kind::EncoderDecoder, auto_class: TEXT_TO_TEXT, optimum: "text2text-generation-with-past" },
    Task { ending: "ForCausalLM", kind: Kind::Decoder, auto_class: "CausalLM", optimum: "text-generation-with-past" },
    Task { ending: "LMHeadModel", kind: Kind::Decoder, auto_class: "CausalLM", optimum: "text-generation-with-past" },
    Task { ending: "ForMaskedLM", kind: Kind::Encoder, auto_class: "MaskedLM", optimum: "fill-mask" },
    Task { ending: "ForSequenceClassification", kind: Kind::Encoder, auto_class: "SequenceClassification", optimum: "text-classification" },
    Task { ending: "ForTokenClassification", kind: Kind::Encoder, auto_class: "TokenClassification", optimum: "token-classification" },
    Task { ending: "ForImageClassification", kind: Kind::Encoder, auto_class: "ImageClassification", optimum: "image-classification" },
    Task { ending: "Model", kind: Kind::Encoder, auto_class: "FeatureExtraction", optimum: "feature-extraction" },
];

const TEXT_TO_TEXT: &str = "Seq2SeqLM";
const SPEECH_TO_TEXT: &str = "SpeechSeq2Seq";

impl Task {
    /// The task of a model with this `config.json`.
    pub fn of(config: &Value) -> Result<&'static Task> {
        let class = config["architectures"][0]
            .as_str()
            .context("config.json: expected the model's class in architectures")?;
        let task = TASKS.iter().find(|task| class.ends_with(task.ending));
        task.with_context(|| {
            format!("config.json: architectures: {class} is no known kind of model")
        })
    }

    /// From frames of audio to text.
    pub fn is_speech(&self) -> bool {
        self.auto_class == SPEECH_TO_TEXT
    }

    /// From tokens to tokens, as in translation.
    pub fn is_text_to_text(&self) -> bool {
        self.auto_class == TEXT_TO_TEXT
    }
}
