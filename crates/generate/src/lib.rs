//! Autoregressive decoding: from source ids to target ids, over any pair of sessions.
//!
//! A [`Decoder`] gives scores for the next tokens of a batch; [`generate`] chooses among them, by greedy or by beam search,
//! until each sentence has ended. [`SessionDecoder`] is the decoder of exported graphs (and of graphs in memory),
//! [`HuggingFaceDecoder`] that of the Hugging Face layout, [`SharedCacheDecoder`] that of caches which beams share.
//! [`Settings`] are those of `generation_config.json`.
//!
//! This crate knows no text and no files.

use cognate_model::{Config, Layout};
use cognate_runtime::Session;
use ndarray::ArrayViewMut3;

mod beam;
mod decoder;
mod error;
mod forced;
mod greedy;
mod hugging_face;
mod scores;
mod settings;
mod shared_cache;

pub use decoder::{Decoder, SessionDecoder};
pub use error::{Error, ErrorKind, Result};
pub use forced::greedy_choices;
pub use hugging_face::HuggingFaceDecoder;
pub use settings::{EarlyStopping, Settings};
pub use shared_cache::{SCALE, SharedCacheDecoder};

/// A translation, as ids.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// The tokens after the start token, without the end token.
    pub tokens: Vec<i64>,
    /// Whether the end token was reached; else the limit on new tokens cut it.
    pub complete: bool,
    /// Beam search: the log-probability divided by length to the power of the length penalty. Greedy: 0.
    pub score: f32,
    /// Greedy: the smallest distance, over all steps, between the logits of the best and the second-best next token. Where
    /// it is near the rounding of f32, another engine may choose otherwise. Beam search: infinity.
    pub margin: f32,
}

/// The decoder over two sessions of a layout, for a model of the given configuration.
///
/// # Errors
/// If their inputs and outputs are not those of the layout.
pub fn decoder(layout: Layout, [encoder, decoder]: [Box<dyn Session>; 2], config: &Config, pad_token: i64) -> Result<Box<dyn Decoder>> {
    Ok(match layout {
        Layout::Cognate => Box::new(SessionDecoder::new(encoder, decoder, pad_token)?),
        Layout::HuggingFace => Box::new(HuggingFaceDecoder::new(encoder, decoder, config, pad_token)?),
        Layout::SharedCache => Box::new(SharedCacheDecoder::new(encoder, decoder, pad_token)?),
    })
}

/// Decodes a batch of sources (each with its end token), in the order given: greedily with one beam, else by beam search.
///
/// # Errors
/// If a source is empty or the engine fails.
pub fn generate(decoder: &mut dyn Decoder, sources: &[Vec<i64>], settings: &Settings) -> Result<Vec<Hypothesis>> {
    match settings.num_beams {
        _ if sources.is_empty() => Ok(Vec::new()),
        0 | 1 => greedy::greedy(decoder, sources, settings),
        _ => beam::beam_search(decoder, sources, settings),
    }
}

/// The scores of all beams of a sentence of the batch, `[beams · vocab]`.
fn rows_of<'l>(logits: &'l mut ArrayViewMut3<'_, f32>, sentence: usize) -> &'l mut [f32] {
    let (_, beams, vocab) = logits.dim();
    let scores = logits.as_slice_mut().expect("a decoder's logits are in row-major order");
    &mut scores[sentence * beams * vocab..][..beams * vocab]
}
