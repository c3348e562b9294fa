//! The output layer: all logits, those of some tokens, or those of the best tokens of each row.
//!
//! For a small model it is most of a step. Which logits are computed is what a call asks for by inputs that the file does not have,
//! [`SHORTLIST`] and [`BEST`]. Weights are packed for what is asked first: a decoder that only ever wants the best tokens has no f32
//! panels in memory.

use super::product::{Columns, Packed, Source};
use super::{Call, Program, Result, Scratch, Step, Tensors, expected};
use crate::{BEST, SHORTLIST};
use cognate_export::proto::{DataType, DimensionProto, GraphProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto};
use cognate_kernels::{Candidates, IntegerWeights, Parallel, Screen, Wanted, round_to_bf16};
use std::iter;
use std::sync::{OnceLock, PoisonError};

/// The output whose columns are tokens.
pub(super) const LOGITS: &str = "logits";

/// The output layer; numbers are those of buffers and of inputs.
pub(super) struct OutputLayer {
    pub(super) x: usize,
    pub(super) out: usize,
    pub(super) weights: LayerWeights,
    /// The input of tokens to choose from.
    pub(super) shortlist: usize,
    /// The input of how many best tokens are wanted.
    pub(super) best: Option<usize>,
}

pub(super) enum LayerWeights {
    Floats(Floats),
    Integers(Screen),
}

/// Weights of which the forms that calls ask for are kept.
pub(super) struct Floats {
    source: Source,
    packed: OnceLock<Packed>,
    screen: OnceLock<Option<Screen>>,
}

/// The columns of some tokens, in the form that was asked for.
pub(super) struct Chosen {
    tokens: Vec<i64>,
    columns: Vec<usize>,
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
        let Source { inputs, outputs, bias, bytes, .. } = &self.source;
        let make = || {
            let screen = Screen::new(*inputs, *outputs, |output, row| self.source.fill(output, row), bias.as_deref());
            bytes.release();
            screen
        };
        self.screen.get_or_init(make).as_ref()
    }

    /// All logits of a row.
    fn all(&self, x: &[f32], threads: &dyn Parallel) -> Vec<f32> {
        let mut logits = vec![0.0; self.source.outputs];
        self.packed().multiply(x, &mut logits, threads);
        logits
    }
}

impl LayerWeights {
    /// Whether the best tokens are found faster than all logits are computed and read, and f32 can name every token.
    pub(super) fn finds_best(&self) -> bool {
        Screen::is_fast() && (1024..1 << 24).contains(&self.outputs())
    }

    fn outputs(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.source.outputs,
            Self::Integers(screen) => screen.integers().outputs(),
        }
    }

    /// The tokens in a list, if the layer has them all.
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
    pub(super) fn run<'c, T: Tensors<'c>>(&self, call: &mut Call<'_, 'c, T>) -> Result<()> {
        let mut chosen = self.chosen(call)?;
        let rows = match &self.weights {
            LayerWeights::Floats(_) => call.rows(self.x)?,
            LayerWeights::Integers(screen) => {
                call.load(self.x, true)?;
                call.elements[self.x].bytes().len() / screen.integers().inputs().max(1)
            }
        };
        let rows = if call.is_unused(self.out) { 0 } else { rows };
        if let Some(best) = self.best
            && let Some(found) = self.best(call, best, rows, &mut chosen)?
        {
            call.scratch.chosen = chosen;
            return self.put(call, rows, found);
        }
        let width = chosen.as_ref().map_or(self.weights.outputs(), |chosen| chosen.tokens.len());
        let mut made = call.take_columns(self.out, rows, width)?;
        let weights = chosen.as_mut().map(|Chosen { columns, weights, .. }| {
            &*weights.get_or_insert_with(|| match &self.weights {
                LayerWeights::Floats(floats) => ChosenWeights::Floats(floats.source.select(columns)),
                LayerWeights::Integers(screen) => ChosenWeights::Integers(screen.integers().select(columns)),
            })
        });
        match (&self.weights, weights) {
            (LayerWeights::Integers(screen), chosen) => {
                let weights = if let Some(ChosenWeights::Integers(chosen)) = chosen { chosen } else { screen.integers() };
                weights.multiply(&call.elements[self.x].bytes()[..rows * weights.inputs()], made.floats_mut(), call.tensors);
            }
            (LayerWeights::Floats(floats), chosen) => {
                let weights = if let Some(ChosenWeights::Floats(chosen)) = chosen { chosen } else { floats.packed() };
                weights.multiply(&call.floats(self.x)[..rows * weights.inputs()], made.floats_mut(), call.tensors);
            }
        }
        call.put(self.out, made);
        if chosen.is_some() {
            call.scratch.chosen = chosen;
        }
        Ok(())
    }

    /// The columns that a call chooses, of an earlier one if it chose the same.
    fn chosen<'c, T: Tensors<'c>>(&self, call: &mut Call<'_, 'c, T>) -> Result<Option<Chosen>> {
        let (_, tokens) = call.tensors.integers(self.shortlist)?;
        if tokens.is_empty() {
            return Ok(None);
        }
        if let Some(chosen) = call.scratch.chosen.take().filter(|chosen| chosen.tokens == tokens) {
            return Ok(Some(chosen));
        }
        let columns = self.weights.tokens(SHORTLIST, tokens)?;
        Ok(Some(Chosen { tokens: tokens.to_vec(), columns, weights: None, screen: None }))
    }
}

/// Memory of a search for the best tokens, for the next one.
#[derive(Default)]
pub(super) struct Room {
    search: cognate_kernels::Room,
    /// Of a row.
    columns: Columns,
    /// Rows in bfloat16.
    rounded: Vec<f32>,
}

/// The tokens of each row, ascending, and their logits.
type Found = Vec<Vec<(usize, f32)>>;

impl OutputLayer {
    /// Those that a call wants of each row by the input `best`, of all or of chosen tokens; `None` if it wants all.
    fn best<'c, T: Tensors<'c>>(
        &self,
        call: &mut Call<'_, 'c, T>,
        best: usize,
        rows: usize,
        chosen: &mut Option<Chosen>,
    ) -> Result<Option<Found>> {
        let (_, [count, always @ ..]) = call.tensors.integers(best)? else { return Ok(None) };
        let count = usize::try_from(*count).map_err(|_| expected(BEST, "a number of tokens", count))?;
        let mut always = self.weights.tokens(BEST, always)?;
        let all_columns = match &self.weights {
            LayerWeights::Integers(screen) => Some(screen),
            LayerWeights::Floats(floats) => floats.screen(),
        };
        let (columns, screen) = match (chosen, all_columns) {
            (Some(Chosen { columns, screen, .. }), Some(all)) => {
                always = always.into_iter().filter_map(|token| columns.iter().position(|column| *column == token)).collect();
                (Some(&*columns), Some(&*screen.get_or_insert_with(|| all.select(columns))))
            }
            (chosen, screen) => (chosen.as_ref().map(|chosen| &chosen.columns), screen),
        };
        let token = |column: usize| columns.map_or(column, |columns| columns[column]);
        let Room { search, columns: room, rounded } = &mut call.scratch.best;
        let (wanted, mut found) = (Wanted { count, always: &always }, Vec::with_capacity(rows));
        match &self.weights {
            LayerWeights::Integers(all) => {
                let (screen, x) = (screen.unwrap_or(all), &call.elements[self.x].bytes()[..rows * all.integers().inputs()]);
                screen.candidates_of_integers(x, wanted, call.tensors, search, |_, Candidates { columns, products, .. }| {
                    found.push(columns.iter().map(|&column| token(column)).zip(products.iter().copied()).collect());
                });
            }
            LayerWeights::Floats(floats) => {
                let inputs = floats.source.inputs;
                let mut x = &call.elements[self.x].floats()[..rows * inputs];
                if floats.source.is_bf16 {
                    rounded.clear();
                    rounded.extend_from_slice(x);
                    round_to_bf16(rounded);
                    x = rounded;
                }
                let row_of = |row: usize| &x[row * inputs..][..inputs];
                let all = |row: usize| {
                    let logits = floats.all(row_of(row), call.tensors);
                    let n = columns.map_or(logits.len(), Vec::len);
                    (0..n).map(|column| (token(column), logits[token(column)])).collect()
                };
                let Some(screen) = screen else { return Ok(Some((0..rows).map(all).collect())) };
                screen.candidates(x, wanted, call.tensors, search, |row, Candidates { columns, is_unknown, .. }| {
                    if *is_unknown {
                        return found.push(all(row));
                    }
                    let tokens = columns.iter().map(|&column| token(column));
                    let logits = floats.source.some(row_of(row), tokens.clone(), room);
                    found.push(tokens.zip(logits).collect());
                });
            }
        }
        Ok(Some(found))
    }

    /// Writes tokens and logits, as of [`Session::finds_best`](crate::Session::finds_best).
    fn put<'c, T: Tensors<'c>>(&self, call: &mut Call<'_, 'c, T>, rows: usize, found: Found) -> Result<()> {
        let (n, none) = (found.iter().map(Vec::len).max().unwrap_or(0), self.weights.outputs());
        let mut made = call.take_columns(self.out, rows, 2 * n)?;
        for (row, found) in made.floats_mut().chunks_exact_mut((2 * n).max(1)).zip(found) {
            let (tokens, logits) = row.split_at_mut(n);
            let found = found.into_iter().chain(iter::repeat((none, f32::NEG_INFINITY)));
            for ((token, logit), found) in tokens.iter_mut().zip(logits).zip(found) {
                (*token, *logit) = (found.0 as f32, found.1);
            }
        }
        call.put(self.out, made);
        Ok(())
    }
}

impl Program {
    fn output_layer(&self) -> Option<&OutputLayer> {
        self.steps.iter().find_map(|step| if let Step::Output(layer) = step { Some(layer) } else { None })
    }

    /// Free memory, with the columns that a call chooses if an earlier one chose the same.
    pub(super) fn scratch<'c>(&self, tensors: &impl Tensors<'c>) -> Scratch {
        let wanted = self.output_layer().and_then(|layer| tensors.integers(layer.shortlist).ok()).map(|(_, tokens)| tokens);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = |scratch: &Scratch| scratch.chosen.as_ref().map(|chosen| chosen.tokens.as_slice()) == wanted;
        match free.iter().rposition(is_wanted) {
            Some(place) => free.swap_remove(place),
            None => free.pop().unwrap_or_default(),
        }
    }
}

/// Declares the inputs of a program's output layer in a graph, and that logits have as many columns as is asked for. Returns the number of
/// inputs.
pub(super) fn declare(graph: &mut GraphProto, program: &Program) -> usize {
    let Some(layer) = program.output_layer() else { return 0 };
    let axis = |name: &str| DimensionProto { dim_param: Some(name.into()), ..DimensionProto::default() };
    let inputs = [Some(SHORTLIST), layer.best.map(|_| BEST)].into_iter().flatten().map(|name| {
        let shape = Some(TensorShapeProto { dim: vec![axis(name)] });
        let tensor_type = Some(TensorTypeProto { elem_type: DataType::Int64 as i32, shape });
        ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type }), doc_string: String::new() }
    });
    let before = graph.input.len();
    graph.input.extend(inputs);
    let logits = graph.output.iter_mut().filter(|output| output.name == LOGITS);
    let axes = logits.filter_map(|output| output.r#type.as_mut()?.tensor_type.as_mut()?.shape.as_mut()?.dim.last_mut());
    axes.for_each(|last| *last = axis("candidates"));
    graph.input.len() - before
}
