//! Greedy choices along given targets: what would come next, had everything before been as given.

use crate::scores::largest;
use crate::{Decoder, Hypothesis, Result, Settings, rows_of};
use ndarray::Array2;

/// For each hypothesis the likeliest token at each of its steps, from the tokens that precede it there; its end is a step too, if it
/// is complete. A decoder that agrees with the one that decoded the hypotheses greedily gives their own tokens.
///
/// One step that differs changes no other, as it would in decoding: the share of equal steps measures a decoder's precision.
///
/// # Errors
/// If a source is empty or the engine fails.
///
/// # Panics
/// If there are not as many hypotheses as sources.
pub fn greedy_choices(
    decoder: &mut dyn Decoder,
    sources: &[Vec<i64>],
    hypotheses: &[Hypothesis],
    settings: &Settings,
) -> Result<Vec<Vec<i64>>> {
    assert_eq!(sources.len(), hypotheses.len(), "a hypothesis for each source");
    let steps = |hypothesis: &Hypothesis| hypothesis.tokens.len() + usize::from(hypothesis.complete);
    let mut choices = vec![Vec::new(); sources.len()];
    if sources.is_empty() {
        return Ok(choices);
    }
    decoder.start(sources, 1)?;
    // The sentence of each row of the batch.
    let mut rows: Vec<usize> = (0..sources.len()).collect();
    for step in 0..hypotheses.iter().map(steps).max().unwrap_or(0) {
        let running: Vec<usize> = (0..rows.len()).filter(|&row| steps(&hypotheses[rows[row]]) > step).collect();
        if running.len() < rows.len() {
            decoder.retain(&running)?;
            rows = running.iter().map(|&row| rows[row]).collect();
        }
        let before = |sentence: usize| step.checked_sub(1).map_or(settings.start_token, |last| hypotheses[sentence].tokens[last]);
        let tokens = Array2::from_shape_fn((rows.len(), 1), |(row, _)| before(rows[row]));
        let mut logits = decoder.advance(None, &tokens)?;
        for (row, &sentence) in rows.iter().enumerate() {
            let scores = rows_of(&mut logits, row);
            settings.constrain(step, scores);
            choices[sentence].push(largest(scores).0);
        }
    }
    Ok(choices)
}
