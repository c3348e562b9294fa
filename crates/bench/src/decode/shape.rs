//! The measured models: their sizes, the weights of a call, and the sources.

use crate::rows::threads;
use serde_json::{Value, json};

/// Number of tokens of each source, including the end token, and of generated tokens, unless the
/// title states others.
pub const LENGTHS: [usize; 2] = [24, 32];

/// A model with random weights of `xtask/interop/python/make_checkpoint.py`, and the lengths of its
/// texts.
#[derive(Debug)]
pub struct Shape {
    pub name: &'static str,
    pub title: &'static str,
    /// The name of the model.
    pub model: &'static str,
    /// Number of tokens of each source, including the end token, and of generated tokens.
    pub lengths: [usize; 2],
    pub d_model: u64,
    pub d_ff: u64,
    /// Number of layers of each stack.
    pub layers: u64,
    pub vocab: u64,
    pub eos: u64,
    /// Whether a call takes too long on a processor.
    pub is_large: bool,
    /// The tokens after the start token, if the model listens to windows of random frames.
    pub prompt: &'static [u64],
}

pub const SHAPES: [Shape; 7] = [
    Shape {
        name: "marian-base",
        title: "Marian-base",
        model: "marian-base",
        vocab: 32_000,
        eos: 0,
        ..T5_SMALL
    },
    T5_SMALL,
    // Lengths of a summary, and of a long answer.
    Shape {
        name: "t5-small-512-128",
        title: "T5-small, 512 tokens in, 128 out",
        lengths: [512, 128],
        ..T5_SMALL
    },
    Shape {
        name: "t5-small-24-400",
        title: "T5-small, 24 tokens in, 400 out",
        lengths: [24, 400],
        ..T5_SMALL
    },
    Shape {
        name: "t5-base",
        title: "T5-base",
        model: "t5-base",
        d_model: 768,
        d_ff: 3072,
        layers: 12,
        is_large: true,
        ..T5_SMALL
    },
    Shape {
        name: "nllb-600m",
        title: "NLLB-600M",
        model: "nllb-600m",
        d_model: 1024,
        d_ff: 4096,
        layers: 12,
        vocab: 256_206,
        eos: 2,
        is_large: true,
        ..T5_SMALL
    },
    // Its prompt says: English, to be written, without timestamps.
    Shape {
        name: "whisper-small",
        title: "Whisper-small, windows of 30 s",
        model: "whisper-small",
        d_model: 768,
        d_ff: 3072,
        layers: 12,
        vocab: 51_865,
        eos: 50_257,
        is_large: true,
        prompt: &[50_259, 50_359, 50_363],
        ..T5_SMALL
    },
];

const T5_SMALL: Shape = Shape {
    name: "t5-small",
    title: "T5-small",
    model: "t5-small",
    lengths: LENGTHS,
    d_model: 512,
    d_ff: 2048,
    layers: 6,
    vocab: 32_128,
    eos: 1,
    is_large: false,
    prompt: &[],
};

impl Shape {
    /// The heading of the measurements with a number of threads.
    pub fn on(&self, count: usize) -> String {
        format!("{}, {}", self.title, threads(count))
    }

    /// Whether texts are long: then only a few programs run, on a few calls.
    pub fn is_long(&self) -> bool {
        self.lengths != LENGTHS
    }

    /// Elements of the matrices that multiply all source tokens: the encoder, and the decoder's
    /// cross keys and values.
    pub fn encoder_weights(&self) -> u64 {
        self.layers * (6 * self.d_model * self.d_model + 2 * self.d_model * self.d_ff)
    }

    /// Elements of the matrices that multiply each new token: the decoder without cross keys and
    /// values, and the output.
    pub fn decoder_weights(&self) -> u64 {
        self.layers * (6 * self.d_model * self.d_model + 2 * self.d_model * self.d_ff)
            + self.output_weights()
    }

    /// Elements of the output layer.
    pub fn output_weights(&self) -> u64 {
        self.d_model * self.vocab
    }

    /// The request of a call.
    pub fn request(&self, Column { batch, beams }: Column) -> Value {
        let new_tokens = self.lengths[1];
        match self.prompt {
            [] => {
                json!({ "sources": self.sources(batch), "beams": beams, "new_tokens": new_tokens })
            }
            prompt => {
                json!({ "windows": batch, "prompt": prompt, "beams": beams, "new_tokens": new_tokens })
            }
        }
    }

    /// Sources of random tokens, the same in every run; those of a small batch are the first of a
    /// large one.
    pub fn sources(&self, batch: usize) -> Vec<Vec<u64>> {
        // The generator of Numerical Recipes; the upper bits are used. The first and last few ids
        // of a vocabulary are special.
        let (mut state, special) = (1u64, 16);
        let mut token = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % (1 << 32);
            special + (state >> 8) % (self.vocab - 200 - special)
        };
        let mut source = || (1..self.lengths[0]).map(|_| token()).chain([self.eos]).collect();
        (0..batch).map(|_| source()).collect()
    }
}

/// One kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub batch: usize,
    pub beams: usize,
}

impl Column {
    pub fn method(self) -> String {
        match self.beams {
            1 => "greedy".into(),
            beams => format!("{beams} beams"),
        }
    }

    pub fn title(self) -> String {
        format!("{}, batch {}", self.method(), self.batch)
    }
}
