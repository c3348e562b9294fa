//! A pair of sentences as ids, or the reason why it is left out.

use cognate_text::Tokenizer;

use super::BatchSettings;
use crate::corpus::{Corpus, Pair, Place};
use crate::error::{Cause, Result};
use crate::left_out::LeftOut;

/// A pair of sentences as ids, special tokens included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) place: Place,
    pub(crate) source: Box<[u32]>,
    /// The tokens that the decoder predicts.
    pub(crate) labels: Box<[u32]>,
}

/// Encodes a pair; `None` if the pair is left out, which is counted.
pub(super) fn encode(
    pair: &Pair,
    tokenizer: &Tokenizer,
    settings: &BatchSettings,
    corpus: &Corpus,
    left_out: &mut LeftOut,
) -> Result<Option<Encoded>> {
    let failed = |error| Cause::Encode { place: corpus.name(pair.place), error };
    let source = tokenizer.encode(&pair.source).map_err(failed)?;
    let target = tokenizer.encode_target(&pair.target).map_err(failed)?;
    let framing = &settings.framing;
    let n_labels = framing.prefix.len() + target.len() + framing.suffix.len();
    if source.is_empty()
        || source.len() > settings.max_source_tokens
        || n_labels > settings.max_target_tokens
    {
        left_out.long += 1;
        return Ok(None);
    }
    if let Some(max_ratio) = settings.max_ratio {
        // The source is assumed to have as many special tokens as the target.
        let sides = [
            source.len().saturating_sub(framing.prefix.len() + framing.suffix.len()),
            target.len(),
        ]
        .map(|n| n.max(1) as f64);
        if sides[0] > max_ratio * sides[1] || sides[1] > max_ratio * sides[0] {
            left_out.ratio += 1;
            return Ok(None);
        }
    }
    if source.contains(&framing.pad)
        || target.iter().any(|id| *id == framing.pad || framing.suffix.contains(id))
    {
        left_out.special += 1;
        return Ok(None);
    }
    let labels: Vec<i64> =
        framing.prefix.iter().chain(&target).chain(&framing.suffix).copied().collect();
    let narrow = |ids: Vec<i64>| {
        ids.into_iter()
            .map(|id| u32::try_from(id).expect("a tokenizer's ids have 32 bits"))
            .collect()
    };
    Ok(Some(Encoded { place: pair.place, source: narrow(source), labels: narrow(labels) }))
}
