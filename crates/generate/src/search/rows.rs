//! Independent rows: greedy search, as in `independent.rs`, and samples.

use super::body::when;
use super::scores::Constraints;
use super::state::{PerToken, Scored, State, put};
use super::{and, column, larger, not};
use crate::Result;
use cognate_graph::DType;

impl<'i> State<'i> {
    /// The next state in which each row continues itself; or this state.
    pub(super) fn continue_rows(
        self,
        scored: Scored<'i>,
        constraints: &Constraints<'_, 'i>,
    ) -> Result<Self> {
        let per_token = self.per_token.into_iter().flatten().map(|values| values.running);
        let carried = [
            self.scores,
            self.lengths,
            self.finished,
            self.running,
            self.running_scores,
            self.tokens,
            self.open,
        ];
        let carried: Vec<_> = carried.into_iter().chain(per_token).collect();
        let next =
            when("rows", constraints.fixed.is_independent, &carried, |captured, carried| {
                let [scores, lengths, finished, running, running_scores] =
                    std::array::from_fn(|index| carried[index]);
                let constraints = constraints.read(captured, running);
                let Scored { logits, is_last, attention } = scored.read(captured);
                let (builder, fixed) = (logits.builder(), &constraints.fixed);
                let [gain, tokens] =
                    constraints.draw(logits, is_last, constraints.largest(logits, is_last)?)?;
                let (one, cur) = (builder.integer(1), constraints.cur);
                let is_running = finished.equal(builder.integer(0));
                let stops = constraints.stops(tokens, is_last);
                let is_new = and(stops, is_running);
                let written =
                    is_running.select(tokens, builder.integer(constraints.settings.pad_token));
                let is_here = fixed.places.equal(cur);
                let running = is_here.select(column(written), running);
                let running_scores = running_scores + gain;
                let scores = is_new.select(constraints.of_length(running_scores, cur), scores);
                let lengths = is_new.select(cur + one, lengths);
                let finished = larger(finished, stops.cast(DType::I64));
                let open = not(finished.sum(&[1]).equal(fixed.beams));
                let new = [Some(column(is_running.select(gain, builder.scalar(0.0)))), attention];
                let per_token = carried[7..]
                    .iter()
                    .zip(new.into_iter().flatten())
                    .map(|(before, new)| put(is_here, new, *before));
                Ok([scores, lengths, finished, running, running_scores, tokens, open]
                    .into_iter()
                    .chain(per_token)
                    .collect())
            })?;
        let [scores, lengths, finished, running, running_scores, tokens, open] =
            std::array::from_fn(|index| next[index]);
        let per_token = self.per_token.map(|before| {
            std::array::from_fn(|index| PerToken { running: next[7 + index], ..before[index] })
        });
        Ok(Self {
            scores,
            lengths,
            finished,
            running,
            running_scores,
            tokens,
            open,
            per_token,
            ..self
        })
    }
}
