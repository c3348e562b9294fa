//! Finds operations on rows between products.

use super::{BETWEEN, Found, attribute, float, integer, own};
use crate::program::{Places, other};
use cognate_export::proto::NodeProto;
use cognate_kernels::Activation;
use std::f32::consts::SQRT_2;

/// Matches the operations on rows from the node at `index`: `[rows, width]` times a column, plus a
/// bias, plus a residual, normalised, activated, and quantised to 8 bits; all are optional.
pub(super) fn between_products(places: &Places<'_>, index: usize) -> Option<Found> {
    let first = places.graph.node[index].output.first()?;
    // A single column is not an activation: the positions of an image's patches, for example.
    if !matches!(places.shape(first)?, [_, width] if width.dim_value.is_some_and(|width| width > 1)) {
        return None;
    }
    let mut inputs = vec![String::new(); 6];
    inputs[0].clone_from(first);
    let mut chain = Chain { places, inputs, x: first, nodes: Vec::new() };
    let shape = |tensor: &String| places.shape(tensor);
    chain.combined("Mul", 1, |factor| matches!(shape(factor), Some([_, width]) if width.dim_value == Some(1)));
    chain.combined("Add", 2, |bias| places.constant(bias).is_some_and(|constant| constant.dims.len() == 1));
    chain
        .combined("Add", 3, |residual| places.constant(residual).is_none() && shape(residual).is_some() && shape(residual) == shape(first));
    let epsilon = chain.normalised().unwrap_or_default();
    let activation = chain.activated();

    let Chain { inputs, x, nodes: mut replaced, .. } = chain;
    let rounded = rounded(places, x);
    let rounding = rounded.as_ref().map_or(&[][..], |rounded| &rounded.nodes);
    let at = *replaced.last().or(rounding.iter().min())?;
    let mut outputs = vec![String::new(); 3];
    if !replaced.is_empty() && (places.is_output(x) || places.readers(x).iter().any(|reader| !rounding.contains(reader))) {
        outputs[0].clone_from(x);
    }
    replaced.extend(rounding);
    if let Some(rounded) = rounded {
        (outputs[1], outputs[2]) = (rounded.bytes.clone(), rounded.largest.clone());
    }
    let attributes = vec![float("epsilon", epsilon), integer("activation", activation as i64)];
    let node = own(BETWEEN, inputs, outputs, &places.graph.node[at].name, attributes);
    (!replaced.is_empty()).then_some(Found { node, at, replaced })
}

/// A chain of operations whose outputs have no other readers.
struct Chain<'p, 'g> {
    places: &'p Places<'g>,
    inputs: Vec<String>,
    /// The output of the last one.
    x: &'g String,
    nodes: Vec<usize>,
}

impl<'g> Chain<'_, 'g> {
    fn go_on(&mut self, at: usize, node: &'g NodeProto) {
        self.nodes.push(at);
        self.x = &node.output[0];
    }

    /// Appends an operation with another tensor that `fits`, which becomes the input at `index`.
    fn combined(&mut self, operation: &str, index: usize, fits: impl Fn(&String) -> bool) {
        let Some((at, node)) = self.places.only_reader(self.x, operation) else { return };
        if let Some(other) = other(node, self.x).filter(|other| fits(other)) {
            self.inputs[index].clone_from(other);
            self.go_on(at, node);
        }
    }

    /// Appends a normalisation, also of rows that others read as they are, if it is the first; returns its epsilon.
    fn normalised(&mut self) -> Option<f32> {
        let mut readers = self.places.readers(self.x).iter().filter(|_| self.nodes.is_empty());
        let first = readers.find_map(|&at| Some((at, self.places.node(at, "LayerNormalization")?)));
        let (at, node) = first.or_else(|| self.places.only_reader(self.x, "LayerNormalization"))?;
        let epsilon = attribute(node, "epsilon")?.f?;
        let [_, weight, bias] = node.input.as_slice() else { return None };
        if node.output.len() != 1 || attribute(node, "axis")?.i != Some(-1) {
            return None;
        }
        (self.inputs[4], self.inputs[5]) = (weight.clone(), bias.clone());
        self.go_on(at, node);
        Some(epsilon)
    }

    fn activated(&mut self) -> Activation {
        if let Some((at, relu)) = self.places.only_reader(self.x, "Relu") {
            self.go_on(at, relu);
            return Activation::Relu;
        }
        if let Some((sigmoid, mul, node)) = self.swish() {
            self.nodes.push(sigmoid);
            self.go_on(mul, node);
            return Activation::Swish;
        }
        if let Some((inner, (half, node))) = self.gelu() {
            self.nodes.extend(inner);
            self.go_on(half, node);
            return Activation::Gelu;
        }
        Activation::Identity
    }

    /// Sigmoid, and the product with its input.
    fn swish(&self) -> Option<(usize, usize, &'g NodeProto)> {
        let &[first, second] = self.places.readers(self.x) else { return None };
        let sigmoid = self.places.node(first, "Sigmoid")?;
        let mul = self.places.node(second, "Mul").filter(|mul| other(mul, self.x) == Some(&sigmoid.output[0]))?;
        let is_inner = !self.places.is_output(self.x) && self.places.only_reader(&sigmoid.output[0], "Mul").is_some();
        is_inner.then_some((first, second, mul))
    }

    /// `x · (erf(x / √2) + 1) · 0.5`: the nodes before the last, and the last.
    fn gelu(&self) -> Option<([usize; 4], (usize, &'g NodeProto))> {
        let with = |node: &NodeProto, x: &str, number: f32| other(node, x).and_then(|other| self.places.number(other)) == Some(number);
        let &[first, third] = self.places.readers(self.x) else { return None };
        let div = self.places.node(first, "Div").filter(|div| div.input[0] == *self.x && with(div, self.x, SQRT_2))?;
        let (erf, erfs) = self.places.only_reader(&div.output[0], "Erf")?;
        let (add, sum) = self.places.only_reader(&erfs.output[0], "Add").filter(|(_, add)| with(add, &erfs.output[0], 1.0))?;
        let mul = self.places.node(third, "Mul").filter(|mul| other(mul, self.x) == Some(&sum.output[0]))?;
        let (half, last) = self.places.only_reader(&mul.output[0], "Mul").filter(|(_, last)| with(last, &mul.output[0], 0.5))?;
        let is_inner = !self.places.is_output(self.x) && self.places.only_reader(&sum.output[0], "Mul").is_some();
        is_inner.then_some(([first, erf, add, third], (half, last)))
    }
}

/// The operations that quantise rows to 8 bits.
struct Rounded<'g> {
    bytes: &'g String,
    largest: &'g String,
    nodes: [usize; 4],
}

fn rounded<'g>(places: &Places<'g>, x: &str) -> Option<Rounded<'g>> {
    let readers = |operation| {
        let mut found = places.readers(x).iter().filter_map(move |&at| Some((at, places.node(at, operation)?)));
        found.next().filter(|_| found.next().is_none())
    };
    let ((abs, sizes), (div, unit)) = (readers("Abs")?, readers("Div")?);
    let (reduce, largest) = places.only_reader(&sizes.output[0], "ReduceMax")?;
    let is_last_axis = largest.input.get(1).and_then(|axes| places.bytes(axes)) == Some(&(-1i64).to_le_bytes());
    let keeps = attribute(largest, "keepdims").is_some_and(|keeps| keeps.i == Some(1));
    let (quantize, bytes) = places.only_reader(&unit.output[0], "QuantizeLinear")?;
    let [_, step, zero] = bytes.input.as_slice() else { return None };
    // A row of zeros gives the same bytes for any divisor.
    let divisor = places.giver(&unit.input[1], "Max").map_or(&unit.input[1], |(_, max)| &max.input[0]);
    let is_ours = places.number(step) == Some(1.0 / 127.0) && places.bytes(zero) == Some(&[128]);
    if !is_last_axis || !keeps || !is_ours || unit.input[0] != x || *divisor != largest.output[0] {
        return None;
    }
    Some(Rounded { bytes: &bytes.output[0], largest: &largest.output[0], nodes: [abs, reduce, div, quantize] })
}
