//! Beam search in the operations of the language, as in `beam.rs`.
//!
//! `K` beams, `F = 1 + ends` (at least 2) continuations of each, of which `K` run on and as many finish.

use super::body::Captured;
use super::sampling::{PRIME, Sampling, hash};
use super::scores::Constraints;
use super::{Inputs, PAST, and, count, larger, less, not, or, smaller};
use crate::{Result, Settings};
use cognate_graph::{Binary, Builder, DType, Dim, Graph, Repeat, Shape, Tensor, Type, concat};
use cognate_model::interface::{INPUT_IDS, LOGITS, is_past, present_of};
use std::collections::HashMap;

/// The score of impossible hypotheses, as in transformers.
const NEVER: f32 = -1e9;

pub(super) struct Search<'s, 'g> {
    pub(super) settings: &'s Settings,
    pub(super) inputs: Inputs<'g>,
    /// The largest number of iterations.
    pub(super) most: usize,
    pub(super) step: &'s Graph,
    /// The source's tokens and mask.
    pub(super) source: [Tensor<'g>; 2],
    /// The decoder's inputs from the encoder.
    pub(super) given: HashMap<&'s str, Tensor<'g>>,
}

/// What a search found, `[batch, returned, generated]` and `[batch, returned]`.
pub(super) struct Found<'g> {
    pub(super) sequences: Tensor<'g>,
    pub(super) scores: Tensor<'g>,
}

/// What every iteration reads: computed once.
pub(super) struct Fixed<'g> {
    /// The number of beams, `K`; i64 `[]`.
    pub(super) beams: Tensor<'g>,
    /// The continuations of each beam, i64 `[]`, and their ranks `[width]`.
    width: Tensor<'g>,
    pub(super) ranks: Tensor<'g>,
    /// The first row of each sentence among `batch · beams`; i64 `[batch, 1]`.
    first_row: Tensor<'g>,
    /// The places of a sequence; i64 `[1, 1, length]`.
    pub(super) places: Tensor<'g>,
    pub(super) max_length: Tensor<'g>,
    pub(super) min_length: Tensor<'g>,
    length_penalty: Tensor<'g>,
    early_stopping: Tensor<'g>,
    pub(super) forced_bos_token: Tensor<'g>,
    pub(super) repetition_penalty: Tensor<'g>,
    pub(super) no_repeat_ngram_size: Tensor<'g>,
    /// The source's tokens and mask, if constraints read them.
    pub(super) source: Option<[Tensor<'g>; 2]>,
    pub(super) sampling: Sampling<'g>,
}

/// The values that the loop carries.
const NAMES: [&str; 9] = ["sequences", "scores", "lengths", "finished", "running", "running_scores", "tokens", "parents", "improvable"];

impl<'g> Search<'_, 'g> {
    pub(super) fn run(self, builder: &'g Builder) -> Result<Found<'g>> {
        let [batch, beams, length] = ["batch", "beams", "length"].map(Dim::from);
        let settings = self.settings;
        let _scope = builder.root().at("search").enter();
        let k = self.inputs.num_beams;
        let beam_ids = k.indices("beams");
        let places = self.inputs.max_length.indices("length").reshape([1.into(), 1.into(), length.clone()]);
        let number = |value: i64| builder.integer(value);
        let vocab = self.step.output(LOGITS).and_then(|logits| logits.ty.shape.dims().last()?.as_constant()).unwrap_or(1);
        let inputs = &self.inputs;
        let fewest = number(factor(settings) as i64);
        let width = inputs.is_sampling.select(fewest, smaller(k * fewest, number(vocab)));
        let first_row = builder.range(0, &batch).reshape([batch.clone(), 1.into()]) * k;
        let kept = smaller(less(number(0), inputs.top_k).select(inputs.top_k, number(vocab)), number(vocab));
        let sampling = Sampling {
            is_on: inputs.is_sampling,
            temperature: inputs.temperature,
            top_p: inputs.top_p,
            keys: hash(hash(inputs.seed % number(PRIME), number(1)), first_row + beam_ids.reshape([1.into(), beams.clone()]) + number(1)),
            ranks: kept.indices("kept"),
        };
        let fixed = Fixed {
            beams: k,
            width,
            ranks: width.indices("width"),
            first_row,
            places,
            max_length: self.inputs.max_length,
            min_length: self.inputs.min_length,
            length_penalty: self.inputs.length_penalty,
            early_stopping: self.inputs.early_stopping,
            forced_bos_token: self.inputs.forced_bos_token,
            repetition_penalty: self.inputs.repetition_penalty,
            no_repeat_ngram_size: self.inputs.no_repeat_ngram_size,
            source: reads_source(settings).then_some(self.source),
            sampling,
        };
        let integers = |value: i64, shape: &[&Dim]| builder.integer(value).expand(shape.iter().copied().collect::<Shape>());
        let each = [&batch, &beams];
        let whole = [&batch, &beams, &length];
        let first = beam_ids.equal(builder.integer(0)).reshape([1.into(), beams.clone()]);
        let start = places.equal(builder.integer(0));
        let mut carried = vec![
            integers(settings.pad_token, &whole),
            builder.scalar(NEVER).expand([&batch, &beams]),
            integers(0, &each),
            integers(0, &each),
            start.select(builder.integer(settings.start_token), integers(settings.pad_token, &whole)),
            or(first, inputs.is_sampling).select(builder.scalar(0.0), builder.scalar(NEVER)).expand([&batch, &beams]),
            integers(settings.start_token, &each),
            beam_ids.reshape([1.into(), beams.clone()]).expand([&batch, &beams]),
            integers(1, &[&batch, &1.into()]).cast(DType::Bool),
        ];
        let pasts: Vec<_> = self.step.inputs().map(|(_, node)| node).filter(|node| is_past(&node.name)).collect();
        for node in &pasts {
            let Type { dtype, shape } = &node.ty;
            let dims: Vec<Dim> = shape.dims().iter().map(|dim| if *dim == Dim::from(PAST) { 0.into() } else { dim.clone() }).collect();
            carried.push(builder.scalar(0.0).cast(*dtype).expand(dims));
        }
        let inner = Builder::new("search");
        let iteration = inner.input("loop.iteration", DType::I64, Shape::default());
        let inside = |(index, value): (usize, &Tensor<'g>)| {
            let name = NAMES.get(index).map_or_else(|| pasts[index - NAMES.len()].name.clone(), ToString::to_string);
            let shape = index.checked_sub(NAMES.len()).map_or_else(|| value.ty().shape, |past| pasts[past].ty.shape.clone());
            inner.input(&format!("loop.{name}"), value.ty().dtype, shape)
        };
        let values: Vec<_> = carried.iter().enumerate().map(inside).collect();
        let mut captured = Captured::new(&inner, "loop");
        let fixed = fixed.read(&mut captured);
        let mut state = State::of(&values);
        state.cur = iteration + inner.integer(1);
        let mut given: HashMap<String, Tensor<'_>> = pasts
            .iter()
            .zip(&values[NAMES.len()..])
            .map(|(node, past)| (node.name.clone(), moved(*past, state.parents, fixed.first_row)))
            .collect();
        given.insert(INPUT_IDS.into(), state.tokens.reshape([batch.clone(), beams.clone(), 1.into()]));
        let outputs = captured.inline(self.step, builder, &given, &self.given)?;
        let output = |name: &str| outputs.get(name).copied().ok_or_else(|| crate::decoder::missing("decoder", name));
        let logits = output(LOGITS)?;
        let presents = pasts.iter().map(|node| output(&present_of(&node.name).unwrap_or_default())).collect::<Result<Vec<_>>>()?;
        let _inside = inner.root().at("search").enter();
        let constraints = Constraints { settings, iteration, running: state.running, fixed: &fixed, most: self.most };
        let next = state.advance(logits, &constraints)?;
        inner.output("loop.next.condition", next.0);
        let names = NAMES.iter().map(ToString::to_string).chain(pasts.iter().map(|node| node.name.clone()));
        for (name, value) in names.zip(next.1.into_iter().chain(presents)) {
            inner.output(&format!("loop.next.{name}"), value);
        }
        drop(_inside);
        let outside = captured.outside;
        drop((outputs, given));
        let body = inner.finish()?;
        let condition = builder.integer(1).cast(DType::Bool);
        let last = builder.repeat(Repeat { body, most: self.most, condition, carried: &carried, captured: &outside });
        let [sequences, scores, lengths] = [0, 1, 2].map(|index| last.get(index).copied().unwrap_or(k));
        self.inputs.num_return_sequences.indices("returned");
        let returned = |value: Tensor<'g>| value.slice(1, 0, "returned");
        let [longest, _] = returned(lengths).reshape([&batch * "returned"]).top_k(1);
        larger(longest.reshape(Shape::default()), builder.integer(1)).indices("generated");
        Ok(Found { sequences: returned(sequences).slice(2, 0, "generated"), scores: returned(scores) })
    }
}

/// Whether constraints depend on the source's tokens.
pub(super) fn reads_source(settings: &Settings) -> bool {
    settings.encoder_repetition_penalty != 1.0 || settings.encoder_no_repeat_ngram_size > 0
}

/// How many continuations of a sentence are looked at for each of its beams.
pub(super) fn factor(settings: &Settings) -> usize {
    (1 + settings.eos_tokens.len()).max(2)
}

/// Rows of sentences: `values: [batch, n, ...]`, `rows: i64 [batch, m]` among `batch · n` -> `[batch, m, ...]`.
fn rows<'i>(values: Tensor<'i>, rows: Tensor<'i>) -> Tensor<'i> {
    let shape = values.ty().shape;
    let [batch, n, rest @ ..] = shape.dims() else { return values };
    values.reshape([&(batch * n)].into_iter().chain(rest).collect::<Shape>()).gather(rows)
}

/// The values of each beam's parent.
fn moved<'i>(values: Tensor<'i>, parents: Tensor<'i>, first_row: Tensor<'i>) -> Tensor<'i> {
    rows(values, parents + first_row)
}

impl<'o> Fixed<'o> {
    pub(super) fn read<'i>(&self, captured: &mut Captured<'o, 'i>) -> Fixed<'i> {
        Fixed {
            beams: captured.read(self.beams),
            width: captured.read(self.width),
            ranks: captured.read(self.ranks),
            first_row: captured.read(self.first_row),
            places: captured.read(self.places),
            max_length: captured.read(self.max_length),
            min_length: captured.read(self.min_length),
            length_penalty: captured.read(self.length_penalty),
            early_stopping: captured.read(self.early_stopping),
            forced_bos_token: captured.read(self.forced_bos_token),
            repetition_penalty: captured.read(self.repetition_penalty),
            no_repeat_ngram_size: captured.read(self.no_repeat_ngram_size),
            source: self.source.map(|source| source.map(|value| captured.read(value))),
            sampling: self.sampling.read(captured),
        }
    }
}

/// The state before a step.
pub(super) struct State<'i> {
    /// Finished hypotheses, best first: tokens `[batch, beams, length]`, scores, numbers of tokens, and whether (0 or 1).
    sequences: Tensor<'i>,
    scores: Tensor<'i>,
    lengths: Tensor<'i>,
    finished: Tensor<'i>,
    /// Running hypotheses, best first, with their last tokens and the beam that each continues.
    pub(super) running: Tensor<'i>,
    running_scores: Tensor<'i>,
    tokens: Tensor<'i>,
    parents: Tensor<'i>,
    /// Whether a sentence's finished hypotheses can still be beaten; bool `[batch, 1]`.
    improvable: Tensor<'i>,
    /// The number of tokens of running hypotheses; i64 `[]`.
    cur: Tensor<'i>,
}

impl<'i> State<'i> {
    fn of(values: &[Tensor<'i>]) -> Self {
        let [sequences, scores, lengths, finished, running, running_scores, tokens, parents, improvable] =
            std::array::from_fn(|index| values[index]);
        Self { sequences, scores, lengths, finished, running, running_scores, tokens, parents, improvable, cur: tokens }
    }

    /// Whether the search goes on, and the next state in the order of [`NAMES`].
    fn advance(&self, logits: Tensor<'i>, constraints: &Constraints<'_, 'i>) -> Result<(Tensor<'i>, [Tensor<'i>; 9])> {
        let builder = logits.builder();
        let fixed = constraints.fixed;
        let [batch, beams] = ["batch", "beams"].map(Dim::from);
        let count_of = &beams * factor(constraints.settings);
        let vocab = logits.dim(3);
        let is_last = fixed.max_length.less_or_equal(self.cur + builder.integer(1));
        let logits = logits.cast(DType::F32).reshape([&batch, &beams, &vocab]);
        let [scores, tokens] = constraints.best(logits, is_last)?;
        let flat = [batch.clone(), &beams * "width"];
        let totals = (scores + self.running_scores.reshape([&batch, &beams, &1.into()])).reshape(flat.clone());
        let [scores, places] = totals.top_k(&count_of);
        let parent = places / fixed.width;
        let token = tokens.reshape(flat).gather_elements(places);
        let ends = constraints.settings.eos_tokens.iter().map(|&end| token.equal(builder.integer(end))).reduce(or);
        let stops = or(ends.unwrap_or_else(|| token.equal(builder.integer(-1))), is_last);

        let [running_scores, chosen] = stops.select(scores + NEVER, scores).top_k(&beams);
        let (run_parent, run_token) = (parent.gather_elements(chosen), token.gather_elements(chosen));
        let is_here = fixed.places.equal(self.cur);
        let column = |tokens: Tensor<'i>| tokens.reshape([&batch, &beams, &1.into()]);
        let running = is_here.select(column(run_token), moved(self.running, run_parent, fixed.first_row));

        let one = builder.integer(1);
        let last_beam = fixed.beams - one;
        let n_new = self.cur.cast(DType::F32);
        let is_first = builder.range(0, &count_of).less_or_equal(last_beam).reshape([1.into(), count_of.clone()]);
        let just = and(stops, is_first);
        let are_full = |finished: Tensor<'i>| finished.sum(&[1]).equal(fixed.beams);
        let is_early = fixed.early_stopping.equal(one);
        let may = and(self.improvable, not(and(are_full(self.finished), is_early)));
        let of_length = |score: Tensor<'i>, length: Tensor<'i>| score / length.with(Binary::Pow, fixed.length_penalty);
        let new_scores = and(just, may).select(of_length(scores, n_new), builder.scalar(NEVER));
        let [scores, ranked] = concat(1, &[self.scores, new_scores]).top_k(&beams);
        let is_old = ranked.less_or_equal(last_beam);
        let (old, new) = (smaller(ranked, last_beam), larger(ranked - fixed.beams, builder.integer(0)));
        let source = is_old.select(old, parent.gather_elements(new) + fixed.beams);
        let both = concat(1, &[self.sequences, self.running]);
        let is_new_here = and(not(column(is_old)), is_here);
        let sequences = is_new_here.select(column(token.gather_elements(new)), moved(both, source, fixed.first_row + fixed.first_row));
        let lengths = is_old.select(self.lengths.gather_elements(old), self.cur + one);
        let finished = is_old.select(self.finished.gather_elements(old), just.cast(DType::I64).gather_elements(new));

        let full = are_full(finished);
        let is_never = and(fixed.early_stopping.equal(builder.integer(2)), less(builder.scalar(0.0), fixed.length_penalty));
        let best_length = is_never.select(fixed.max_length - one, self.cur).cast(DType::F32);
        let possible = of_length(running_scores.slice(1, 0, 1), best_length);
        let worst = full.select(scores.slice(1, &beams - 1, &beams), builder.scalar(NEVER));
        let improvable = and(self.improvable, less(worst, possible));
        let any = |values: Tensor<'i>| one.less_or_equal(count(values));
        let is_open = or(not(is_early), any(not(full)));
        let goes_on = and(and(any(improvable), is_open), any(not(stops)));
        let searched = [sequences, scores, lengths, finished, running, running_scores, run_token, run_parent];
        let (is_on, drawn) = (fixed.sampling.is_on, constraints.draw(logits, is_last)?);
        let (goes_on_drawing, drawn) = self.drawn(drawn, is_last, constraints);
        let mut next = drawn.into_iter().zip(searched).map(|(drawn, searched)| is_on.select(drawn, searched));
        let next = std::array::from_fn(|index| if index == 8 { or(is_on, improvable) } else { next.next().unwrap_or(one) });
        Ok((or(and(is_on, goes_on_drawing), and(not(is_on), goes_on)), next))
    }

    /// The next state of samples, each of which continues itself: whether one is left, and the values but the last.
    fn drawn(
        &self,
        [token, gain]: [Tensor<'i>; 2],
        is_last: Tensor<'i>,
        constraints: &Constraints<'_, 'i>,
    ) -> (Tensor<'i>, [Tensor<'i>; 8]) {
        let (builder, fixed) = (token.builder(), constraints.fixed);
        let one = builder.integer(1);
        let column = |values: Tensor<'i>| values.reshape([values.dim(0), values.dim(1), 1.into()]);
        let ends = constraints.settings.eos_tokens.iter().map(|&end| token.equal(builder.integer(end))).reduce(or);
        let stops = or(ends.unwrap_or_else(|| token.equal(builder.integer(-1))), is_last);
        let is_new = and(stops, less(self.finished, one));
        let running = fixed.places.equal(self.cur).select(column(token), self.running);
        let running_scores = self.running_scores + gain;
        let n_new = self.cur.cast(DType::F32);
        let finished = larger(self.finished, stops.cast(DType::I64));
        let sequences = column(is_new).select(running, self.sequences);
        let scores = is_new.select(running_scores / n_new.with(Binary::Pow, fixed.length_penalty), self.scores);
        let lengths = is_new.select(self.cur + one, self.lengths);
        let goes_on = one.less_or_equal(count(less(finished, one)));
        (goes_on, [sequences, scores, lengths, finished, running, running_scores, token, self.parents])
    }
}
