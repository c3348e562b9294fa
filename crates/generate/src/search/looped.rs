//! The loop around the decoder's step.

use super::beams::{NEVER, factor};
use super::body::Captured;
use super::sampling::{PRIME, hash};
use super::scores::{Constraints, forbidden_rows, reads_source};
use super::sizes::{FixedSizes, KEY_POSITIONS, QUERY_POSITION};
use super::state::{Fixed, NAMES, PerToken, Sampling, Scored, State};
use super::{Inputs, PAST, and, column, count, larger, less, not, or, smaller};
use crate::{Result, Settings};
use cognate_graph::{
    Binary, Builder, DType, Dim, Graph, Node, Repeat, Shape, Tensor, Type, concat,
};
use cognate_model::Names;
use cognate_model::interface::{INPUT_IDS, LOGITS, is_past, present_of};
use std::collections::HashMap;

pub(super) struct Search<'s, 'g> {
    pub(super) settings: &'s Settings,
    pub(super) inputs: Inputs<'g>,
    /// Maximum number of iterations.
    pub(super) most: usize,
    pub(super) sizes: Option<FixedSizes>,
    pub(super) step: &'s Graph,
    /// The numbers of sentences and of positions of a source.
    pub(super) batch: Dim,
    pub(super) src: Dim,
    /// The source's tokens and mask, if it has tokens.
    pub(super) tokens: Option<[Tensor<'g>; 2]>,
    /// The decoder's inputs from the encoder.
    pub(super) given: HashMap<&'s str, Tensor<'g>>,
}

/// The result of a search, `[batch, returned, generated]` and `[batch, returned]`.
pub(super) struct Found<'g> {
    pub(super) sequences: Tensor<'g>,
    pub(super) scores: Tensor<'g>,
    /// Log-probabilities of tokens and their cross-attentions, if the step outputs these.
    pub(super) per_token: Option<[Tensor<'g>; 2]>,
}

/// A value that the loop carries.
pub(super) struct Carried<'g> {
    pub(super) name: String,
    pub(super) first: Tensor<'g>,
    /// Its type inside: a cache grows.
    pub(super) inside: Type,
}

/// The number of sentences, outside of phases and in one.
pub(super) const BATCH: &str = "batch";
pub(super) const LIVE: &str = "live";

/// The number of values that the loop carries before those of [`State`]: the number of steps, and
/// whether a continuation does not end.
const N_BEFORE: usize = 2;

/// The best hypotheses of each sentence, `[batch, beams, ...]`.
pub(super) struct Results<'g> {
    pub(super) sequences: Tensor<'g>,
    pub(super) scores: Tensor<'g>,
    pub(super) lengths: Tensor<'g>,
    pub(super) per_token: Option<[Tensor<'g>; 2]>,
}

impl<'g> Results<'g> {
    pub(super) fn values(self) -> Vec<Tensor<'g>> {
        let Self { sequences, scores, lengths, per_token } = self;
        [sequences, scores, lengths].into_iter().chain(per_token.into_iter().flatten()).collect()
    }

    /// From [`Results::values`].
    pub(super) fn of(values: &[Tensor<'g>]) -> Self {
        let per_token = (values.len() > 3).then(|| [values[3], values[4]]);
        Self { sequences: values[0], scores: values[1], lengths: values[2], per_token }
    }
}

/// The loop of steps.
pub(super) struct Steps<'g> {
    pub(super) body: Graph,
    /// Maximum number of iterations.
    pub(super) most: usize,
    /// The values that the body reads of the graph around all loops.
    pub(super) outside: Vec<Tensor<'g>>,
}

impl Steps<'_> {
    /// The values after the loop.
    pub(super) fn run<'p>(
        &self,
        builder: &'p Builder,
        carried: &[Tensor<'p>],
        captured: &[Tensor<'p>],
    ) -> Vec<Tensor<'p>> {
        let condition = builder.integer(1).cast(DType::Bool);
        let (body, most) = (self.body.clone(), self.most);
        builder.repeat(Repeat { body, most, condition, carried, captured })
    }
}

impl<'g> Search<'_, 'g> {
    pub(super) fn run(self, builder: &'g Builder) -> Result<Found<'g>> {
        let _scope = builder.root().at("search").enter();
        let fixed = self.fixed(builder);
        let carried = self.first(builder);
        let inner = Builder::new("search");
        let outside = self.fill(&inner, &fixed, &carried)?;
        let steps = Steps { body: inner.finish()?, most: self.most, outside };
        let results = match self.sizes {
            Some(_) => {
                let first: Vec<_> = carried.iter().map(|value| value.first).collect();
                let last = steps.run(builder, &first, &steps.outside);
                self.results(fixed.is_independent, &last)
            }
            None => self.phases(builder, &fixed, &carried, &steps)?,
        };
        Ok(self.found(&fixed, results))
    }

    /// The results so far, from the carried values.
    pub(super) fn results<'p>(
        &self,
        is_independent: Tensor<'p>,
        carried: &[Tensor<'p>],
    ) -> Results<'p> {
        let state = State::of(&carried[N_BEFORE..], self.sizes_of_attention().is_some());
        let of_tokens =
            |PerToken { finished, running }: PerToken<'p>| is_independent.select(running, finished);
        Results {
            sequences: is_independent.select(state.running, state.sequences),
            scores: state.scores,
            lengths: state.lengths,
            per_token: state.per_token.map(|values| values.map(of_tokens)),
        }
    }

    /// Whether a sentence is open and a continuation does not end, and which sentences are open,
    /// from the carried values: bool `[]` and `[batch, 1]`.
    pub(super) fn goes_on<'p>(&self, carried: &[Tensor<'p>]) -> (Tensor<'p>, Tensor<'p>) {
        let state = State::of(&carried[N_BEFORE..], self.sizes_of_attention().is_some());
        let one = state.open.builder().integer(1);
        (and(carried[N_BEFORE - 1], one.less_or_equal(count(state.open))), state.open)
    }

    /// The values that every iteration reads.
    fn fixed(&self, builder: &'g Builder) -> Fixed<'g> {
        let (inputs, settings) = (&self.inputs, self.settings);
        let number = |value: i64| builder.integer(value);
        let beams = inputs.num_beams;
        let vocab = self
            .step
            .output(LOGITS)
            .and_then(|logits| logits.ty.shape.dims().last()?.as_constant())
            .unwrap_or(1);
        let fewest = factor(settings) as i64;
        let (width, ranks, kept) = match (self.sizes, inputs.beam_ids.dim(0).as_constant()) {
            (Some(_), Some(beams)) => {
                let width = (beams * fewest).min(vocab);
                (number(width), builder.range(0, width), builder.range(0, vocab))
            }
            _ => {
                // Samples need no continuations of beams.
                let width = inputs
                    .is_sampling
                    .select(number(fewest), smaller(beams * number(fewest), number(vocab)));
                let kept = smaller(
                    less(number(0), inputs.top_k).select(inputs.top_k, number(vocab)),
                    number(vocab),
                );
                (width, width.indices("width"), kept.indices("kept"))
            }
        };
        let batch = &self.batch;
        let first_row = builder.range(0, batch).reshape([batch, &1.into()]) * beams;
        let prefix = inputs.prefix.map(|ids| {
            let padding = number(settings.pad_token).expand([ids.dim(0), 1.into()]);
            let n = builder.range(ids.dim(1), ids.dim(1) + 1).reshape(Shape::default());
            (concat(1, &[ids, padding]), n)
        });
        let forced_step = match prefix {
            Some((_, n)) => n - number(1),
            None => number(0).less_or_equal(inputs.forced_bos_token).cast(DType::I64) - number(1),
        };
        // A prefix does not count.
        let lengths = prefix.map_or(inputs.places, |(_, n)| larger(inputs.places - n, number(1)));
        // The first token that is chosen follows a forced one.
        let is_first = inputs.places.equal(forced_step + number(1)).cast(DType::I64);
        let is_short = less(inputs.places + number(1), inputs.min_length).cast(DType::I64);
        let forbidden_of_step = is_short + is_first * number(2);
        let n_found = inputs.beam_ids.dim(0) * fewest;
        let is_penalised = match reads_source(settings) {
            true => number(1).cast(DType::Bool),
            false => or(
                not(inputs.repetition_penalty.equal(builder.scalar(1.0))),
                less(number(0), inputs.no_repeat_ngram_size),
            ),
        };
        let rows = first_row + inputs.beam_ids.reshape([1.into(), inputs.beam_ids.dim(0)]);
        Fixed {
            beams,
            last_beam: beams - number(1),
            is_independent: or(inputs.is_sampling, beams.equal(number(1))),
            width,
            is_best: ranks.equal(number(0)),
            may_finish: less(builder.range(0, &n_found), beams).reshape([Dim::from(1), n_found]),
            first_row,
            places: inputs.places.reshape([1.into(), 1.into(), inputs.places.dim(0)]),
            last_length: inputs.max_length - number(1),
            last_step: inputs.max_length - number(2),
            forced_step,
            divisors: lengths.cast(DType::F32).with(Binary::Pow, inputs.length_penalty),
            first_score: column(rows) * number(vocab),
            is_early: inputs.early_stopping.equal(number(1)),
            is_never: and(
                inputs.early_stopping.equal(number(2)),
                less(builder.scalar(0.0), inputs.length_penalty),
            ),
            forced_bos_token: inputs.forced_bos_token,
            prefix: prefix.map(|(ids, _)| ids),
            repetition_penalty: inputs.repetition_penalty,
            no_repeat_ngram_size: inputs.no_repeat_ngram_size,
            is_penalised,
            forbidden: forbidden_rows(builder, settings, vocab as usize)
                .map(|rows| [rows, forbidden_of_step]),
            source: self.tokens.filter(|_| reads_source(settings)),
            sampling: Sampling {
                is_on: inputs.is_sampling,
                temperature: inputs.temperature,
                top_k: inputs.top_k,
                top_p: inputs.top_p,
                keys: hash(hash(inputs.seed % number(PRIME), number(1)), rows + number(1)),
                ranks: kept,
            },
        }
    }

    /// The values before the first step.
    fn first(&self, builder: &'g Builder) -> Vec<Carried<'g>> {
        let Settings { start_token, pad_token, .. } = *self.settings;
        let Inputs { beam_ids, places, .. } = self.inputs;
        let [batch, beams, length] = [self.batch.clone(), beam_ids.dim(0), places.dim(0)];
        let [beam_ids, places] = [
            beam_ids.reshape([1.into(), beams.clone()]),
            places.reshape([1.into(), 1.into(), length.clone()]),
        ];
        let integers = |value: i64, shape: &[&Dim]| {
            builder.integer(value).expand(shape.iter().copied().collect::<Shape>())
        };
        let (each, whole) = ([&batch, &beams], [&batch, &beams, &length]);
        let zero = builder.integer(0);
        let running_scores = or(beam_ids.equal(zero), self.inputs.is_sampling)
            .select(builder.scalar(0.0), builder.scalar(NEVER));
        let per_token = self.sizes_of_attention().map(|sizes| {
            let zeros = |sizes: Vec<Dim>| {
                builder
                    .scalar(0.0)
                    .expand(whole.iter().copied().cloned().chain(sizes).collect::<Shape>())
            };
            [vec![], sizes].map(zeros).map(|zeros| PerToken { finished: zeros, running: zeros })
        });
        let state = State {
            sequences: integers(pad_token, &whole),
            scores: builder.scalar(NEVER).expand(each),
            lengths: integers(0, &each),
            finished: integers(0, &each),
            running: places
                .equal(zero)
                .select(builder.integer(start_token), integers(pad_token, &whole)),
            running_scores: running_scores.expand(each),
            tokens: integers(start_token, &each),
            open: integers(1, &[&batch, &1.into()]).cast(DType::Bool),
            per_token,
        };
        let values = NAMES.iter().zip(state.values());
        let values =
            values.map(|(name, first)| Carried { name: (*name).into(), first, inside: first.ty() });
        let cache = |(_, node): (_, &Node)| {
            let Type { dtype, shape } = node.ty.clone();
            let dims = shape
                .dims()
                .iter()
                .map(|dim| if *dim == Dim::from(PAST) { 0.into() } else { dim.clone() });
            let first = builder.scalar(0.0).cast(dtype).expand(dims.collect::<Vec<Dim>>());
            Carried { name: node.name.clone(), first, inside: node.ty.clone() }
        };
        let before = [("step", zero), ("goes_on", builder.integer(1).cast(DType::Bool))];
        let before =
            before.map(|(name, first)| Carried { name: name.into(), first, inside: first.ty() });
        before
            .into_iter()
            .chain(values)
            .chain(self.step.inputs().filter(|(_, node)| is_past(&node.name)).map(cache))
            .collect()
    }

    /// Builds the body of the loop. Returns the values that it reads of the graph around it.
    fn fill<'i>(
        &self,
        inner: &'i Builder,
        fixed: &Fixed<'g>,
        carried: &[Carried<'g>],
    ) -> Result<Vec<Tensor<'g>>> {
        inner.input("loop.iteration", DType::I64, Shape::default());
        let renamed = self.sizes.is_none().then_some([BATCH, LIVE]);
        let mut captured = Captured::new(inner, "loop").renaming(renamed);
        let values: Vec<_> = carried
            .iter()
            .map(|Carried { name, inside, .. }| captured.declare(&format!("loop.{name}"), inside))
            .collect();
        let fixed = fixed.read(&mut captured);
        let attention_sizes = self.sizes_of_attention();
        let (iteration, continues) = (values[0], values[1]);
        let state = State::of(&values[N_BEFORE..], attention_sizes.is_some());
        let n_values = N_BEFORE + state.values().len();
        let caches = || carried.iter().zip(&values).skip(n_values);
        let mut given: HashMap<String, Tensor<'i>> =
            caches().map(|(cache, past)| (cache.name.clone(), *past)).collect();
        given.insert(INPUT_IDS.into(), column(state.tokens));
        given.extend(self.positions(iteration));
        let outputs =
            captured.inline(self.step, self.inputs.num_beams.builder(), &given, &self.given)?;
        let output = |name: &str| {
            outputs.get(name).copied().ok_or_else(|| crate::decoder::missing("decoder", name))
        };
        let logits = output(LOGITS)?;

        let _scope = inner.root().at("search").enter();
        let logits = logits.cast(DType::F32).reshape([logits.dim(0), logits.dim(1), logits.dim(3)]);
        let is_last = iteration.equal(fixed.last_step);
        let (settings, cur) = (self.settings, iteration + inner.integer(1));
        let constraints = Constraints {
            settings,
            iteration,
            cur,
            running: state.running,
            fixed,
            most: self.most,
        };
        let attention = attention_sizes.map(|sizes| {
            let of_layer = |(_, value): (String, Tensor<'i>)| {
                let [batch, beams, heads, src] = [0, 1, 2, 4].map(|axis| value.dim(axis));
                value.cast(DType::F32).reshape([batch, beams, 1.into(), 1.into(), heads, src])
            };
            let layers = (0..sizes[0].as_constant().unwrap_or(0))
                .map(|index| Names::cross_attentions(index as usize));
            let layers =
                layers.filter_map(|name| Some((name.clone(), *outputs.get(name.as_str())?)));
            concat(3, &layers.map(of_layer).collect::<Vec<_>>())
        });
        let scored = Scored { logits, is_last, attention };
        let presents = caches().map(|(cache, past)| {
            let present = output(&present_of(&cache.name).unwrap_or_default())?;
            Ok::<_, crate::Error>(self.kept(present, *past, iteration))
        });
        let presents = presents.collect::<Result<Vec<_>, _>>()?;
        let state = state.continue_rows(scored, &constraints)?;
        let (goes_on, state, presents) =
            state.continue_beams(scored, continues, presents, &constraints)?;
        inner.output("loop.next.condition", and(goes_on, self.phase_goes_on(state.open)));
        let values = [cur, goes_on].into_iter().chain(state.values()).chain(presents);
        for (value, next) in carried.iter().zip(values) {
            inner.output(&format!("loop.next.{}", value.name), next);
        }
        Ok(captured.outside)
    }

    /// Whether enough sentences are open for another step of the same phase: more than seven of
    /// eight, or one if there are no phases.
    fn phase_goes_on<'i>(&self, open: Tensor<'i>) -> Tensor<'i> {
        let builder = open.builder();
        let closed = if self.sizes.is_some() { 0 } else { -7 };
        let votes = open.select(builder.integer(1), builder.integer(closed));
        builder.integer(1).less_or_equal(votes.sum(&[0, 1]).reshape(Shape::default()))
    }

    /// Layers, heads and source of cross-attentions, if the step outputs them.
    fn sizes_of_attention(&self) -> Option<Vec<Dim>> {
        let layers: Vec<_> =
            (0..).map_while(|index| self.step.output(&Names::cross_attentions(index))).collect();
        let shape = &layers.first()?.ty.shape;
        Some(vec![layers.len().into(), shape.dims()[2].clone(), self.src.clone()])
    }

    /// The positions of the new token and of all keys, if caches have a fixed capacity.
    fn positions<'i>(&self, iteration: Tensor<'i>) -> Vec<(String, Tensor<'i>)> {
        let Some(sizes) = self.sizes else { return Vec::new() };
        let builder = iteration.builder();
        let query = iteration.reshape([1]);
        let places = builder.range(0, sizes.capacity());
        let written = places + iteration.less_or_equal(places).cast(DType::I64);
        vec![(QUERY_POSITION.into(), query), (KEY_POSITIONS.into(), concat(0, &[written, query]))]
    }

    /// The cache of the next step, from the output of a step for `past`: with the new key at its
    /// place, if the capacity is fixed.
    fn kept<'i>(&self, present: Tensor<'i>, past: Tensor<'i>, iteration: Tensor<'i>) -> Tensor<'i> {
        let Some(capacity) = self.sizes.map(FixedSizes::capacity) else { return present };
        let places = iteration.builder().range(0, capacity).reshape([
            Dim::from(1),
            1.into(),
            1.into(),
            capacity.into(),
            1.into(),
        ]);
        places.equal(iteration).select(present.slice(3, capacity, capacity + 1), past)
    }

    /// The best hypotheses after the loop.
    fn found(&self, fixed: &Fixed<'g>, last: Results<'g>) -> Found<'g> {
        let returned = &self.inputs.returned;
        let chosen = |value: Tensor<'g>| value.slice(1, 0, returned);
        let (sequences, scores) = (chosen(last.sequences), chosen(last.scores));
        let per_token = last.per_token.map(|values| values.map(chosen));
        if self.sizes.is_some() {
            return Found { sequences, scores, per_token };
        }
        let lengths = chosen(last.lengths);
        let [longest, _] = lengths.reshape([lengths.dim(0) * returned]).top_k(1);
        let one = fixed.beams.builder().integer(1);
        let generated = larger(longest.reshape(Shape::default()), one).indices("generated").dim(0);
        let per_token = per_token.map(|values| values.map(|values| values.slice(2, 0, &generated)));
        Found { sequences: sequences.slice(2, 0, &generated), scores, per_token }
    }
}
