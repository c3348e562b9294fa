//! Scores along given targets: their log-probabilities, and the greedy choices at each step.

use crate::batch::{Prompt, SentenceBatch};
use crate::constraints::Context;
use crate::error::Cause;
use crate::scores::{Columns, largest, log_softmax};
use crate::{Decoder, Hypothesis, Result, Settings, Sources};
use ndarray::Array2;
use std::ops::ControlFlow;

/// A target's log-probabilities under a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// Of each token after the prefix, with the end token.
    pub log_probabilities: Vec<f32>,
    /// Their sum.
    pub total: f32,
}

/// The model's log-probability of each target (without start and end token) and of an end token
/// after it, without constraints. If the batch has prefixes, targets must begin with them; their
/// tokens are not counted.
///
/// # Errors
/// If a source is empty, a target does not begin with its prefix, or the engine fails.
pub fn score(
    decoder: &mut dyn Decoder,
    batch: &SentenceBatch<'_>,
    targets: &[Vec<i64>],
    settings: &Settings,
) -> Result<Vec<Scored>> {
    batch.check()?;
    if targets.len() != batch.sources.len() {
        return Err(Cause::Count {
            what: "targets",
            expected: batch.sources.len(),
            found: targets.len(),
        }
        .into());
    }
    let end = settings.eos_tokens.first().copied();
    let prefix = |sentence: usize| batch.prefixes.get(sentence).map_or(&[][..], Vec::as_slice);
    for (sentence, target) in targets.iter().enumerate() {
        if !target.starts_with(prefix(sentence)) {
            return Err(Cause::Target { sentence }.into());
        }
    }
    let whole: Vec<Vec<i64>> =
        targets.iter().map(|target| target.iter().copied().chain(end).collect()).collect();
    let mut scored = vec![Scored { log_probabilities: Vec::new(), total: 0.0 }; targets.len()];
    follow(decoder, batch.sources, &whole, settings, |sentence, step, columns, logits| {
        if step < prefix(sentence).len() {
            return Ok(ControlFlow::Continue(()));
        }
        let number = || batch.numbers.get(sentence).copied().unwrap_or(sentence as u64 + 1);
        largest(logits).map_err(|why| Cause::scores(why, number(), step + 1))?;
        log_softmax(logits);
        let token = whole[sentence][step];
        let vocab = logits.len();
        let log_probability = columns.place(token).and_then(|place| logits.get(place).copied());
        let log_probability =
            log_probability.ok_or(Cause::Vocabulary { sentence, token, vocab })?;
        scored[sentence].log_probabilities.push(log_probability);
        Ok(ControlFlow::Continue(()))
    })?;
    for scored in &mut scored {
        scored.total =
            scored.log_probabilities.iter().map(|&log| f64::from(log)).sum::<f64>() as f32;
    }
    Ok(scored)
}

/// For each hypothesis the most probable token at each step, given the hypothesis's previous
/// tokens; the end of a complete hypothesis is a step. A decoder that agrees with the one that
/// decoded greedily returns the same tokens.
///
/// A step that differs does not affect later ones, so the share of equal steps measures a decoder's
/// precision. Only of a decoder that searches by itself the steps after the first that differs are
/// left out.
///
/// # Errors
/// If a source is empty or the engine fails.
///
/// # Panics
/// If there are not as many hypotheses as sources.
pub fn greedy_choices<'a>(
    decoder: &mut dyn Decoder,
    sources: impl Into<Sources<'a>>,
    hypotheses: &[Hypothesis],
    settings: &Settings,
) -> Result<Vec<Vec<i64>>> {
    greedy_steps(decoder, sources, hypotheses, settings, |_| ControlFlow::Continue(()))
}

/// [`greedy_choices`], with the logits `[vocab]` of each step, before any constraint, passed to
/// `observe`; a decoder that searches by itself has none to pass. The steps of all sentences come
/// before the next steps. If it returns [`ControlFlow::Break`], the choices end.
///
/// # Errors
/// If a source is empty or the engine fails.
///
/// # Panics
/// If there are not as many hypotheses as sources.
pub fn greedy_steps<'a>(
    decoder: &mut dyn Decoder,
    sources: impl Into<Sources<'a>>,
    hypotheses: &[Hypothesis],
    settings: &Settings,
    mut observe: impl FnMut(&[f32]) -> ControlFlow<()>,
) -> Result<Vec<Vec<i64>>> {
    let sources = sources.into();
    assert_eq!(sources.len(), hypotheses.len(), "a hypothesis for each source");
    let end = |hypothesis: &Hypothesis| {
        settings.eos_tokens.first().copied().filter(|_| hypothesis.complete)
    };
    let whole = hypotheses
        .iter()
        .map(|hypothesis| hypothesis.tokens.iter().copied().chain(end(hypothesis)).collect());
    let whole: Vec<Vec<i64>> = whole.collect();
    let batch = SentenceBatch::new(sources);
    let greedy =
        Settings { num_beams: 1, num_return_sequences: 1, sampling: None, ..settings.clone() };
    if let Some(found) = decoder.search(&batch, &greedy) {
        let steps = |(found, whole): (Vec<Hypothesis>, &Vec<i64>)| {
            let found = found.first().map_or_else(Vec::new, |found| {
                found.tokens.iter().copied().chain(end(found)).collect()
            });
            let equal = found.iter().zip(whole).take_while(|(found, whole)| found == whole).count();
            found.into_iter().take(whole.len().min(equal + 1)).collect()
        };
        return Ok(found?.into_iter().zip(&whole).map(steps).collect());
    }
    let continues = decoder.continues_sources();
    let prompts = (0..sources.len())
        .map(|sentence| batch.prompt(sentence, settings, continues))
        .collect::<Result<Vec<Prompt>>>()?;
    let mut choices = vec![Vec::new(); sources.len()];
    follow(decoder, sources, &whole, settings, |sentence, step, columns, logits| {
        if observe(logits).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let tokens: Vec<_> =
            prompts[sentence].tokens.iter().chain(&whole[sentence][..step]).copied().collect();
        settings
            .constrain(&Context { prompt: &prompts[sentence], tokens: &tokens, columns }, logits);
        let (place, _) = largest(logits).map_err(|why| prompts[sentence].refuse(&tokens, why))?;
        choices[sentence].push(columns.token(place));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(choices)
}

/// Calls `at` with each sentence, step, columns and logits of `targets[sentence][step]`. Sentences
/// leave the batch at the end of their targets. All end if it returns [`ControlFlow::Break`].
fn follow(
    decoder: &mut dyn Decoder,
    sources: Sources<'_>,
    targets: &[Vec<i64>],
    settings: &Settings,
    mut at: impl FnMut(usize, usize, Columns<'_>, &mut [f32]) -> Result<ControlFlow<()>>,
) -> Result<()> {
    if sources.is_empty() {
        return Ok(());
    }
    decoder.start(sources, 1)?;
    let continues = decoder.continues_sources();
    let start = |sentence: usize| {
        sources
            .tokens()
            .get(sentence)
            .filter(|_| continues)
            .and_then(|prompt| prompt.last().copied())
    };
    // The sentence of each row of the batch.
    let mut rows: Vec<usize> = (0..sources.len()).collect();
    for step in 0..targets.iter().map(Vec::len).max().unwrap_or(0) {
        let running: Vec<usize> =
            (0..rows.len()).filter(|&row| targets[rows[row]].len() > step).collect();
        if running.len() < rows.len() {
            decoder.retain(&running)?;
            rows = running.iter().map(|&row| rows[row]).collect();
        }
        let before = |sentence: usize| match step.checked_sub(1) {
            Some(last) => targets[sentence][last],
            None => start(sentence).unwrap_or(settings.start_token),
        };
        let tokens = Array2::from_shape_fn((rows.len(), 1), |(row, _)| before(rows[row]));
        let mut logits = decoder.advance(None, &tokens)?;
        for (row, &sentence) in rows.iter().enumerate() {
            for row in logits.rows(row) {
                if at(sentence, step, row.columns, row.into_logits())?.is_break() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}
