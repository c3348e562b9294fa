//! Beam search, with the semantics of transformers' `generate` (`num_beams`, `length_penalty`,
//! `early_stopping`).
//!
//! A sentence has `num_beams` running hypotheses, ranked by log-probability, and as many finished
//! ones, ranked by `log-probability / length^length_penalty`, where the length counts new tokens
//! with the end token. Of the `2·num_beams` best continuations those that end finish (if they are
//! among the first `num_beams`), the others continue.
//!
//! With sampling (transformers' `do_sample`) the continuations are sampled without replacement by
//! the probabilities of their hypotheses; the best of those that do not end continue.

use crate::batch::{Event, Prompt};
use crate::constraints::Context;
use crate::hypotheses::{Observer, Search};
use crate::sampling::Generator;
use crate::scores::{
    Candidates, Columns, Continuation, Row, Unusable, best_continuations, check, log_softmax,
};
use crate::{EarlyStopping, Hypothesis, Result, Sampling, Settings, alignment};
use ndarray::{ArrayView3, Axis};
use std::mem;

/// The log-probability of impossible hypotheses, as in transformers.
const NEVER: f32 = -1e9;

/// A running hypothesis.
#[derive(Clone, Debug, Default)]
struct Running {
    /// With the start token and the prefix.
    tokens: Vec<i64>,
    log_probability: f32,
    /// Of each token after the start token, if requested.
    alignment: Vec<usize>,
}

/// The beams of a sentence.
pub(crate) struct Beams {
    prompt: Prompt,
    running: Vec<Running>,
    /// The beam that each of them continues.
    parents: Vec<usize>,
    /// Of the last logits.
    continuations: Vec<Continuation>,
    /// Best first; at most `num_beams`.
    finished: Vec<Hypothesis>,
    is_cancelled: bool,
    draws: Option<Draws>,
    /// The smallest distance of scores of two hypotheses of which one was preferred.
    margin: f32,
    observed: Option<f32>,
}

/// Sampling of continuations.
struct Draws {
    sampling: Sampling,
    generator: Generator,
}

impl Beams {
    pub(crate) fn new(prompt: Prompt, settings: &Settings) -> Self {
        // All beams start equal: only the first can be continued.
        let log_probability = |beam| if beam == 0 { 0.0 } else { NEVER };
        let running = |beam| Running {
            tokens: prompt.start(),
            log_probability: log_probability(beam),
            alignment: Vec::new(),
        };
        let running = (0..settings.num_beams).map(running).collect();
        let (parents, continuations) = ((0..settings.num_beams).collect(), Vec::new());
        let draws = settings
            .sampling
            .map(|sampling| Draws { sampling, generator: sampling.generator(prompt.number, 0) });
        let (finished, margin) = (Vec::new(), f32::INFINITY);
        Self {
            prompt,
            running,
            parents,
            continuations,
            finished,
            is_cancelled: false,
            draws,
            margin,
            observed: None,
        }
    }

    /// The best continuations by the logits of each beam, best first, or sampled ones; within a
    /// prefix, its next token. One more than can be chosen, for the margin.
    ///
    /// # Errors
    /// If a score is NaN or infinite, or every token is forbidden and no hypothesis has finished.
    fn continuations(
        &mut self,
        logits: &mut dyn Iterator<Item = Row<'_>>,
        settings: &Settings,
    ) -> Result<Vec<Continuation>> {
        let found = self.best(logits, settings).and_then(|found| {
            let is_over = !self.finished.is_empty();
            found.first().filter(|_| !is_over).map_or(Ok(()), |best| check(best.score))?;
            Ok(found)
        });
        let tokens = self.running.first().map_or(&[][..], |running| &running.tokens);
        found.map_err(|why| self.prompt.refuse(tokens, why))
    }

    fn best(
        &mut self,
        logits: &mut dyn Iterator<Item = Row<'_>>,
        settings: &Settings,
    ) -> Result<Vec<Continuation>, Unusable> {
        let mut logits = logits.peekable();
        if let (None, Some(row), Some(running)) =
            (self.observed, logits.peek(), self.running.first())
        {
            self.observed = self.prompt.observe(settings.observe, &running.tokens, row);
        }
        let so_far: Vec<_> = self.running.iter().map(|running| running.log_probability).collect();
        if let Some(token) =
            self.running.first().and_then(|running| self.prompt.next(&running.tokens))
        {
            let given = |(parent, score)| Continuation { parent, token, score };
            return Ok(so_far.into_iter().enumerate().map(given).collect());
        }
        let count = settings.n_continuations();
        if let Some(Draws { sampling, generator }) = &mut self.draws {
            let columns = logits.peek().map_or(Columns::All, |row| row.columns);
            let rows = logits.zip(&self.running).map(|(row, running)| {
                row.check()?;
                let scores = row.into_logits();
                log_softmax(scores);
                settings.constrain(
                    &Context { prompt: &self.prompt, tokens: &running.tokens, columns },
                    scores,
                );
                sampling.warp(scores, count / settings.num_beams);
                settings.renormalize_if_set(scores);
                scores.iter_mut().for_each(|score| *score += running.log_probability);
                Ok((generator.keys(scores), &*scores))
            });
            let (mut keys, scores): (Vec<_>, Vec<_>) =
                rows.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
            let mut drawn = best_continuations(
                keys.iter_mut().map(|keys| Candidates::of_log_probabilities(keys, 0.0)),
                count,
            );
            drawn
                .iter_mut()
                .for_each(|drawn| drawn.score = scores[drawn.parent][drawn.token as usize]);
            return Ok(named(drawn, |_| columns));
        }
        let count = count + 1;
        let mut rows: Vec<_> = logits.collect();
        let mut copies = Vec::new();
        if let ([row], [first, _, ..]) = (rows.as_slice(), self.running.as_slice()) {
            // All beams except the first are initially impossible: their continuations come after
            // those of the first, if these suffice.
            let context =
                Context { prompt: &self.prompt, tokens: &first.tokens, columns: row.columns };
            let n_left = row.scores.len().saturating_sub(settings.most_forbidden(&context));
            if !settings.only_forbids(&context) || n_left < count {
                let Row { scale, columns, softmax, .. } = *row;
                copies.resize(self.running.len(), row.scores.to_vec());
                rows = copies
                    .iter_mut()
                    .map(|scores| Row { scores, scale, columns, softmax })
                    .collect();
            }
        }
        let columns: Vec<_> = rows.iter().map(|row| row.columns).collect();
        let rows = rows.into_iter().zip(&self.running).map(|(row, running)| {
            let context =
                Context { prompt: &self.prompt, tokens: &running.tokens, columns: row.columns };
            if settings.only_forbids(&context) {
                // Log-probabilities are compared without being stored.
                let mut candidates = Candidates::of_logits(row, running.log_probability);
                candidates.check()?;
                settings.constrain(&context, candidates.scores());
                return Ok(candidates);
            }
            row.check()?;
            let scores = row.into_logits();
            log_softmax(scores);
            settings.constrain_fully(&context, scores);
            Ok(Candidates::of_log_probabilities(scores, running.log_probability))
        });
        Ok(named(best_continuations(rows.collect::<Result<Vec<_>, _>>()?, count), |row| {
            columns[row]
        }))
    }

    /// Advances by one token; returns the parent of each beam. `attention: [beams, heads, src]` is
    /// that of this step.
    fn continue_by(
        &mut self,
        continuations: &[Continuation],
        attention: Option<ArrayView3<'_, f32>>,
        settings: &Settings,
    ) -> Vec<usize> {
        let beams = settings.num_beams;
        let extended = |parent: usize, token: Option<i64>| {
            let Running { tokens, alignment: so_far, .. } = &self.running[parent];
            let place = attention.filter(|_| token.is_some());
            let place = place.map(|attention| {
                alignment(attention.index_axis(Axis(0), parent), &self.prompt.source)
            });
            let tokens: Vec<_> = tokens.iter().copied().chain(token).collect();
            (tokens, so_far.iter().copied().chain(place).collect::<Vec<_>>())
        };
        let (is_given, n_new) = match self.running.first() {
            Some(running) => (self.prompt.next(&running.tokens).is_some(), self.n_new() + 1),
            None => return Vec::new(),
        };
        let is_last = !is_given && n_new == self.prompt.limit;
        let most = match settings.early_stopping {
            EarlyStopping::Finished(most) => Some(most),
            _ => None,
        };
        let closed = settings.early_stopping == EarlyStopping::Full && self.finished.len() == beams;
        let improvable = is_given || self.can_improve(n_new - 1, settings);
        if !is_given {
            let distance = distance(continuations, beams, |token| {
                is_last || settings.eos_tokens.contains(&token)
            });
            // As a score of this length.
            self.margin = self.margin.min(distance / (n_new as f32).powf(settings.length_penalty));
        }
        let (mut next, mut finished) = (Vec::with_capacity(beams), Vec::new());
        let mut ranked: Vec<_> = continuations.iter().enumerate().collect();
        // Sampled ones are in the order of draws, by which they finish; those that continue are
        // chosen by score.
        ranked.sort_by(|(_, a), (_, b)| b.score.total_cmp(&a.score));
        for (rank, &Continuation { parent, token, score }) in ranked {
            let ends = !is_given && settings.eos_tokens.contains(&token);
            let n_finished = self.finished.len() + finished.len();
            let may_finish = match most {
                Some(most) if ends => next.len() < beams && n_finished < most,
                Some(_) => n_finished < beams,
                None => rank < beams && !closed && improvable,
            };
            if !ends && !is_last {
                if next.len() < beams {
                    next.push(Continuation { parent, token, score });
                }
            } else if may_finish {
                let (tokens, alignment) = extended(parent, Some(token).filter(|_| !ends));
                // A copy of the first beam is not a hypothesis.
                let is_real = score > NEVER / 2.0;
                let length = n_new - usize::from(ends && most.is_some() && n_new > 1);
                let score = if is_real {
                    score / (length as f32).powf(settings.length_penalty)
                } else {
                    f32::NEG_INFINITY
                };
                let tokens = tokens[self.prompt.n_start..].to_vec();
                finished.push(Hypothesis {
                    tokens,
                    complete: ends,
                    score,
                    margins: Vec::new(),
                    alignment,
                    observed: self.observed,
                });
            }
        }
        self.finished.extend(finished);
        // Stable: the earlier of equals stays first.
        self.finished.sort_by(|a, b| b.score.total_cmp(&a.score));
        self.go_on(&next, attention);
        self.margin =
            self.margin.min(between(&self.finished[(beams - 1).min(self.finished.len())..], 1));
        self.finished.truncate(most.unwrap_or(beams).max(beams));
        // Otherwise the number of finished hypotheses decides, not their scores.
        if matches!(settings.early_stopping, EarlyStopping::Heuristic | EarlyStopping::Never) {
            self.margin = self.margin.min(self.lead(self.n_new(), settings).abs());
        }
        next.into_iter().map(|chosen| chosen.parent).collect()
    }

    /// Replaces the running hypotheses by continuations of them.
    fn go_on(&mut self, next: &[Continuation], attention: Option<ArrayView3<'_, f32>>) {
        let mut before = mem::take(&mut self.running);
        for (index, &Continuation { parent, token, score }) in next.iter().enumerate() {
            // The last that continues a hypothesis takes its memory.
            let is_last = next[index + 1..].iter().all(|other| other.parent != parent);
            let Running { mut tokens, mut alignment, .. } = match is_last {
                true => mem::take(&mut before[parent]),
                false => before[parent].clone(),
            };
            tokens.push(token);
            alignment.extend(attention.map(|attention| {
                crate::alignment(attention.index_axis(Axis(0), parent), &self.prompt.source)
            }));
            self.running.push(Running { tokens, log_probability: score, alignment });
        }
    }

    /// The number of tokens after the prefix of running hypotheses.
    fn n_new(&self) -> usize {
        self.running
            .first()
            .map_or(0, |running| running.tokens.len().saturating_sub(self.prompt.tokens.len()))
    }

    /// Whether the best running hypothesis can still beat the worst finished one.
    fn can_improve(&self, n_new: usize, settings: &Settings) -> bool {
        self.lead(n_new, settings) > 0.0
    }

    /// The difference of their scores; infinity while there are fewer finished hypotheses than
    /// beams.
    fn lead(&self, n_new: usize, settings: &Settings) -> f32 {
        let is_full = match settings.early_stopping {
            EarlyStopping::Finished(most) if self.finished.len() >= most => {
                return f32::NEG_INFINITY;
            }
            EarlyStopping::Finished(_) => false,
            _ => self.finished.len() == settings.num_beams,
        };
        let (Some(running), true) = (self.running.first(), is_full) else { return f32::INFINITY };
        let length = match settings.early_stopping {
            EarlyStopping::Never if settings.length_penalty > 0.0 => self.prompt.limit,
            _ => n_new,
        };
        let possible = running.log_probability / (length as f32).powf(settings.length_penalty);
        self.finished.last().map_or(f32::INFINITY, |worst| possible - worst.score)
    }
}

impl Search for Beams {
    fn tokens(&self, hypothesis: usize) -> &[i64] {
        &self.running[hypothesis].tokens
    }

    fn follow_prompt(&mut self, sentence: usize, n: usize, observer: Observer<'_>) {
        let given = &self.prompt.tokens[self.prompt.n_start..=n];
        self.running.iter_mut().for_each(|running| running.tokens.extend(given));
        self.is_cancelled = given.iter().any(|_| observer(Event::Step { sentence }).is_break());
    }

    fn read(
        &mut self,
        _: usize,
        logits: &mut dyn Iterator<Item = Row<'_>>,
        settings: &Settings,
        _: Observer<'_>,
    ) -> Result<()> {
        self.continuations = self.continuations(logits, settings)?;
        Ok(())
    }

    fn advance(
        &mut self,
        sentence: usize,
        attention: Option<ArrayView3<'_, f32>>,
        settings: &Settings,
        observer: Observer<'_>,
    ) {
        let continuations = mem::take(&mut self.continuations);
        self.parents = self.continue_by(&continuations, attention, settings);
        self.is_cancelled |= observer(Event::Step { sentence }).is_break();
    }

    fn parents(&self) -> Option<&[usize]> {
        Some(&self.parents)
    }

    fn prompt(&self) -> &Prompt {
        &self.prompt
    }

    fn is_done(&self, settings: &Settings) -> bool {
        let full = settings.early_stopping == EarlyStopping::Full
            && self.finished.len() == settings.num_beams;
        // There are fewer at the limit, or if nearly every token ends a sentence.
        let exhausted = self.running.len() < settings.num_beams;
        self.is_cancelled || exhausted || full || !self.can_improve(self.n_new(), settings)
    }

    /// The finished hypotheses, or the best running one of a cancelled sentence.
    fn into_hypotheses(self: Box<Self>, settings: &Settings) -> Vec<Hypothesis> {
        let mut hypotheses = self.finished;
        if hypotheses.is_empty() {
            hypotheses.extend(self.running.into_iter().take(1).map(|running| Hypothesis {
                tokens: running.tokens[self.prompt.n_start..].to_vec(),
                complete: false,
                score: running.log_probability,
                margins: Vec::new(),
                alignment: running.alignment,
                observed: self.observed,
            }));
        }
        let margin = match self.draws {
            None => self.margin.min(between(&hypotheses, settings.num_return_sequences)),
            Some(_) => f32::INFINITY,
        };
        hypotheses
            .iter_mut()
            .for_each(|hypothesis| hypothesis.margins = vec![margin; hypothesis.tokens.len() + 1]);
        let n_real =
            hypotheses.iter().filter(|hypothesis| hypothesis.score > f32::NEG_INFINITY).count();
        hypotheses.truncate(settings.num_return_sequences.min(n_real).max(1));
        hypotheses
    }
}

/// Continuations by the tokens of their places, with the columns of each row.
fn named<'c>(
    mut continuations: Vec<Continuation>,
    columns: impl Fn(usize) -> Columns<'c>,
) -> Vec<Continuation> {
    for continuation in &mut continuations {
        continuation.token = columns(continuation.parent).token(continuation.token as usize);
    }
    continuations
}

/// The smallest distance between two continuations of which one is preferred: the last that
/// continues and the next one; each that `finishes` and the one at the threshold for finishing.
fn distance(continuations: &[Continuation], beams: usize, finishes: impl Fn(i64) -> bool) -> f32 {
    // Impossible hypotheses have no distance.
    let distance = |better: &Continuation, worse: &Continuation| {
        if better.score > NEVER / 2.0 { better.score - worse.score } else { f32::INFINITY }
    };
    let (last, next) = (continuations.get(beams - 1), continuations.get(beams));
    let finishing =
        continuations.iter().enumerate().filter(|(_, found)| finishes(found.token)).filter_map(
            |(rank, found)| {
                if rank < beams {
                    next.map(|next| distance(found, next))
                } else {
                    last.map(|last| distance(last, found))
                }
            },
        );
    let mut running = continuations.iter().filter(|found| !finishes(found.token)).skip(beams - 1);
    let running = running.next().zip(running.next()).map(|(last, next)| distance(last, next));
    finishing.chain(running).fold(f32::INFINITY, f32::min)
}

/// The smallest distance between neighbours among the first `count` hypotheses and the next one.
fn between(hypotheses: &[Hypothesis], count: usize) -> f32 {
    let neighbours = hypotheses.windows(2).take(count);
    neighbours.map(|pair| pair[0].score - pair[1].score).fold(f32::INFINITY, f32::min)
}
