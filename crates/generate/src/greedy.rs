//! Greedy decoding: the likeliest next token, until the end token.

use crate::{Decoder, Hypothesis, Result, Settings};
use ndarray::{Array2, ArrayView1};

/// Decodes a batch; sentences that have ended leave it.
pub(crate) fn greedy(decoder: &mut dyn Decoder, sources: &[Vec<i64>], settings: &Settings) -> Result<Vec<Hypothesis>> {
    decoder.start(sources, 1)?;
    let unfinished = Hypothesis { tokens: Vec::new(), complete: false, score: 0.0, margin: f32::INFINITY };
    let mut hypotheses = vec![unfinished; sources.len()];
    // The sentence of each row of the batch.
    let mut rows: Vec<usize> = (0..sources.len()).collect();
    let mut tokens = Array2::from_elem((rows.len(), 1), settings.start_token);
    for step in 0..settings.max_new_tokens {
        let mut logits = decoder.advance(None, &tokens)?;
        let mut running = Vec::new();
        let mut next = Vec::new();
        for (row, &sentence) in rows.iter().enumerate() {
            let mut scores = logits.slice_mut(ndarray::s![row, 0, ..]);
            settings.constrain(step, &mut scores);
            let (token, margin) = best(scores.view());
            let hypothesis = &mut hypotheses[sentence];
            hypothesis.margin = hypothesis.margin.min(margin);
            if settings.eos_tokens.contains(&token) {
                hypothesis.complete = true;
            } else {
                hypothesis.tokens.push(token);
                running.push(row);
                next.push(token);
            }
        }
        if running.is_empty() {
            break;
        }
        if running.len() < rows.len() && step + 1 < settings.max_new_tokens {
            decoder.retain(&running)?;
        }
        rows = running.iter().map(|&row| rows[row]).collect();
        tokens = Array2::from_shape_vec((next.len(), 1), next).expect("one token a row");
    }
    Ok(hypotheses)
}

/// The position of the largest score, the first of equals, and its distance to the second largest.
pub(crate) fn best(scores: ArrayView1<'_, f32>) -> (i64, f32) {
    let (mut best, mut first, mut second) = (0, f32::NEG_INFINITY, f32::NEG_INFINITY);
    for (token, &score) in scores.iter().enumerate() {
        if score > first {
            (best, second, first) = (token, first, score);
        } else if score > second {
            second = score;
        }
    }
    (best as i64, first - second)
}
