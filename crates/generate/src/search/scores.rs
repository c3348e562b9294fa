//! The best continuations of each beam under the constraints, as in `constraints.rs`.
//!
//! Forbidden tokens are few, so their scores are changed in place. Penalties of repetition read the
//! tokens so far and write the scores of the whole vocabulary: they are in a loop of at most one
//! iteration, which a search without them does not enter.

use super::body::{Captured, when};
use super::repetition::Target;
use super::state::Fixed;
use super::{and, each_row, larger, less, or, smaller};
use crate::{Result, Settings};
use cognate_graph::{Builder, DType, Dim, Shape, Tensor, concat};
use std::collections::BTreeMap;

/// The constraints of a step.
pub(super) struct Constraints<'s, 'i> {
    pub(super) settings: &'s Settings,
    /// The number of the step, from 0.
    pub(super) iteration: Tensor<'i>,
    /// The number of tokens so far.
    pub(super) cur: Tensor<'i>,
    /// The tokens so far: `[batch, beams, length]`.
    pub(super) running: Tensor<'i>,
    pub(super) fixed: Fixed<'i>,
    /// Maximum number of tokens.
    pub(super) most: usize,
}

/// Whether constraints depend on the source's tokens.
pub(super) fn reads_source(settings: &Settings) -> bool {
    settings.encoder_repetition_penalty != 1.0 || settings.encoder_no_repeat_ngram_size > 0
}

impl<'s, 'i> Constraints<'s, 'i> {
    /// The same in a body, in which the tokens so far are `running`.
    pub(super) fn read<'j>(
        &self,
        captured: &mut Captured<'i, 'j>,
        running: Tensor<'j>,
    ) -> Constraints<'s, 'j> {
        let [iteration, cur] = [self.iteration, self.cur].map(|value| captured.read(value));
        Constraints {
            settings: self.settings,
            iteration,
            cur,
            running,
            fixed: self.fixed.read(captured),
            most: self.most,
        }
    }

    /// Whether hypotheses stop with their next tokens.
    pub(super) fn stops(&self, tokens: Tensor<'i>, is_last: Tensor<'i>) -> Tensor<'i> {
        let is_token = |token: i64| tokens.equal(tokens.builder().integer(token));
        let ends = self.settings.eos_tokens.iter().map(|&end| is_token(end)).reduce(or);
        or(ends.unwrap_or_else(|| is_token(-1)), is_last)
    }

    /// The scores and the tokens of the best continuations of each beam, `[batch, beams, width]`,
    /// from `logits: [batch, beams, vocab]`.
    pub(super) fn best(&self, logits: Tensor<'i>, is_last: Tensor<'i>) -> Result<[Tensor<'i>; 2]> {
        let scores = self.normalised(self.forbid(logits.log_softmax()));
        let [scores, tokens] =
            self.penalise(logits, scores.top_k(self.fixed.is_best.dim(0)), |inside, logits| {
                let log = inside.constrained(&[logits.log_softmax()])?[0];
                Ok(inside.normalised(log).top_k(inside.fixed.is_best.dim(0)))
            })?;
        Ok(self.forced(scores, tokens, is_last))
    }

    /// The log-probability and the token of the largest logit of each row, `[batch, beams]`, from
    /// `logits: [batch, beams, vocab]`.
    pub(super) fn largest(
        &self,
        logits: Tensor<'i>,
        is_last: Tensor<'i>,
    ) -> Result<[Tensor<'i>; 2]> {
        // The order of the logits decides, not that of their log-probabilities.
        let [_, token] = self.forbid(logits).top_k(1);
        let log = logits.log_softmax();
        // Forbidden tokens are not chosen, but their probability counts.
        let log = if self.settings.renormalize { self.normalised(self.forbid(log)) } else { log };
        let [score, token] =
            self.penalise(logits, [self.of_token(log, token), token], |inside, logits| {
                let [choice, log] = inside.under_constraints(logits)?;
                let [_, token] = choice.top_k(1);
                Ok([inside.of_token(log, token), token])
            })?;
        Ok(self.forced(score, token, is_last).map(each_row))
    }

    /// Replaces the best or sampled continuations by the forced token, in steps that have one.
    pub(super) fn forced(
        &self,
        mut scores: Tensor<'i>,
        mut tokens: Tensor<'i>,
        is_last: Tensor<'i>,
    ) -> [Tensor<'i>; 2] {
        let builder = scores.builder();
        let never = builder.scalar(f32::NEG_INFINITY);
        let (fixed, step) = (&self.fixed, self.iteration);
        let first = match fixed.prefix {
            Some(prefix) => {
                let rows = prefix.dim(0);
                let place = smaller(step, fixed.forced_step + builder.integer(1));
                let place = place.expand([rows.clone(), 1.into()]);
                let token = prefix.gather_elements(place).reshape([rows, 1.into(), 1.into()]);
                (token, step.less_or_equal(fixed.forced_step))
            }
            None => (fixed.forced_bos_token, step.equal(fixed.forced_step)),
        };
        let forced = [
            Some(first),
            self.settings.forced_eos_token.map(|token| (builder.integer(token), is_last)),
        ];
        // Of several continuations the first is the forced one.
        let is_single = scores.dim(2).as_constant() == Some(1);
        let is_first =
            (!is_single).then(|| fixed.is_best.reshape([Dim::from(1), 1.into(), scores.dim(2)]));
        for (token, is_forced) in forced.into_iter().flatten() {
            tokens = is_first
                .map_or(is_forced, |is_first| and(is_forced, is_first))
                .select(token, tokens);
            let certain = builder.scalar(0.0);
            scores = is_forced.select(
                is_first.map_or(certain, |is_first| is_first.select(certain, never)),
                scores,
            );
        }
        [scores, tokens]
    }

    /// The best continuations, by `penalised` if there are penalties of repetition.
    fn penalise(
        &self,
        logits: Tensor<'i>,
        best: [Tensor<'i>; 2],
        penalised: impl for<'j> FnOnce(&Constraints<'s, 'j>, Tensor<'j>) -> Result<[Tensor<'j>; 2]>,
    ) -> Result<[Tensor<'i>; 2]> {
        let next = when("penalties", self.fixed.is_penalised, &best, |captured, _| {
            let running = captured.read(self.running);
            let inside = self.read(captured, running);
            Ok(penalised(&inside, captured.read(logits))?.into())
        })?;
        Ok([next[0], next[1]])
    }

    /// Log-probabilities, normalised again if the configuration requests it.
    fn normalised(&self, log: Tensor<'i>) -> Tensor<'i> {
        if self.settings.renormalize { log.log_softmax() } else { log }
    }

    /// Logits and log-probabilities under all constraints except forced tokens.
    pub(super) fn under_constraints(&self, logits: Tensor<'i>) -> Result<[Tensor<'i>; 2]> {
        let values = self.constrained(&[logits, logits.log_softmax()])?;
        Ok([values[0], self.normalised(values[1])])
    }

    /// Logits or log-probabilities `[batch, beams, vocab]` under all constraints except forced
    /// tokens.
    fn constrained(&self, values: &[Tensor<'i>]) -> Result<Vec<Tensor<'i>>> {
        let (builder, fixed, settings) = (self.running.builder(), &self.fixed, self.settings);
        let shape = values[0].ty().shape;
        let zeros = builder.scalar(0.0).expand(shape.clone());
        // Positions without a token count as the first one, which always exists.
        let own = less(fixed.places, self.cur)
            .select(self.running, builder.integer(settings.start_token));
        let mut penalties = Vec::new();
        let mut forbidden = self.forbid(zeros);
        let target = Target { running: self.running, cur: self.cur, most: self.most };
        let mut forbid = |seen, is_token, n| -> Result<()> {
            let (tokens, is_met) = target.repeated(seen, is_token, n)?;
            let never = is_met.select(builder.scalar(f32::NEG_INFINITY), builder.scalar(0.0));
            forbidden = forbidden.scatter_elements(tokens, never);
            Ok(())
        };
        let ones = |ids: Tensor<'i>| builder.scalar(1.0).expand(ids.ty().shape);
        if let Some([ids, mask]) = fixed.source {
            let [batch, beams, src] =
                [shape.dims()[0].clone(), shape.dims()[1].clone(), ids.dim(1)];
            let each = |value: Tensor<'i>| {
                value.reshape([&batch, &1.into(), &src]).expand([&batch, &beams, &src])
            };
            let is_token = less(builder.integer(0), mask);
            if settings.encoder_repetition_penalty != 1.0 {
                let ids = each(is_token.select(ids, ids.slice(1, 0, 1)));
                penalties.push((
                    zeros.scatter_elements(ids, ones(ids)),
                    builder.scalar(1.0 / settings.encoder_repetition_penalty),
                ));
            }
            if settings.encoder_no_repeat_ngram_size > 0 {
                let n = builder.integer(settings.encoder_no_repeat_ngram_size as i64);
                forbid(each(ids), each(is_token.cast(DType::I64)), n)?;
            }
        }
        penalties.push((zeros.scatter_elements(own, ones(own)), fixed.repetition_penalty));
        let is_token =
            less(fixed.places, self.cur).cast(DType::I64).expand(self.running.ty().shape);
        forbid(self.running, is_token, fixed.no_repeat_ngram_size)?;

        let constrained = |x: &Tensor<'i>| {
            let penalised = penalties.iter().fold(*x, |x, &(counts, penalty)| {
                let less_likely = less(x, builder.scalar(0.0)).select(x * penalty, x / penalty);
                less(builder.scalar(0.0), counts).select(less_likely, x)
            });
            penalised + forbidden
        };
        Ok(values.iter().map(constrained).collect())
    }

    /// Scores with those of forbidden tokens minus infinity.
    fn forbid(&self, scores: Tensor<'i>) -> Tensor<'i> {
        let of_step =
            |[rows, of_step]: [Tensor<'i>; 2]| rows.gather(of_step.gather(self.iteration));
        let scores = self.fixed.forbidden.map_or(scores, |forbidden| scores + of_step(forbidden));
        let builder = scores.builder();
        let shape = |n: usize| -> Shape { [scores.dim(0), scores.dim(1), n.into()].into() };
        let cur = self.cur;
        let vocab = scores.dim(2).as_constant().unwrap_or(0);
        // transformers requires as many tokens as the word has, although one fewer precedes its
        // last.
        let due = |word: &Vec<i64>| {
            let (last, before) = word
                .split_last()
                .filter(|(last, before)| !before.is_empty() && (0..vocab).contains(*last))?;
            let is_there = |(index, &token): (usize, &i64)| {
                let place = larger(
                    cur - builder.integer((before.len() - index) as i64),
                    builder.integer(0),
                );
                self.running.gather_elements(place.expand(shape(1))).equal(builder.integer(token))
            };
            let is_long = builder.integer(word.len() as i64).less_or_equal(cur);
            let is_due =
                before.iter().enumerate().map(is_there).fold(is_long, and).expand(shape(1));
            Some((*last, is_due.select(builder.scalar(f32::NEG_INFINITY), builder.scalar(0.0))))
        };
        let (tokens, updates): (Vec<_>, Vec<_>) =
            self.settings.bad_words.iter().filter_map(due).unzip();
        if tokens.is_empty() {
            return scores;
        }
        let n = tokens.len();
        scores.scatter_elements(builder.integers(tokens).expand(shape(n)), concat(2, &updates))
    }

    /// The elements `tokens: i64 [batch, beams, 1]` of `values: [batch, beams, vocab]`. ONNX's
    /// reference evaluator has no GatherElements along more than 64 elements.
    pub(super) fn of_token(&self, values: Tensor<'i>, tokens: Tensor<'i>) -> Tensor<'i> {
        let [rows, vocab] = [values.dim(0) * values.dim(1), values.dim(2)];
        values.reshape([rows * vocab]).gather(tokens + self.fixed.first_score)
    }
}

/// The values added to scores, `[4, vocab]`: minus infinity where a token is forbidden. The rows
/// are for steps in which the end is allowed or not, and the same two for the first step that
/// chooses. `None` if no token is ever forbidden.
pub(super) fn forbidden_rows<'g>(
    builder: &'g Builder,
    settings: &Settings,
    vocab: usize,
) -> Option<Tensor<'g>> {
    let Settings { bad_words, eos_tokens, suppressed_tokens, suppressed_first_tokens, .. } =
        settings;
    let words = bad_words
        .iter()
        .filter(|word| word.len() == 1 && !eos_tokens.contains(&word[0]))
        .map(|word| word[0]);
    let always = words.chain(suppressed_tokens.iter().copied()).map(|token| (token, [true; 4]));
    let ends = eos_tokens.iter().map(|&token| (token, [false, true, false, true]));
    let first = suppressed_first_tokens.iter().map(|&token| (token, [false, false, true, true]));
    let mut rows = BTreeMap::<i64, [bool; 4]>::new();
    for (token, forbidden) in always
        .chain(ends)
        .chain(first)
        .filter(|(token, _)| usize::try_from(*token).is_ok_and(|id| id < vocab))
    {
        let row = rows.entry(token).or_default();
        *row = std::array::from_fn(|index| row[index] || forbidden[index]);
    }
    if rows.is_empty() {
        return None;
    }
    let shape: Shape = [4, rows.len()].into();
    let tokens = builder.integers(rows.keys().copied().collect::<Vec<_>>()).expand(shape.clone());
    let is_forbidden = (0..4).flat_map(|index| rows.values().map(move |row| i64::from(row[index])));
    let is_forbidden =
        builder.integers(is_forbidden.collect::<Vec<_>>()).reshape(shape).cast(DType::Bool);
    let never = is_forbidden.select(builder.scalar(f32::NEG_INFINITY), builder.scalar(0.0));
    Some(builder.scalar(0.0).expand([4, vocab]).scatter_elements(tokens, never))
}
