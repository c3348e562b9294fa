//! Greedy decoding: the likeliest next token, until the end token.

use crate::scores::largest;
use crate::{Decoder, Hypothesis, Result, Settings, rows_of};
use ndarray::Array2;

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
            let scores = rows_of(&mut logits, row);
            settings.constrain(step, scores);
            let (token, margin) = largest(scores);
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
