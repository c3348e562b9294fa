//! Decides by the ranges of values which nodes compute in f16.

use super::{LARGEST, MARGIN, Why};
use cognate_graph::{Class, DType, Graph, Node, NodeId, Op, Program, Recipe, Scalar};
use std::collections::{BTreeMap, BTreeSet};

/// The smallest normal f16. A smaller factor would lose precision, or become 0.
const SMALLEST: f32 = 6.103_515_6e-5;

/// Number of elements of a weight that are read at once.
const CHUNK: usize = 1 << 16;

/// The range of a node's values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    largest: Option<f32>,
    /// Whether f16 can represent them, with the margin.
    fits: bool,
    /// Whether a constant beyond the limit contributes, which a run may not show.
    is_mask: bool,
}

/// The largest magnitudes of weights, by path: each is read once.
#[derive(Debug, Default)]
pub(super) struct WeightRanges(BTreeMap<String, f32>);

impl WeightRanges {
    fn of(&mut self, path: &str, recipe: &Recipe) -> f32 {
        if let Some(&largest) = self.0.get(path) {
            return largest;
        }
        let elements = recipe.elements();
        let (mut values, mut largest) = (vec![0f32; CHUNK.min(elements)], 0f32);
        for first in (0..elements).step_by(CHUNK) {
            let values = &mut values[..CHUNK.min(elements - first)];
            recipe.read(first, values);
            // Not `max`, which would ignore NaN.
            largest = values.iter().fold(largest, |largest, value| {
                if value.abs() <= largest || largest.is_nan() { largest } else { value.abs() }
            });
        }
        self.0.insert(path.into(), largest);
        largest
    }
}

/// The ranges of all nodes.
pub(super) fn ranges(
    program: &Program,
    seen: impl Fn(&str) -> Option<f32>,
    weights: &mut WeightRanges,
    computes_in_f32: bool,
) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for (_, node) in program.graph().iter() {
        let inputs = || node.inputs.iter().map(|input| ranges[input.index()]);
        let class = node.op.class();
        let is_mask = passes_masks_on(class) && inputs().any(|input| input.is_mask);
        let range = if node.op == Op::Parameter {
            let largest =
                program.weights().get(&node.name).map(|recipe| weights.of(&node.name, recipe));
            Range {
                largest,
                fits: largest.is_some_and(|largest| largest <= LARGEST),
                is_mask: false,
            }
        } else if let Op::Scalar(Scalar::F32(value)) = node.op {
            let value = value.abs();
            Range {
                largest: Some(value),
                fits: value == 0.0
                    || (SMALLEST..=LARGEST).contains(&value)
                    || computes_in_f32 && value > LARGEST,
                is_mask: value > LARGEST,
            }
        } else if class == Class::Move {
            ranges[node.inputs[0].index()]
        } else if class == Class::Join {
            let largest = inputs().filter_map(|input| input.largest).reduce(f32::max);
            Range { largest, fits: inputs().all(|input| input.fits), is_mask }
        } else {
            let largest = seen(&node.name);
            Range {
                largest,
                // A masked score may become smaller than the smallest f16.
                fits: match is_mask {
                    true => computes_in_f32 && inputs().all(|input| input.fits),
                    false => largest.is_some_and(|largest| largest * MARGIN <= LARGEST),
                },
                is_mask,
            }
        };
        ranges.push(range);
    }
    ranges
}

/// Whether a constant beyond the limit may still affect the results.
fn passes_masks_on(class: Class) -> bool {
    matches!(class, Class::Arithmetic | Class::Move | Class::Join | Class::Reduction)
}

/// The floating point inputs and outputs, and whether f16 can represent them.
pub(super) fn interface_values<'g>(
    graph: &'g Graph,
    ranges: &'g [Range],
) -> impl Iterator<Item = (&'g str, bool)> {
    let inputs = graph.inputs().map(|(id, node)| (node.name.as_str(), id));
    let outputs = graph.outputs().iter().map(|output| (output.name.as_str(), output.node));
    inputs
        .chain(outputs)
        .filter(|&(_, id)| is_float(graph, id))
        .map(|(name, id)| (name, ranges[id.index()].fits))
}

/// The type in which a node computes. Constants have the type that their reader needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    Constant,
    Full,
    Half,
}

/// The precision of each node.
pub(super) struct Plan {
    precisions: Vec<Precision>,
    /// Nodes that could be f16 and stay f32.
    unwanted: BTreeSet<NodeId>,
}

impl Plan {
    pub(super) fn of(
        graph: &Graph,
        ranges: &[Range],
        may: impl Fn(&str) -> bool,
        keep: impl Fn(&str) -> bool,
        computes_in_f32: bool,
    ) -> Self {
        let (mut precisions, mut unwanted): (Vec<Precision>, _) = (Vec::new(), BTreeSet::new());
        for (id, node) in graph.iter() {
            let inputs = || node.inputs.iter().copied().filter(|&input| is_float(graph, input));
            let fit = || inputs().all(|input| ranges[input.index()].fits);
            let any_half = || inputs().any(|input| precisions[input.index()] == Precision::Half);
            let any_full = || inputs().any(|input| precisions[input.index()] == Precision::Full);
            let fits = ranges[precisions.len()].fits;
            let is_half = match node.op.class() {
                Class::Declared if node.op == Op::Input => {
                    node.ty.dtype == DType::F32 && may(&node.name)
                }
                Class::Declared | Class::Constant
                    if node.op == Op::Parameter || node.ty.dtype.is_float() =>
                {
                    precisions.push(Precision::Constant);
                    continue;
                }
                Class::Product(_) => fit() && fits,
                // A sum with a value that stays f32, such as a normalisation's, also stays f32:
                // this needs fewer casts and roundings.
                Class::Function | Class::Arithmetic => {
                    let is_mask = ranges[precisions.len()].is_mask;
                    fit() && fits && (is_mask || any_half() && !any_full())
                }
                Class::Comparison | Class::Join => fit() && any_half(),
                class @ (Class::Move | Class::Convert) => {
                    let source = node.inputs[0].index();
                    match precisions[source] {
                        Precision::Half => true,
                        Precision::Full => false,
                        Precision::Constant => ranges[source].fits && class == Class::Move,
                    }
                }
                // A cache, and attention to caches, have the type of the cache's input.
                Class::Cache => {
                    let caches = if node.inputs.len() == 2 { 0..1 } else { 1..3 };
                    caches
                        .into_iter()
                        .all(|place| precisions[node.inputs[place].index()] == Precision::Half)
                }
                Class::Normalisation(_) | Class::Softmax(_) => {
                    computes_in_f32 && fit() && fits && any_half()
                }
                Class::Declared | Class::Constant | Class::Reduction => false,
                Class::IntegerProduct(_) | Class::Loop => false,
            };
            if is_half && keep(&node.name) {
                unwanted.insert(id);
            }
            precisions.push(if is_half && !keep(&node.name) {
                Precision::Half
            } else {
                Precision::Full
            });
        }
        Self { precisions, unwanted }
    }

    /// The type in which a node reads its inputs.
    pub(super) fn wants(&self, id: NodeId) -> DType {
        if self.precisions[id.index()] == Precision::Half { DType::F16 } else { DType::F32 }
    }

    /// The parameters that a node reads in f16.
    pub(super) fn half_parameters(&self, graph: &Graph) -> BTreeSet<String> {
        let halves = graph.iter().filter(|(id, _)| self.wants(*id) == DType::F16);
        let read = halves.flat_map(|(_, node)| &node.inputs).map(|&input| graph.node(input));
        read.filter(|node| node.op == Op::Parameter).map(|node| node.name.clone()).collect()
    }

    /// The values that stay f32: names with reasons and largest magnitudes.
    pub(super) fn kept(
        &self,
        graph: &Graph,
        ranges: &[Range],
        interface: impl Fn(&str) -> Option<String>,
        may: impl Fn(&str) -> bool,
    ) -> Vec<(String, Why, Option<f32>)> {
        let refused = |name: &str| interface(name).is_some() && !may(name);
        let mut kept = Vec::new();
        for (id, node) in graph.iter() {
            if let Some(why) = self.why(graph, ranges, id, node, refused) {
                kept.push((node.name.clone(), why, ranges[id.index()].largest));
            }
        }
        for output in graph
            .outputs()
            .iter()
            .filter(|output| is_float(graph, output.node) && refused(&output.name))
        {
            let range = ranges[output.node.index()];
            kept.push((output.name.clone(), range.why().unwrap_or(Why::Reads), range.largest));
        }
        kept
    }

    fn why(
        &self,
        graph: &Graph,
        ranges: &[Range],
        id: NodeId,
        node: &Node,
        refused: impl Fn(&str) -> bool,
    ) -> Option<Why> {
        if self.precisions[id.index()] == Precision::Half || !is_float(graph, id) {
            return None;
        }
        let range = ranges[id.index()];
        if self.unwanted.contains(&id) {
            return Some(Why::Precision);
        }
        match node.op.class() {
            Class::Softmax(_) => Some(Why::Softmax),
            Class::Normalisation(_) => Some(Why::Normalisation),
            Class::Declared if node.op == Op::Parameter => (!range.fits).then_some(Why::Weight),
            Class::Declared => refused(&node.name).then(|| range.why().unwrap_or(Why::Reads)),
            Class::Function | Class::Arithmetic | Class::Product(_) => {
                let reads_too_large = || {
                    node.inputs
                        .iter()
                        .any(|&input| is_float(graph, input) && !ranges[input.index()].fits)
                };
                range.why().or_else(|| reads_too_large().then_some(Why::Reads))
            }
            Class::Constant
            | Class::Comparison
            | Class::Convert
            | Class::Move
            | Class::Join
            | Class::Reduction
            | Class::IntegerProduct(_)
            | Class::Cache
            | Class::Loop => None,
        }
    }
}

impl Range {
    /// Why f16 cannot represent the values; `None` if it can.
    fn why(self) -> Option<Why> {
        match (self.fits, self.is_mask, self.largest) {
            (true, ..) => None,
            (false, true, _) => Some(Why::Mask),
            (false, false, Some(_)) => Some(Why::Range),
            (false, false, None) => Some(Why::Unseen),
        }
    }
}

fn is_float(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).ty.dtype.is_float()
}
