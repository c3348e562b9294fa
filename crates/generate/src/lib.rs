//! Autoregressive decoding: from source ids to target ids, over any pair of sessions.
//!
//! A [`Decoder`] gives scores for the next tokens of a batch; [`decode`] chooses among them until each sentence has ended:
//! greedily, by beam search or by drawing, as [`Settings`] say, which are those of `generation_config.json`. [`score`] tells how
//! likely given targets are, [`attend`] what is attended to along one. [`SessionDecoder`] is the decoder of exported graphs (and of graphs in memory),
//! [`HuggingFaceDecoder`] that of the Hugging Face layout, [`SharedCacheDecoder`] that of caches which beams share.
//!
//! This crate knows no text and no files.

use cognate_model::{Config, Layout};
use cognate_runtime::Session;
use ndarray::ArrayView1;
use std::ops::ControlFlow;

mod attend;
mod batch;
mod beam;
mod beam_tree;
mod constraints;
mod decoder;
mod error;
mod forced;
mod generation_config;
mod hugging_face;
mod independent;
mod logits;
mod sampling;
mod scores;
mod settings;
mod shared_cache;

pub use attend::{AttentionRequest, SentenceAttention, attend};
pub use batch::{Event, SentenceBatch};
pub use beam_tree::{BeamNode, BeamTree, beam_tree};
pub use decoder::{Decoder, SessionDecoder};
pub use error::{Error, ErrorKind, Result};
pub use forced::{Scored, greedy_choices, score};
pub use hugging_face::HuggingFaceDecoder;
pub use logits::Logits;
pub use settings::{EarlyStopping, Sampling, Settings, alignment_layer};
pub use shared_cache::SharedCacheDecoder;

/// A translation, as ids.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// The tokens after the start token, a given prefix included, without the end token.
    pub tokens: Vec<i64>,
    /// Whether the end token was reached; else the limit on new tokens cut it.
    pub complete: bool,
    /// The log-probability of what follows the prefix, as the constraints leave it, divided by the length of that (the end token
    /// included) to the power of the length penalty. Without beam search 0, unless [`Settings::scores`] asks for it.
    pub score: f32,
    /// How near each choice was: where a margin is near the rounding of f32, another engine may choose otherwise.
    ///
    /// Greedy: for each step, that of the end token included, the distance between the logits of the best and the second-best next
    /// token; infinity where a token is given. Beam search: at each step the same number, the smallest distance, over all steps,
    /// between the scores of two hypotheses of which one was preferred: to run on, to finish, to be waited for, or to come first
    /// among those returned. Sampling: infinity.
    pub margins: Vec<f32>,
    /// The position in the source that each of `tokens` comes from: what the step that chose it attended to most, in
    /// [`Settings::alignment_layer`]; nothing without one.
    pub alignment: Vec<usize>,
}

impl Hypothesis {
    /// The smallest of `margins`; infinity of none.
    pub fn margin(&self) -> f32 {
        self.margins.iter().copied().fold(f32::INFINITY, f32::min)
    }
}

/// The decoder over the sessions of a layout, for a model of the given configuration: the encoder and the decoder; of Optimum's
/// folders also the encoder, the decoder of the first step and that of all others.
///
/// # Errors
/// If their inputs and outputs are not those of the layout.
pub fn decoder(layout: Layout, sessions: impl Into<Vec<Box<dyn Session>>>, config: &Config, pad_token: i64) -> Result<Box<dyn Decoder>> {
    let mut sessions = sessions.into().into_iter();
    Ok(match (layout, [(); 4].map(|()| sessions.next())) {
        (Layout::Cognate, [Some(encoder), Some(decoder), None, None]) => Box::new(SessionDecoder::new(encoder, decoder, pad_token)?),
        (Layout::HuggingFace, [Some(encoder), Some(decoder), None, None]) => {
            Box::new(HuggingFaceDecoder::new(encoder, decoder, config, pad_token)?)
        }
        (Layout::HuggingFace, [Some(encoder), Some(first), Some(decoder), None]) => {
            Box::new(HuggingFaceDecoder::with_first_step(encoder, first, decoder, config, pad_token)?)
        }
        (Layout::SharedCache, [Some(encoder), Some(decoder), None, None]) => {
            Box::new(SharedCacheDecoder::new(encoder, decoder, pad_token)?)
        }
        (layout, found) => {
            let expected = "an encoder and a decoder".into();
            let found = format!("{} sessions for the layout {layout}", found.iter().flatten().count());
            return Err(error::Cause::Layout { graph: "folder", expected, found }.into());
        }
    })
}

/// The best hypothesis for each of a batch of sources (each with its end token), in the order given.
///
/// # Errors
/// As [`decode`].
pub fn generate(decoder: &mut dyn Decoder, sources: &[Vec<i64>], settings: &Settings) -> Result<Vec<Hypothesis>> {
    let hypotheses = decode(decoder, &SentenceBatch::new(sources), settings, &mut |_| ControlFlow::Continue(()))?;
    Ok(hypotheses.into_iter().filter_map(|found| found.into_iter().next()).collect())
}

/// Decodes a batch: for each sentence its hypotheses, the best first; samples in the order of their numbers. With one beam greedily
/// or by drawing, else by beam search.
///
/// The observer hears every step. Where it answers [`ControlFlow::Break`], the hypothesis of that event (in beam search: the
/// sentence) ends as it is.
///
/// # Errors
/// If settings contradict each other, a source is empty, a prefix leaves no room, the engine fails, or there are no scores to choose
/// a token by: one is NaN or infinite, or every token is forbidden.
///
/// ```
/// use cognate_generate::{SentenceBatch, SessionDecoder, Settings, decode};
/// use cognate_model::{Attentions, Model, Preset};
/// use cognate_runtime::{Options, Reference, Runtime, Source};
/// use std::ops::ControlFlow;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = Model::preset(Preset::Tiny, 1)?;
/// let mut settings = Settings::from_json("{}", None, model.config())?;
/// (settings.num_beams, settings.num_return_sequences, settings.max_new_tokens) = (4, 2, 5);
/// let load = |program| Reference::F64.load(&Source::Graph(program), &Options::default());
/// let mut decoder = SessionDecoder::new(load(model.encode()?)?, load(model.step(Attentions::Omit)?)?, settings.pad_token)?;
///
/// let sources = [vec![8, 20, 0], vec![5, 0]];
/// let found = decode(&mut decoder, &SentenceBatch::new(&sources), &settings, &mut |_event| ControlFlow::Continue(()))?;
/// assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
/// assert!(found[0][0].score >= found[0][1].score);
/// # Ok(())
/// # }
/// ```
pub fn decode(
    decoder: &mut dyn Decoder,
    batch: &SentenceBatch<'_>,
    settings: &Settings,
    observer: &mut dyn FnMut(Event) -> ControlFlow<()>,
) -> Result<Vec<Vec<Hypothesis>>> {
    settings.check()?;
    batch.check()?;
    match settings.num_beams {
        _ if batch.sources.is_empty() => Ok(Vec::new()),
        0 | 1 => independent::decode_independently(decoder, batch, settings, observer),
        _ => beam::beam_search(decoder, batch, settings, observer),
    }
}

/// The position, among the first `src`, that is attended to most.
fn alignment(attention: ArrayView1<'_, f32>, src: usize) -> usize {
    let row: Vec<f32> = attention.iter().take(src).copied().collect();
    scores::largest(&row).map_or(0, |(place, _)| usize::try_from(place).unwrap_or_default())
}
