//! Logits of some tokens only: the output layer with the columns that a call chooses.
//!
//! Columns are packed once for the steps of a batch, which choose the same.

use super::{Call, Place, Program, Result, Scratch, Step, Tensors, expected};
use crate::SHORTLIST;
use cognate_export::proto::{DataType, DimensionProto, GraphProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto};
use cognate_kernels::{IntegerWeights, Weights};
use std::sync::PoisonError;

/// The output whose columns are tokens.
pub(super) const LOGITS: &str = "logits";

/// The output layer, and the input of the tokens whose columns it computes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shortlist {
    step: usize,
    input: usize,
}

/// Columns of the output layer.
pub(super) struct Chosen {
    tokens: Vec<i64>,
    weights: ChosenWeights,
}

enum ChosenWeights {
    Floats(Weights),
    Integers(IntegerWeights),
}

impl Chosen {
    pub(super) fn floats(&self) -> Option<&Weights> {
        if let ChosenWeights::Floats(weights) = &self.weights { Some(weights) } else { None }
    }

    pub(super) fn integers(&self) -> Option<&IntegerWeights> {
        if let ChosenWeights::Integers(weights) = &self.weights { Some(weights) } else { None }
    }
}

impl Program {
    /// The output layer among steps, if it is the last operation before the output of this number.
    pub(super) fn output_layer(&self, output: usize) -> Option<usize> {
        self.steps.iter().position(|step| match step {
            Step::Product { out, .. } | Step::IntegerProduct { out, .. } => self.buffers[*out].place == Place::Output(output),
            _ => false,
        })
    }

    /// Lets calls choose columns of the output layer by the input of this number.
    pub(super) fn with_shortlist(mut self, step: usize, input: usize) -> Self {
        self.shortlist = Some(Shortlist { step, input });
        self
    }

    pub(super) fn takes_shortlist(&self) -> bool {
        self.shortlist.is_some()
    }

    /// Free memory, with the columns that a call chooses if an earlier one chose the same.
    pub(super) fn scratch<'c>(&self, tensors: &impl Tensors<'c>) -> Scratch {
        let wanted = self.shortlist.and_then(|shortlist| tensors.integers(shortlist.input).ok());
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted =
            |scratch: &Scratch| scratch.chosen.as_ref().zip(wanted.as_ref()).is_some_and(|(chosen, (_, wanted))| chosen.tokens == *wanted);
        match free.iter().rposition(is_wanted) {
            Some(place) => free.swap_remove(place),
            None => free.pop().unwrap_or_default(),
        }
    }
}

impl<'c, T: Tensors<'c>> Call<'_, 'c, T> {
    /// The columns that the call chooses, if this step is the output layer.
    pub(super) fn chosen(&mut self, step: usize) -> Result<Option<Chosen>> {
        let Some(shortlist) = self.program.shortlist.filter(|shortlist| shortlist.step == step) else { return Ok(None) };
        let (_, tokens) = self.tensors.integers(shortlist.input)?;
        if tokens.is_empty() {
            return Ok(None);
        }
        if let Some(chosen) = self.scratch.chosen.take().filter(|chosen| chosen.tokens == tokens) {
            return Ok(Some(chosen));
        }
        let columns = |n: usize| {
            let column = |&token: &i64| {
                let place = usize::try_from(token).ok().filter(|&place| place < n);
                place.ok_or_else(|| expected(SHORTLIST, format!("tokens below {n}"), token))
            };
            tokens.iter().map(column).collect::<Result<Vec<_>>>()
        };
        let weights = match &self.program.steps[step] {
            Step::Product { weights, .. } => ChosenWeights::Floats(weights.select(&columns(weights.outputs())?)),
            Step::IntegerProduct { weights, .. } => ChosenWeights::Integers(weights.select(&columns(weights.outputs())?)),
            _ => unreachable!("compiled: a product"),
        };
        Ok(Some(Chosen { tokens: tokens.to_vec(), weights }))
    }

    /// Keeps columns for later calls.
    pub(super) fn keep(&mut self, chosen: Option<Chosen>) {
        if chosen.is_some() {
            self.scratch.chosen = chosen;
        }
    }
}

/// Declares the input in a graph, and that logits have as many columns.
pub(super) fn declare(graph: &mut GraphProto) {
    let candidates = || DimensionProto { dim_param: Some("candidates".into()), ..DimensionProto::default() };
    let shape = Some(TensorShapeProto { dim: vec![candidates()] });
    let tensor_type = Some(TensorTypeProto { elem_type: DataType::Int64 as i32, shape });
    graph.input.push(ValueInfoProto { name: SHORTLIST.into(), r#type: Some(TypeProto { tensor_type }), doc_string: String::new() });
    let logits = graph.output.iter_mut().filter(|output| output.name == LOGITS);
    let axes = logits.filter_map(|output| output.r#type.as_mut()?.tensor_type.as_mut()?.shape.as_mut()?.dim.last_mut());
    axes.for_each(|axis| *axis = candidates());
}
