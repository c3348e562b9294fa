//! Reading given tokens of one or several sources: scores of the first step, and attention along a
//! text.

use crate::scores::{Row, probability};
use crate::{Decoder, Result, Sources};
use ndarray::{Array2, Array3};

/// The attention and the probabilities along a text.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadAlong {
    /// The cross-attention of the given heads at each token: `[heads, tokens, src]`; rows sum to 1.
    pub attention: Array3<f32>,
    /// The probability of each token but the first, after those before it.
    pub probabilities: Vec<f32>,
}

/// The logits `[batch, vocab]` after the start token.
///
/// # Errors
/// If the engine fails.
pub fn first_scores(
    decoder: &mut dyn Decoder,
    sources: Sources<'_>,
    start_token: i64,
) -> Result<Array2<f32>> {
    decoder.start(sources, 1)?;
    let logits =
        decoder.advance(None, &Array2::from_elem((sources.len(), 1), start_token))?.into_scores();
    Ok(logits.index_axis(ndarray::Axis(1), 0).to_owned())
}

/// Reads `tokens` of one source. `heads` are `[layer, head]`; probabilities are those among the
/// first `vocab` tokens.
///
/// # Errors
/// If the graphs do not output cross-attention, a head does not exist, or the engine fails.
pub fn read_along(
    decoder: &mut dyn Decoder,
    sources: Sources<'_>,
    tokens: &[i64],
    heads: &[[usize; 2]],
    vocab: i64,
) -> Result<ReadAlong> {
    decoder.start(sources, 1)?;
    let vocab = usize::try_from(vocab).unwrap_or(0);
    let (mut attention, mut probabilities) =
        (Array3::zeros((heads.len(), tokens.len(), 0)), Vec::new());
    for (index, &token) in tokens.iter().enumerate() {
        let mut logits = decoder.advance(None, &Array2::from_elem((1, 1), token))?;
        if let Some(&next) = tokens.get(index + 1) {
            let row = logits.rows(0).next().expect("a row for the source");
            let among = vocab.min(row.scores.len());
            probabilities.push(
                probability(&Row { scores: &mut row.scores[..among], ..row }, next).unwrap_or(0.0),
            );
        }
        let mut layers: Vec<usize> = heads.iter().map(|[layer, _]| *layer).collect();
        layers.dedup();
        for layer in layers {
            let found = decoder.cross_attention(layer)?;
            if attention.dim().2 == 0 {
                attention = Array3::zeros((heads.len(), tokens.len(), found.dim().3));
            }
            for (place, [_, head]) in heads
                .iter()
                .enumerate()
                .filter(|(_, [of, head])| *of == layer && *head < found.dim().2)
            {
                attention
                    .slice_mut(ndarray::s![place, index, ..])
                    .assign(&found.slice(ndarray::s![0, 0, *head, ..]));
            }
        }
    }
    Ok(ReadAlong { attention, probabilities })
}
