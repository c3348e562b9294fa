//! Autoregressive decoding: from source ids to target ids, with any pair of sessions. Independent
//! of text and files.
//!
//! A [`Decoder`] computes logits of the next tokens of a batch. [`decode`] runs greedy search, beam
//! search or sampling by the [`Settings`] of `generation_config.json`; a [`RunningBatch`] also
//! takes sentences between its steps. [`score`] computes the log-probabilities of given targets,
//! [`attend`] attention weights. [`SessionDecoder`] is the decoder of the Cognate layout,
//! [`HuggingFaceDecoder`] that of the Hugging Face layout, [`SharedCacheDecoder`] that of caches
//! which beams share, [`CausalDecoder`] that of a decoder-only model; [`ShortlistDecoder`]
//! restricts another one to the tokens that its sources allow.

use cognate_model::{Config, Layout, Parts};
use cognate_runtime::Session;
use ndarray::ArrayView2;
use std::ops::ControlFlow;

mod attend;
mod batch;
mod beam;
mod beam_tree;
mod causal;
mod constraints;
mod decoder;
mod error;
mod follow;
mod forced;
mod generation_config;
mod hugging_face;
mod hypotheses;
mod independent;
mod logits;
mod running;
mod sampling;
mod scores;
mod search;
mod settings;
mod shared_cache;
mod shortlist;
mod timestamps;
mod whole;

pub use attend::{AttentionRequest, SentenceAttention, attend};
pub use batch::{Event, SentenceBatch, Sources};
pub use beam_tree::{BeamNode, BeamTree, beam_tree};
pub use causal::CausalDecoder;
pub use decoder::{BestTokens, Decoder, SessionDecoder};
pub use error::{Error, ErrorKind, Result};
pub use follow::{ReadAlong, first_scores, read_along};
pub use forced::{Scored, greedy_choices, greedy_steps, score};
pub use hugging_face::HuggingFaceDecoder;
pub use logits::Logits;
pub use running::RunningBatch;
pub use search::{FixedSizes, MOST_BEAMS, SearchLimits, check_search, search_program};
pub use settings::{EarlyStopping, Observe, Sampling, Settings, alignment_layer};
pub use shared_cache::SharedCacheDecoder;
pub use shortlist::{Shortlist, ShortlistDecoder};
pub use timestamps::TimestampRules;
pub use whole::SearchDecoder;

/// A translation, as ids.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// The tokens with a given prefix, without start and end token; of a decoder-only model those
    /// after the prompt.
    pub tokens: Vec<i64>,
    /// Whether the end token was generated; otherwise the limit on new tokens was reached.
    pub complete: bool,
    /// The log-probability of the tokens after the prefix under the constraints, divided by their
    /// number (the end token included) to the power of the length penalty. Without beam search it
    /// is 0 unless [`Settings::scores`] is set.
    pub score: f32,
    /// The margin of each choice. If it is near the rounding error of f32, another engine can
    /// choose differently.
    ///
    /// Greedy search: for each step, the end token's included, the distance between the two largest
    /// logits; infinity for given tokens. Beam search: the same number for each step, the smallest
    /// distance between the scores of two hypotheses of which one was preferred. Sampling:
    /// infinity.
    pub margins: Vec<f32>,
    /// For each of `tokens` the source position with the largest cross-attention in
    /// [`Settings::alignment_layer`]; empty without one.
    pub alignment: Vec<usize>,
    /// The probability that [`Settings::observe`] asks for; `None` if the prompt lacks its token.
    pub observed: Option<f32>,
}

impl Hypothesis {
    /// The smallest margin; infinity if there are none.
    pub fn margin(&self) -> f32 {
        self.margins.iter().copied().fold(f32::INFINITY, f32::min)
    }
}

/// The decoder for the sessions of a layout: an encoder and a decoder, for Optimum's folders an
/// encoder, a decoder of the first step and a decoder of later steps, or the session of a
/// decoder-only model.
///
/// # Errors
/// If their inputs and outputs are not those of the layout.
pub fn decoder(
    layout: Layout,
    sessions: impl Into<Vec<Box<dyn Session>>>,
    config: &Config,
    pad_token: i64,
) -> Result<Box<dyn Decoder>> {
    let (mut sessions, pad_token) = (sessions.into().into_iter(), config.source_pad(pad_token));
    Ok(match (layout, [(); 4].map(|()| sessions.next())) {
        (
            Layout::Cognate | Layout::HuggingFace | Layout::Triton,
            [Some(session), None, None, None],
        ) if config.parts == Parts::Decoder => {
            Box::new(CausalDecoder::new(session, config, pad_token)?)
        }
        (Layout::Cognate, [Some(encoder), Some(decoder), None, None]) => {
            Box::new(SessionDecoder::new(encoder, decoder, pad_token)?)
        }
        (Layout::HuggingFace | Layout::Triton, [Some(encoder), Some(decoder), None, None]) => {
            Box::new(HuggingFaceDecoder::new(encoder, decoder, config, pad_token)?)
        }
        (Layout::HuggingFace, [Some(encoder), Some(first), Some(decoder), None]) => Box::new(
            HuggingFaceDecoder::with_first_step(encoder, first, decoder, config, pad_token)?,
        ),
        (Layout::SharedCache, [Some(session), None, None, None])
            if config.parts == Parts::Decoder =>
        {
            Box::new(SharedCacheDecoder::alone(session, config, pad_token)?)
        }
        (Layout::SharedCache, [Some(encoder), Some(decoder), None, None]) => {
            let decoder = SharedCacheDecoder::new(encoder, decoder, pad_token)?;
            Box::new(decoder.with_max_positions(config.max_positions))
        }
        (Layout::Generate, [Some(session), None, None, None]) => {
            Box::new(SearchDecoder::new(session, pad_token)?)
        }
        (layout, found) => {
            let expected = "an encoder and a decoder".into();
            let found =
                format!("{} sessions for the layout {layout}", found.iter().flatten().count());
            return Err(error::Cause::Layout { graph: "folder", expected, found }.into());
        }
    })
}

/// The best hypothesis for each of a batch of sources (each with its end token), in the given
/// order.
///
/// # Errors
/// As [`decode`].
pub fn generate<'a>(
    decoder: &mut dyn Decoder,
    sources: impl Into<Sources<'a>>,
    settings: &Settings,
) -> Result<Vec<Hypothesis>> {
    let hypotheses =
        decode(
            decoder,
            &SentenceBatch::new(sources),
            settings,
            &mut |_| ControlFlow::Continue(()),
        )?;
    Ok(hypotheses.into_iter().filter_map(|found| found.into_iter().next()).collect())
}

/// Decodes a batch in which all sentences enter at the start. Returns the hypotheses of each
/// sentence, best first, or its samples in the order of their numbers. One beam is greedy search or
/// sampling, several are beam search.
///
/// The observer is called at every step. If it returns [`ControlFlow::Break`], the event's
/// hypothesis (in beam search: the sentence) ends.
///
/// # Errors
/// If settings contradict each other, a source is empty, a prefix is too long, the engine fails, a
/// logit is NaN or infinite, or every token is forbidden.
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
/// let (encoder, step) = (load(model.encode()?)?, load(model.step(Attentions::Omit)?)?);
/// let mut decoder = SessionDecoder::new(encoder, step, settings.pad_token)?;
///
/// let sources = [vec![8, 20, 0], vec![5, 0]];
/// let batch = SentenceBatch::new(&sources);
/// let found = decode(&mut decoder, &batch, &settings, &mut |_event| ControlFlow::Continue(()))?;
/// assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
/// assert!(found[0][0].score >= found[0][1].score);
/// # Ok(())
/// # }
/// ```
pub fn decode(
    decoder: &mut dyn Decoder,
    batch: &SentenceBatch<'_>,
    settings: &Settings,
    observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Vec<Vec<Hypothesis>>> {
    let (mut running, mut hypotheses) =
        (RunningBatch::new(settings)?, vec![Vec::new(); batch.sources.len()]);
    running.admit(decoder, batch)?;
    while !running.is_empty() {
        running.step(decoder, &mut |event| {
            if let Event::Finished { sentence, hypotheses: found } = event {
                hypotheses[sentence] = found.to_vec();
            }
            observer(event)
        })?;
    }
    Ok(hypotheses)
}

/// The position with the largest mean attention of the heads `[heads, src]`, among those of the
/// source's tokens.
fn alignment(attention: ArrayView2<'_, f32>, source: &[i64]) -> usize {
    let n_positions = if source.is_empty() { usize::MAX } else { source.len() };
    let row: Vec<f32> = attention
        .columns()
        .into_iter()
        .take(n_positions)
        .map(|heads| heads.sum() / heads.len() as f32)
        .collect();
    scores::largest(&row).map_or(0, |(place, _)| place)
}
