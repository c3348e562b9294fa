//! Beam search, with the semantics of transformers' `generate` (`num_beams`, `length_penalty`, `early_stopping`).
//!
//! A sentence keeps `num_beams` running hypotheses, ranked by log-probability, and as many finished ones, ranked by
//! `log-probability / length^length_penalty`, where the length counts new tokens with the end token. Of the `2·num_beams`
//! best continuations those that end may finish (if they are among the first `num_beams`), the others run on.

use crate::scores::{Continuation, best_continuations, log_softmax};
use crate::{Decoder, EarlyStopping, Hypothesis, Result, Settings, rows_of};
use ndarray::Array2;

/// Stands for "cannot be chosen" among log-probabilities, as transformers has it.
const NEVER: f32 = -1e9;

/// A hypothesis that runs on.
#[derive(Clone, Debug)]
struct Running {
    tokens: Vec<i64>,
    log_probability: f32,
}

/// A sentence of the batch.
struct Sentence {
    running: Vec<Running>,
    /// Best first; at most `num_beams`.
    finished: Vec<Hypothesis>,
}

/// Decodes a batch; sentences that are done leave it.
pub(crate) fn beam_search(decoder: &mut dyn Decoder, sources: &[Vec<i64>], settings: &Settings) -> Result<Vec<Hypothesis>> {
    let beams = settings.num_beams;
    decoder.start(sources, beams)?;
    let mut best: Vec<Option<Hypothesis>> = vec![None; sources.len()];
    let mut rows: Vec<(usize, Sentence)> = (0..sources.len()).map(|index| (index, Sentence::new(beams))).collect();
    let mut tokens = Array2::from_elem((rows.len(), beams), settings.start_token);
    let mut parents: Option<Array2<usize>> = None;
    for step in 0..settings.max_new_tokens {
        let mut logits = decoder.advance(parents.as_ref(), &tokens)?;
        let n_rows = rows.len();
        let mut chosen = Vec::new();
        let mut kept = Vec::new();
        for (row, (_, sentence)) in rows.iter_mut().enumerate() {
            let scores = rows_of(&mut logits, row);
            for scores in scores.chunks_exact_mut(scores.len() / beams) {
                log_softmax(scores);
                settings.constrain(step, scores);
            }
            let continuations = sentence.advance(scores, step, settings);
            if !sentence.is_done(step, settings) {
                kept.push(row);
                chosen.push(continuations);
            }
        }
        let mut rest = Vec::new();
        for (row, (index, sentence)) in rows.into_iter().enumerate() {
            if kept.binary_search(&row).is_ok() {
                rest.push((index, sentence));
            } else {
                best[index] = sentence.finished.into_iter().next();
            }
        }
        let done = kept.len() < n_rows;
        rows = rest;
        if rows.is_empty() {
            break;
        }
        if done {
            decoder.retain(&kept)?;
        }
        tokens = Array2::from_shape_fn((rows.len(), beams), |(row, beam)| chosen[row][beam].1);
        parents = Some(Array2::from_shape_fn((rows.len(), beams), |(row, beam)| chosen[row][beam].0));
    }
    Ok(best.into_iter().map(|hypothesis| hypothesis.expect("a sentence leaves the batch with a hypothesis")).collect())
}

impl Sentence {
    fn new(beams: usize) -> Self {
        // All beams start equal: only the first may be continued.
        let running = (0..beams).map(|beam| Running { tokens: Vec::new(), log_probability: if beam == 0 { 0.0 } else { NEVER } });
        Self { running: running.collect(), finished: Vec::new() }
    }

    /// Takes the log-probabilities `[beams, vocab]` of new token number `step`; returns parent and token of each beam.
    fn advance(&mut self, log_probabilities: &[f32], step: usize, settings: &Settings) -> Vec<(usize, i64)> {
        let beams = settings.num_beams;
        let candidates = (1 + settings.eos_tokens.len()).max(2) * beams;
        let so_far: Vec<_> = self.running.iter().map(|running| running.log_probability).collect();
        let continuations = best_continuations(log_probabilities, &so_far, candidates);
        let is_last = step + 1 == settings.max_new_tokens;
        let length = (step + 1) as f32;
        let closed = settings.early_stopping == EarlyStopping::Full && self.finished.len() == beams;
        let improvable = self.can_improve(step, settings);
        let mut running = Vec::new();
        for (rank, &Continuation { parent, token, score: log_probability }) in continuations.iter().enumerate() {
            let ends = settings.eos_tokens.contains(&token);
            if !ends && !is_last {
                running.push((parent, token, log_probability));
                continue;
            }
            if rank < beams && !closed && improvable {
                let mut tokens = self.running[parent].tokens.clone();
                if !ends {
                    tokens.push(token);
                }
                let score = log_probability / length.powf(settings.length_penalty);
                self.finished.push(Hypothesis { tokens, complete: ends, score, margin: f32::INFINITY });
            }
        }
        // Stable: of equals the earlier stays first.
        self.finished.sort_by(|a, b| b.score.total_cmp(&a.score));
        self.finished.truncate(beams);
        running.truncate(beams);
        let choices: Vec<_> = running.iter().map(|&(parent, token, _)| (parent, token)).collect();
        self.running = running
            .into_iter()
            .map(|(parent, token, log_probability)| {
                let mut tokens = self.running[parent].tokens.clone();
                tokens.push(token);
                Running { tokens, log_probability }
            })
            .collect();
        choices
    }

    /// Whether the best running hypothesis may still beat the worst finished one, judged before new token number `step`.
    fn can_improve(&self, step: usize, settings: &Settings) -> bool {
        let (Some(running), true) = (self.running.first(), self.finished.len() == settings.num_beams) else { return true };
        let length = match settings.early_stopping {
            EarlyStopping::Never if settings.length_penalty > 0.0 => settings.max_new_tokens,
            _ => step,
        };
        let possible = running.log_probability / (length as f32).powf(settings.length_penalty);
        self.finished.last().is_none_or(|worst| possible > worst.score)
    }

    fn is_done(&self, step: usize, settings: &Settings) -> bool {
        let full = settings.early_stopping == EarlyStopping::Full && self.finished.len() == settings.num_beams;
        self.running.is_empty() || full || !self.can_improve(step + 1, settings)
    }
}
