//! The loop of phases: sentences that have ended leave between two of them.

use super::body::Captured;
use super::looped::{BATCH, Carried, LIVE, Results, Search, Steps};
use super::state::Fixed;
use super::{PAST, count, larger};
use crate::Result;
use crate::error::Cause;
use cognate_graph::{Builder, DType, Dim, Repeat, Shape, Tensor, Type, concat};

/// The number of keys in the caches before a phase, and of sentences that stay after it.
const CACHED: &str = "cached";
const LEFT: &str = "left";

/// What a value that the steps read, computed before all phases, is in a phase.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// The same in each phase.
    Same,
    /// One row for each sentence.
    Rows,
    /// Numbers of the first rows.
    Places,
}

impl<'g> Search<'_, 'g> {
    /// The results after all phases. Each is a loop of `steps` over the sentences that are open.
    pub(super) fn phases(
        &self,
        builder: &'g Builder,
        fixed: &Fixed<'g>,
        carried: &[Carried<'g>],
        steps: &Steps<'g>,
    ) -> Result<Results<'g>> {
        let kinds: Vec<_> =
            steps.outside.iter().map(|value| kind(*value, fixed)).collect::<Result<_>>()?;
        let changing = || kinds.iter().zip(&steps.outside).filter(|(kind, _)| **kind != Kind::Same);
        let state: Vec<_> = carried.iter().map(|value| value.first).collect();
        let ids = builder.range(0, Dim::from(BATCH));
        let results = self.results(fixed.is_independent, &state).values();

        let phase = Builder::new("phase");
        phase.input("phase.iteration", DType::I64, Shape::default());
        let mut captured = Captured::new(&phase, "phase").renaming(Some([BATCH, LIVE]));
        let declare = |Carried { name, inside: Type { dtype, shape }, .. }: &Carried<'g>| {
            let shape: Shape = shape.dims().iter().map(|dim| dim.renamed(PAST, CACHED)).collect();
            captured.declare(&format!("phase.{name}"), &Type::new(*dtype, shape))
        };
        let live_state: Vec<_> = carried.iter().map(declare).collect();
        let live_ids = captured.declare("phase.ids", &ids.ty());
        let declare = |(index, (_, value)): (usize, (_, &Tensor<'g>))| {
            captured.declare(&format!("phase.rows.{index}"), &value.ty())
        };
        let live_rows: Vec<_> = changing().enumerate().map(declare).collect();
        let declare = |(index, value): (usize, &Tensor<'g>)| {
            let Type { dtype, shape } = value.ty();
            phase.input(&format!("phase.results.{index}"), dtype, shape)
        };
        let before: Vec<_> = results.iter().enumerate().map(declare).collect();
        let mut rows = live_rows.iter().copied();
        let read = |(kind, value): (&Kind, &Tensor<'g>)| match kind {
            Kind::Same => captured.read(*value),
            Kind::Rows | Kind::Places => rows.next().expect("declared for each that changes"),
        };
        let read: Vec<_> = kinds.iter().zip(&steps.outside).map(read).collect();
        let is_independent = captured.read(fixed.is_independent);
        {
            let _scope = phase.root().at("phase").enter();
            let last = steps.run(&phase, &live_state, &read);
            let (goes_on, open) = self.goes_on(&last);
            let place = place_of_each(live_ids);
            let found = self.results(is_independent, &last).values().into_iter();
            let results =
                found.zip(before).map(|(found, before)| concat(0, &[found, before]).gather(place));
            let stays = rows_that_stay(open);
            let state = last.iter().map(|value| {
                let is_live = value.ty().shape.dims().first() == Some(&Dim::from(LIVE));
                if is_live { value.gather(stays) } else { *value }
            });
            let rows = changing().zip(&live_rows).map(|((kind, _), row)| match kind {
                Kind::Places => row.slice(0, 0, stays.dim(0)),
                Kind::Rows | Kind::Same => row.gather(stays),
            });
            let next = state.chain([live_ids.gather(stays)]).chain(rows).chain(results);
            phase.output("phase.next.condition", goes_on);
            for (index, value) in next.enumerate() {
                phase.output(&format!("phase.next.{index}"), value);
            }
        }
        let outside = captured.outside;
        let rows = changing().map(|(_, value)| *value);
        let mut first: Vec<_> = state.into_iter().chain([ids]).chain(rows).collect();
        let n_before = first.len();
        first.extend(results);
        let last = builder.repeat(Repeat {
            body: phase.finish()?,
            most: self.most,
            condition: builder.integer(1).cast(DType::Bool),
            carried: &first,
            captured: &outside,
        });
        Ok(Results::of(&last[n_before..]))
    }
}

fn kind(value: Tensor<'_>, fixed: &Fixed<'_>) -> Result<Kind> {
    if [fixed.first_row, fixed.first_score].iter().any(|places| places.id() == value.id()) {
        return Ok(Kind::Places);
    }
    let shape = value.ty().shape;
    let is_of_batch = |dim: &Dim| dim.symbols().any(|symbol| **symbol == *BATCH);
    match shape.dims() {
        dims if !dims.iter().any(is_of_batch) => Ok(Kind::Same),
        [first, rest @ ..] if *first == Dim::from(BATCH) && !rest.iter().any(is_of_batch) => {
            Ok(Kind::Rows)
        }
        _ => Err(Cause::Layout {
            graph: "decoder",
            expected: "values of which the first axis is that of the sentences".into(),
            found: shape.to_string(),
        }
        .into()),
    }
}

/// The row of each sentence, i64 `[batch]`, among those of the phase, whose ids are `[live]`,
/// followed by those of all sentences: a sentence that is not in the phase keeps its own.
fn place_of_each(ids: Tensor<'_>) -> Tensor<'_> {
    let (builder, live, batch) = (ids.builder(), Dim::from(LIVE), Dim::from(BATCH));
    let one = builder.integer(1);
    let is_row = builder
        .range(0, &batch)
        .reshape([batch.clone(), 1.into()])
        .equal(ids.reshape([Dim::from(1), live.clone()]));
    let numbers = (builder.range(0, &live) + one).reshape([Dim::from(1), live.clone()]);
    let number = (is_row.cast(DType::I64) * numbers).sum(&[1]).reshape([batch.clone()]);
    one.less_or_equal(number).select(number - one, builder.range(&live, &live + &batch))
}

/// The rows of open sentences, in order: i64 `[left]`; at least one row.
fn rows_that_stay(open: Tensor<'_>) -> Tensor<'_> {
    let (builder, live) = (open.builder(), Dim::from(LIVE));
    let (zero, one) = (builder.integer(0), builder.integer(1));
    let left = larger(count(open), one).indices(LEFT).dim(0);
    let rank = open
        .reshape([live.clone()])
        .select(zero - builder.range(0, &live), builder.integer(i64::from(i32::MIN)));
    let [_, rows] = rank.top_k(left);
    rows
}
