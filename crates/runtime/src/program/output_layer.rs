//! The output layer: all logits, those of some tokens, or those of the best tokens of each row.
//!
//! In a small model it is most of a step. A call selects the logits by inputs that the file does
//! not have, [`SHORTLIST`] and [`BEST`]. Weights are packed for the first use of each kind: a
//! decoder that only requests the best tokens has no f32 panels in memory.

use super::product::{Columns, Packed, Source};
use super::{Call, Elements, Program, Result, Scratch, Step, Tensors, expected};
use crate::{BEST, SHORTLIST};
use cognate_export::proto::{
    DataType, DimensionProto, GraphProto, TensorShapeProto, TensorTypeProto, TypeProto,
    ValueInfoProto,
};
use cognate_kernels::{
    Best, Candidates, Exact, IntegerWeights, Parallel, Place, Rows, Screen, Wanted, Weights, best,
    round_to_bf16,
};
use std::iter;
use std::ops::Range;
use std::sync::{OnceLock, PoisonError};

/// The output whose columns are tokens.
pub(crate) const LOGITS: &str = "logits";
/// The output with the factors of logits, if there is one.
pub(crate) const LOGITS_SCALE: &str = "logits_scale";

/// The output layer; numbers are those of buffers and of inputs.
pub(super) struct OutputLayer {
    pub(super) x: usize,
    pub(super) out: usize,
    pub(super) weights: LayerWeights,
    /// The factors `[n, 1]` of products of integers, before their bias is added.
    pub(super) steps: Option<usize>,
    /// The rows `[n, 1]` from which [`LOGITS_SCALE`] is computed, and their minimum.
    pub(super) scale: Option<(usize, f32)>,
    /// The input of tokens to choose from.
    pub(super) shortlist: usize,
    /// The input with the number of best tokens.
    pub(super) best: Option<usize>,
}

pub(super) enum LayerWeights {
    Floats(Box<Floats>),
    Integers(Box<Screen>),
}

/// Weights with the packed forms that calls have used.
pub(super) struct Floats {
    source: Source,
    packed: OnceLock<Packed>,
    screen: OnceLock<Option<Screen>>,
}

/// The columns of some tokens, in the form that was used.
pub(super) struct Chosen {
    tokens: Vec<i64>,
    columns: Vec<usize>,
    /// For products of integers.
    bias: Vec<f32>,
    weights: Option<ChosenWeights>,
    screen: Option<Screen>,
}

enum ChosenWeights {
    Floats(Packed),
    Integers(IntegerWeights),
}

impl Floats {
    pub(super) fn new(source: Source) -> Self {
        Self { source, packed: OnceLock::new(), screen: OnceLock::new() }
    }

    /// All columns in panels.
    fn packed(&self) -> &Packed {
        self.packed.get_or_init(|| self.source.pack())
    }

    fn screen(&self) -> Option<&Screen> {
        self.screen
            .get_or_init(|| self.source.read_by(|n, m, fill, bias| Screen::new(n, m, fill, bias)))
            .as_ref()
    }

    /// All logits of a row.
    fn all(&self, x: &[f32], threads: &dyn Parallel) -> Vec<f32> {
        let mut logits = vec![0.0; self.source.outputs];
        self.packed().multiply(x, &mut logits, threads);
        logits
    }
}

/// Weights in the form that computes logits.
enum Product<'p> {
    Floats(&'p Packed),
    /// Products of integers, and the factors of rows before the bias is added.
    Integers {
        weights: &'p IntegerWeights,
        steps: Option<&'p [f32]>,
        bias: &'p [f32],
    },
}

impl Product<'_> {
    fn outputs(&self) -> usize {
        match self {
            Self::Floats(weights) => weights.outputs(),
            Self::Integers { weights, .. } => weights.outputs(),
        }
    }

    /// Some columns for some rows of a buffer.
    fn multiply(
        &self,
        (x, rows): (&Elements<'_>, Range<usize>),
        columns: Range<usize>,
        out: &mut [f32],
        threads: &dyn Parallel,
    ) {
        match self {
            Self::Floats(weights) => {
                let inputs = weights.inputs();
                let x = &x.floats()[rows.start * inputs..rows.end * inputs];
                weights.multiply_columns(x, columns, out, threads);
            }
            Self::Integers { weights, steps, bias } => {
                let inputs = weights.inputs();
                weights.multiply_columns(
                    &x.bytes()[rows.start * inputs..rows.end * inputs],
                    columns.clone(),
                    out,
                    threads,
                );
                if let Some(steps) = steps {
                    let end = Rows {
                        scale: Some(steps),
                        bias: Some(&bias[columns.clone()]),
                        ..Rows::default()
                    };
                    end.apply(rows.start, Place::Over(out), columns.len(), None);
                }
            }
        }
    }
}

impl LayerWeights {
    /// Whether finding the best tokens is faster than writing and reading all logits, and f32 can
    /// represent every token.
    pub(super) fn finds_best(&self) -> bool {
        (1024..1 << 24).contains(&self.outputs())
    }

    /// The weights of the chosen columns, or of all, with the step sizes of rows.
    fn product<'p>(
        &'p self,
        chosen: Option<&'p mut Chosen>,
        steps: Option<&'p [f32]>,
    ) -> Product<'p> {
        let Some(Chosen { columns, bias, weights, .. }) = chosen else {
            return match self {
                Self::Floats(floats) => Product::Floats(floats.packed()),
                Self::Integers(screen) => {
                    Product::Integers { weights: screen.integers(), steps, bias: screen.bias() }
                }
            };
        };
        let select = || match self {
            Self::Floats(floats) => ChosenWeights::Floats(floats.source.select(columns)),
            Self::Integers(screen) => ChosenWeights::Integers(screen.integers().select(columns)),
        };
        match weights.get_or_insert_with(select) {
            ChosenWeights::Floats(weights) => Product::Floats(weights),
            ChosenWeights::Integers(weights) => Product::Integers { weights, steps, bias },
        }
    }

    /// The bias of products of integers for the chosen columns.
    fn bias_of(&self, columns: &[usize]) -> Vec<f32> {
        match self {
            Self::Floats(_) => Vec::new(),
            Self::Integers(screen) => columns.iter().map(|&column| screen.bias()[column]).collect(),
        }
    }

    fn outputs(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.source.outputs,
            Self::Integers(screen) => screen.integers().outputs(),
        }
    }

    /// The tokens in a list, if all are in the layer.
    fn tokens(&self, what: &str, tokens: &[i64]) -> Result<Vec<usize>> {
        let n = self.outputs();
        let place = |&token: &i64| {
            let place = usize::try_from(token).ok().filter(|&place| place < n);
            place.ok_or_else(|| expected(what, format!("tokens below {n}"), token))
        };
        tokens.iter().map(place).collect()
    }
}

impl OutputLayer {
    pub(super) fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut chosen = self.chosen(call)?;
        let rows = match &self.weights {
            LayerWeights::Floats(_) => call.rows(self.x)?,
            LayerWeights::Integers(screen) => {
                call.load(self.x, true)?;
                call.elements[self.x].bytes().len() / screen.integers().inputs().max(1)
            }
        };
        let rows = if call.is_unused(self.out) { 0 } else { rows };
        for factors in self.steps.into_iter().chain(self.scale.map(|(scale, _)| scale)) {
            if call.rows(factors)? < rows {
                return Err(expected(
                    "factors of logits",
                    format!("{rows} rows"),
                    call.rows(factors)?,
                ));
            }
        }
        if let Some(best) = self.best
            && let (_, [count, softmax, always @ ..]) = call.tensors.integers(best)?
        {
            let count =
                usize::try_from(*count).map_err(|_| expected(BEST, "a number of tokens", count))?;
            let (always, softmax) = (self.weights.tokens(BEST, always)?, *softmax != 0);
            let found = match softmax || !Screen::is_fast() {
                true => self.best_in_one_pass(call, (count, always), rows, &mut chosen),
                false => self.best(call, (count, always), rows, &mut chosen),
            };
            call.scratch.chosen = chosen;
            return self.put(call, found, softmax);
        }
        let width = chosen.as_ref().map_or(self.weights.outputs(), |chosen| chosen.tokens.len());
        let mut made = call.take_columns(self.out, rows, width)?;
        let product =
            self.weights.product(chosen.as_mut(), self.steps.map(|steps| call.floats(steps)));
        product.multiply(
            (&call.elements[self.x], 0..rows),
            0..width,
            made.floats_mut(),
            call.tensors,
        );
        call.put(self.out, made);
        if chosen.is_some() {
            call.scratch.chosen = chosen;
        }
        Ok(())
    }

    /// The columns that a call chooses; reused from an earlier call with the same choice.
    fn chosen(&self, call: &mut Call<'_, '_>) -> Result<Option<Chosen>> {
        let (_, tokens) = call.tensors.integers(self.shortlist)?;
        if tokens.is_empty() {
            return Ok(None);
        }
        if let Some(chosen) = call.scratch.chosen.take().filter(|chosen| chosen.tokens == tokens) {
            return Ok(Some(chosen));
        }
        let columns = self.weights.tokens(SHORTLIST, tokens)?;
        let bias = self.weights.bias_of(&columns);
        Ok(Some(Chosen { tokens: tokens.to_vec(), columns, bias, weights: None, screen: None }))
    }
}

/// Memory of a search for the best tokens, reused by the next one.
#[derive(Default)]
pub(super) struct Room {
    search: cognate_kernels::Room,
    /// For one row.
    columns: Columns,
    /// Rows in bfloat16.
    rounded: Vec<f32>,
}

impl OutputLayer {
    /// The requested tokens of each row, among all or the chosen tokens, by bounds of their logits;
    /// without the softmax.
    fn best<'c>(
        &self,
        call: &mut Call<'_, 'c>,
        (count, mut always): (usize, Vec<usize>),
        rows: usize,
        chosen: &mut Option<Chosen>,
    ) -> Vec<Best> {
        let all_columns = match &self.weights {
            LayerWeights::Integers(screen) => Some(&**screen),
            LayerWeights::Floats(floats) => floats.screen(),
        };
        let (columns, screen) = match (chosen, all_columns) {
            (Some(Chosen { columns, screen, .. }), Some(all)) => {
                always = among(columns, always);
                (Some(&*columns), Some(&*screen.get_or_insert_with(|| all.select(columns))))
            }
            (chosen, screen) => (chosen.as_ref().map(|chosen| &chosen.columns), screen),
        };
        let token = |column: usize| columns.map_or(column, |columns| columns[column]);
        let Room { search, columns: room, rounded } = &mut call.scratch.best;
        let (wanted, mut found) = (Wanted { count, always: &always }, Vec::with_capacity(rows));
        let (largest, log_sum) = (0.0, 0.0);
        match &self.weights {
            LayerWeights::Integers(all) => {
                let (screen, x) = (
                    screen.unwrap_or(all),
                    &call.elements[self.x].bytes()[..rows * all.integers().inputs()],
                );
                let steps = self.steps.map(|steps| call.elements[steps].floats());
                let step_of = |row: usize| steps.map_or(1.0, |steps| steps[row]);
                screen.candidates_of_integers(
                    x,
                    step_of,
                    wanted,
                    call.tensors,
                    search,
                    |_, Candidates { columns, numbers, .. }| {
                        let columns = columns
                            .iter()
                            .map(|&column| token(column))
                            .zip(numbers.iter().copied())
                            .collect();
                        found.push(Best { columns, largest, log_sum });
                    },
                );
            }
            LayerWeights::Floats(floats) => {
                let inputs = floats.source.inputs;
                let mut x = &call.elements[self.x].floats()[..rows * inputs];
                if floats.source.is_bf16() {
                    rounded.clear();
                    rounded.extend_from_slice(x);
                    round_to_bf16(rounded);
                    x = rounded;
                }
                let row_of = |row: usize| &x[row * inputs..][..inputs];
                let all = |row: usize| {
                    let logits = floats.all(row_of(row), call.tensors);
                    let n = columns.map_or(logits.len(), Vec::len);
                    let columns =
                        (0..n).map(|column| (token(column), logits[token(column)])).collect();
                    Best { columns, largest, log_sum }
                };
                let Some(screen) = screen else { return (0..rows).map(all).collect() };
                screen.candidates(
                    x,
                    wanted,
                    call.tensors,
                    search,
                    |row, Candidates { columns, is_unknown, .. }| {
                        if *is_unknown {
                            return found.push(all(row));
                        }
                        let tokens = columns.iter().map(|&column| token(column));
                        let logits = floats.source.some(row_of(row), tokens.clone(), room);
                        found.push(Best {
                            columns: tokens.zip(logits).collect(),
                            largest,
                            log_sum,
                        });
                    },
                );
            }
        }
        found
    }

    /// The same with the softmax, in one pass over the logits.
    fn best_in_one_pass<'c>(
        &self,
        call: &mut Call<'_, 'c>,
        (count, mut always): (usize, Vec<usize>),
        rows: usize,
        chosen: &mut Option<Chosen>,
    ) -> Vec<Best> {
        let scales = self.scale.map(|(scale, least)| (call.floats(scale), least));
        // NaN stays NaN.
        let factor_of = |row: usize| {
            scales.map_or(
                1.0,
                |(scales, least)| if scales[row] < least { least } else { scales[row] },
            )
        };
        if let Some(Chosen { columns, .. }) = chosen {
            always = among(columns, always);
        }
        let (wanted, x) = (Wanted { count, always: &always }, &call.elements[self.x]);
        let has_all = chosen.is_none();
        let product =
            self.weights.product(chosen.as_mut(), self.steps.map(|steps| call.floats(steps)));
        let sizes = [rows, product.outputs()];
        // Of few chosen columns the exact logits would be most of the work.
        if has_all
            && let (LayerWeights::Floats(floats), Product::Floats(Packed::Floats(weights))) =
                (&self.weights, &product)
            && let x = &x.floats()[..rows * weights.inputs()]
            && let Some(coarse) = weights.coarse_rows(x)
        {
            let multiply = |rows: Range<usize>, columns: Range<usize>, out: &mut [f32]| {
                weights.multiply_coarsely(&coarse, (rows, columns), out, call.tensors);
            };
            let (source, room) = (&floats.source, Columns::default());
            let mut exact = ExactLogits { x, weights, source, room };
            return best(sizes, wanted, factor_of, multiply, Some(&mut exact));
        }
        let multiply = |rows: Range<usize>, columns: Range<usize>, out: &mut [f32]| {
            product.multiply((x, rows), columns, out, call.tensors)
        };
        let mut found = best(sizes, wanted, factor_of, multiply, None);
        if let Some(Chosen { columns, .. }) = chosen {
            found
                .iter_mut()
                .flat_map(|row| &mut row.columns)
                .for_each(|(column, _)| *column = columns[*column]);
        }
        found
    }

    /// Writes tokens and logits in the format of
    /// [`Session::finds_best`](crate::Session::finds_best).
    fn put<'c>(&self, call: &mut Call<'_, 'c>, found: Vec<Best>, softmax: bool) -> Result<()> {
        let (n, none) = (
            found.iter().map(|found| found.columns.len()).max().unwrap_or(0),
            self.weights.outputs(),
        );
        let width = 2 * n + if softmax { 2 } else { 0 };
        let mut made = call.take_columns(self.out, found.len(), width)?;
        for (row, Best { columns, largest, log_sum }) in
            made.floats_mut().chunks_exact_mut(width.max(1)).zip(found)
        {
            let (tokens, rest) = row.split_at_mut(n);
            let (logits, sums) = rest.split_at_mut(n);
            let columns = columns.into_iter().chain(iter::repeat((none, f32::NEG_INFINITY)));
            for ((token, logit), column) in tokens.iter_mut().zip(logits).zip(columns) {
                (*token, *logit) = (column.0 as f32, column.1);
            }
            sums.iter_mut().zip([largest, log_sum]).for_each(|(place, sum)| *place = sum);
        }
        call.put(self.out, made);
        Ok(())
    }
}

/// Logits of rows `x: [n, inputs]` whose product is coarse.
struct ExactLogits<'a> {
    x: &'a [f32],
    weights: &'a Weights,
    source: &'a Source,
    room: Columns,
}

impl<'a> ExactLogits<'a> {
    fn row(&self, row: usize) -> &'a [f32] {
        &self.x[row * self.source.inputs..][..self.source.inputs]
    }
}

impl Exact for ExactLogits<'_> {
    fn error_of(&self, row: usize) -> f32 {
        self.weights.coarse_error(self.row(row))
    }

    fn numbers_of(&mut self, row: usize, columns: &[usize]) -> Vec<f32> {
        self.source.some(self.row(row), columns.iter().copied(), &mut self.room)
    }
}

/// The positions of tokens among the chosen columns.
fn among(columns: &[usize], tokens: Vec<usize>) -> Vec<usize> {
    tokens
        .into_iter()
        .filter_map(|token| columns.iter().position(|column| *column == token))
        .collect()
}

impl Program {
    fn output_layer(&self) -> Option<&OutputLayer> {
        self.steps
            .iter()
            .find_map(|step| if let Step::Output(layer) = step { Some(&**layer) } else { None })
    }

    /// Free memory, with the columns that a call chooses if an earlier one chose the same.
    pub(super) fn scratch<'c>(&self, tensors: &dyn Tensors<'c>) -> Scratch {
        let wanted = self
            .output_layer()
            .and_then(|layer| tensors.integers(layer.shortlist).ok())
            .map(|(_, tokens)| tokens);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = |scratch: &Scratch| {
            scratch.chosen.as_ref().map(|chosen| chosen.tokens.as_slice()) == wanted
        };
        match free.iter().rposition(is_wanted) {
            Some(place) => free.swap_remove(place),
            None => free.pop().unwrap_or_default(),
        }
    }
}

/// Declares the inputs of a program's output layer in a graph, and a variable number of columns of
/// the logits. Returns the number of inputs.
pub(super) fn declare(graph: &mut GraphProto, program: &Program) -> usize {
    let Some(layer) = program.output_layer() else { return 0 };
    let axis =
        |name: &str| DimensionProto { dim_param: Some(name.into()), ..DimensionProto::default() };
    let inputs = [Some(SHORTLIST), layer.best.map(|_| BEST)].into_iter().flatten().map(|name| {
        let shape = Some(TensorShapeProto { dim: vec![axis(name)] });
        let tensor_type = Some(TensorTypeProto { elem_type: DataType::Int64 as i32, shape });
        ValueInfoProto {
            name: name.into(),
            r#type: Some(TypeProto { tensor_type }),
            doc_string: String::new(),
        }
    });
    let before = graph.input.len();
    graph.input.extend(inputs);
    let logits = graph.output.iter_mut().filter(|output| output.name == LOGITS);
    let axes = logits.filter_map(|output| {
        output.r#type.as_mut()?.tensor_type.as_mut()?.shape.as_mut()?.dim.last_mut()
    });
    axes.for_each(|last| *last = axis("candidates"));
    graph.input.len() - before
}
