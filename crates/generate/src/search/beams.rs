//! Beam search in the operations of the language, as in `beam.rs`.
//!
//! `K` beams, `F = 1 + ends` (at least 2) continuations of each: `K` continue, and as many can
//! finish.

use super::body::{moved, when};
use super::scores::Constraints;
use super::state::{PerToken, Scored, State, put};
use super::{and, column, larger, less, not, smaller};
use crate::{Result, Settings};
use cognate_graph::{DType, Shape, Tensor, concat};

/// The score of impossible hypotheses, as in transformers.
pub(super) const NEVER: f32 = -1e9;

/// The number of continuations of a sentence that are considered for each of its beams.
pub(super) fn factor(settings: &Settings) -> usize {
    (1 + settings.eos_tokens.len()).max(2)
}

/// The continuations of a sentence, the best first: `[batch, F K]`.
#[derive(Clone, Copy)]
struct Continuations<'i> {
    scores: Tensor<'i>,
    /// The beam that each continues, and its token.
    parent: Tensor<'i>,
    token: Tensor<'i>,
    /// Whether it ends.
    stops: Tensor<'i>,
    /// The token's log-probability, if it is an output.
    token_scores: Option<Tensor<'i>>,
}

/// Finished hypotheses, as in [`State`].
#[derive(Clone, Copy)]
struct Finished<'i> {
    sequences: Tensor<'i>,
    scores: Tensor<'i>,
    lengths: Tensor<'i>,
    finished: Tensor<'i>,
    per_token: Option<[Tensor<'i>; 2]>,
}

impl<'i> State<'i> {
    /// The next state of beams, whether a continuation does not end, and the caches of each beam's
    /// parent; or this state, `goes_on` and `caches`.
    pub(super) fn continue_beams(
        self,
        scored: Scored<'i>,
        goes_on: Tensor<'i>,
        caches: Vec<Tensor<'i>>,
        constraints: &Constraints<'_, 'i>,
    ) -> Result<(Tensor<'i>, Self, Vec<Tensor<'i>>)> {
        let (n_values, has_per_token) = (self.values().len(), self.per_token.is_some());
        let carried: Vec<_> = self.values().into_iter().chain([goes_on]).chain(caches).collect();
        let next =
            when("beams", not(constraints.fixed.is_independent), &carried, |captured, carried| {
                let state = State::of(carried, has_per_token);
                let constraints = constraints.read(captured, state.running);
                let (goes_on, next, parents) =
                    state.searched(scored.read(captured), &constraints)?;
                let caches = carried[n_values + 1..]
                    .iter()
                    .map(|cache| moved(*cache, parents, constraints.fixed.first_row));
                Ok(next.values().into_iter().chain([goes_on]).chain(caches).collect())
            })?;
        Ok((next[n_values], State::of(&next, has_per_token), next[n_values + 1..].to_vec()))
    }

    /// Whether a continuation does not end, the next state, and the beam that each of its running
    /// hypotheses continues.
    fn searched(
        self,
        scored: Scored<'i>,
        constraints: &Constraints<'_, 'i>,
    ) -> Result<(Tensor<'i>, Self, Tensor<'i>)> {
        let (builder, fixed) = (scored.logits.builder(), &constraints.fixed);
        let found = self.continuations(scored, constraints)?;
        let beams = scored.logits.dim(1);
        let [running_scores, chosen] =
            found.stops.select(found.scores + NEVER, found.scores).top_k(&beams);
        let (parents, tokens) =
            (found.parent.gather_elements(chosen), found.token.gather_elements(chosen));
        let is_here = fixed.places.equal(constraints.cur);
        let of_parents = |values: Tensor<'i>| moved(values, parents, fixed.first_row);
        let running = is_here.select(column(tokens), of_parents(self.running));

        let one = builder.integer(1);
        let Finished { sequences, scores, lengths, finished, per_token } =
            self.finish(found, scored, constraints);
        let new = found.token_scores.zip(scored.attention).map(|(scores, attention)| {
            [column(scores.gather_elements(chosen)), of_parents(attention)]
        });
        let per_token = self.per_token.zip(new).zip(per_token).map(|((before, new), finished)| {
            let of = |index: usize| put(is_here, new[index], of_parents(before[index].running));
            std::array::from_fn(|index| PerToken { finished: finished[index], running: of(index) })
        });

        let full = finished.sum(&[1]).equal(fixed.beams);
        let best_length = fixed.is_never.select(fixed.last_length, constraints.cur);
        let possible = constraints.of_length(running_scores.slice(1, 0, 1), best_length);
        let worst = full.select(scores.slice(1, &beams - 1, &beams), builder.scalar(NEVER));
        let is_enough = and(full, fixed.is_early);
        let open = and(self.open, and(less(worst, possible), not(is_enough)));
        let left = found.stops.select(builder.integer(0), one).sum(&[0, 1]);
        let goes_on = one.less_or_equal(left.reshape(Shape::default()));
        let next = Self {
            sequences,
            scores,
            lengths,
            finished,
            running,
            running_scores,
            tokens,
            open,
            per_token,
        };
        Ok((goes_on, next, parents))
    }

    /// The best continuations of all beams of a sentence.
    fn continuations(
        self,
        Scored { logits, is_last, .. }: Scored<'i>,
        constraints: &Constraints<'_, 'i>,
    ) -> Result<Continuations<'i>> {
        let [scores, tokens] = constraints.best(logits, is_last)?;
        let [batch, beams] = [0, 1].map(|axis| logits.dim(axis));
        let flat = [batch.clone(), &beams * scores.dim(2)];
        let totals = (scores + column(self.running_scores)).reshape(flat.clone());
        let of_tokens = scores;
        let [scores, places] = totals.top_k(&beams * factor(constraints.settings));
        let token = tokens.reshape(flat.clone()).gather_elements(places);
        let (parent, stops) = (places / constraints.fixed.width, constraints.stops(token, is_last));
        let token_scores = self.per_token.map(|_| of_tokens.reshape(flat).gather_elements(places));
        Ok(Continuations { scores, parent, token, stops, token_scores })
    }

    /// The best of the finished hypotheses and those that just end, if the sentence is still open.
    fn finish(
        self,
        found: Continuations<'i>,
        scored: Scored<'i>,
        constraints: &Constraints<'_, 'i>,
    ) -> Finished<'i> {
        let (builder, fixed) = (found.scores.builder(), &constraints.fixed);
        let (one, cur) = (builder.integer(1), constraints.cur);
        let just = and(found.stops, fixed.may_finish);
        let new_scores = and(just, self.open)
            .select(constraints.of_length(found.scores, cur), builder.scalar(NEVER));
        let [scores, ranked] = concat(1, &[self.scores, new_scores]).top_k(self.scores.dim(1));
        let is_old = ranked.less_or_equal(fixed.last_beam);
        let (old, new) =
            (smaller(ranked, fixed.last_beam), larger(ranked - fixed.beams, builder.integer(0)));
        let parent = found.parent.gather_elements(new);
        let source = is_old.select(old, parent + fixed.beams);
        let of_sources = |finished, running| {
            moved(concat(1, &[finished, running]), source, fixed.first_row + fixed.first_row)
        };
        let is_new_here = and(not(column(is_old)), fixed.places.equal(cur));
        let written = column(found.token.gather_elements(new));
        let sequences = is_new_here.select(written, of_sources(self.sequences, self.running));
        let lengths = is_old.select(self.lengths.gather_elements(old), cur + one);
        let finished = is_old
            .select(self.finished.gather_elements(old), just.cast(DType::I64).gather_elements(new));
        let last = found.token_scores.zip(scored.attention).map(|(scores, attention)| {
            [column(scores.gather_elements(new)), moved(attention, parent, fixed.first_row)]
        });
        let per_token = self.per_token.zip(last).map(|(before, last)| {
            std::array::from_fn(|index| {
                put(
                    is_new_here,
                    last[index],
                    of_sources(before[index].finished, before[index].running),
                )
            })
        });
        Finished { sequences, scores, lengths, finished, per_token }
    }
}

impl<'i> Constraints<'_, 'i> {
    /// Scores of hypotheses of `length: i64 []` new tokens.
    pub(super) fn of_length(&self, scores: Tensor<'i>, length: Tensor<'i>) -> Tensor<'i> {
        scores / self.fixed.divisors.gather(length)
    }
}
