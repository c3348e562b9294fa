//! What is verified: a folder and its model, and the sessions of the reference.

use crate::decoding::Decoding;
use crate::{Error, Result, Tolerance};
use cognate_generate::{Decoder, FixedSizes, Settings, Sources, decoder};
use cognate_model::{Attentions, Front, Layout, Model};
use cognate_pipeline::CancellationToken;
use cognate_runtime::{Options, Reference, Runtime, Session, Source};
use std::num::NonZeroUsize;
use std::path::Path;

/// The subject of a verification.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// The exported folder.
    pub folder: &'a Path,
    /// The layout of its graphs.
    pub layout: Layout,
    /// The model that the graphs must equal: of the checkpoint, or read back by
    /// [`open_exported`](cognate_folder::open_exported).
    pub model: &'a Model,
    /// The decoding settings; sentences are decoded greedily and by beam search, regardless of
    /// `num_beams`.
    pub settings: Settings,
    /// Sources to decode, each with its end token, without those that are too long for `sizes`;
    /// random ones if there are none, or the model reads audio.
    pub sentences: Vec<Vec<i64>>,
    /// The sizes of a graph whose shapes are constants.
    pub sizes: Option<FixedSizes>,
    /// The seed of the random batches.
    pub seed: u64,
    /// The bound on errors: [`CLOSE`](crate::CLOSE), or a wider one for other precisions. Within it,
    /// sentences must be equal; beyond it, single steps are compared, of which the share
    /// [`Tolerance::equal_steps`] must be equal.
    pub tolerance: Tolerance,
    /// Ends the verification within a decoding step.
    pub cancellation: CancellationToken,
}

impl Subject<'_> {
    pub(crate) fn decoding<'a>(
        &'a self,
        sources: Sources<'a>,
        settings: &'a Settings,
    ) -> Decoding<'a> {
        Decoding { sources, settings, cancellation: &self.cancellation }
    }
}

/// Maximum number of new tokens of a sentence: enough for pasts to grow, few enough for f64 on
/// large models.
pub(crate) const NEW_TOKENS: usize = 32;

/// Number of beams of the compared beam search.
const BEAMS: usize = 4;

/// Greedy search and beam search.
pub(crate) fn methods(subject: &Subject<'_>) -> Vec<Settings> {
    // Decoding of synthetic sound ends after a few tokens, too few for a share.
    let min_new_tokens = match least_cosine_of_audio(subject) {
        Some(_) => NEW_TOKENS.min(subject.settings.max_new_tokens),
        None => subject.settings.min_new_tokens,
    };
    let method = |num_beams| Settings {
        num_beams,
        num_return_sequences: 1,
        sampling: None,
        max_new_tokens: subject.settings.max_new_tokens.min(NEW_TOKENS),
        min_new_tokens,
        ..subject.settings.clone()
    };
    match subject.sizes {
        None => [1, BEAMS].map(method).into(),
        // The number of beams is also a constant.
        Some(_) => vec![method(subject.settings.num_beams.max(1))],
    }
}

/// The bound on cosines of the encoder's states, if the model reads audio and is in integers.
///
/// One or two of the 1,500 states of a window are many times larger than the others, and rounding
/// moves them by as much as their size: for Whisper tiny.en in 8 bits half of the rows moved by
/// less than 0.03 of their size, one by 2.4 times its size. A decoder that reads random pasts
/// amplifies rounding more than any decoding: logits moved by 0.15, along the reference's tokens by
/// 0.05. The states are therefore compared one by one, and the decoder by its logits along the
/// reference's own tokens.
pub(crate) fn least_cosine_of_audio(subject: &Subject<'_>) -> Option<f64> {
    subject
        .tolerance
        .least_cosine
        .filter(|_| matches!(subject.model.config().front, Front::Frames { .. }))
}

/// A session of each graph: the encoder and the decoder, or that of a decoder-only model.
pub(crate) type Sessions = Vec<Box<dyn Session>>;

pub(crate) fn load_reference(subject: &Subject<'_>) -> Result<Sessions> {
    load_reference_with(subject, None)
}

pub(crate) fn load_reference_with(
    subject: &Subject<'_>,
    threads: Option<NonZeroUsize>,
) -> Result<Sessions> {
    let options = Options { threads, ..Options::default() };
    let load = |program| {
        Reference::F64
            .load(&Source::Graph(program), &options)
            .map_err(|error| Error::runtime("reference", error))
    };
    subject.model.programs(subject.layout, Attentions::Omit)?.into_iter().map(load).collect()
}

pub(crate) fn join(subject: &Subject<'_>, sessions: Sessions) -> Result<Box<dyn Decoder>> {
    let engine = sessions[sessions.len() - 1].engine().to_string();
    decoder(subject.layout, sessions, subject.model.config(), subject.settings.pad_token)
        .map_err(|error| Error::runtime(&engine, error))
}
