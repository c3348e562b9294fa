//! Finds operations on rows between products.

use super::{BETWEEN, Found, GATE, attribute, float, integer, own};
use crate::program::{Places, other};
use cognate_export::proto::{DataType, NodeProto};
use cognate_kernels::Activation;
use std::f32::consts::{FRAC_2_PI, SQRT_2};

/// Matches the operations on rows from the node at `index`: `[rows, width]` times a column, plus a
/// bias, plus a residual, normalised, activated, and quantised to 8 bits; all are optional.
pub(super) fn between_products(places: &Places<'_>, index: usize) -> Option<Found> {
    let first = places.graph.node[index].output.first()?;
    if !places.has_elements(first, DataType::Float) {
        return None;
    }
    // A single column is not an activation: the positions of an image's patches, for example.
    let is_in_two_axes = match places.shape(first)? {
        [_, width] if width.dim_value.is_some_and(|width| width > 1) => true,
        // Embeddings: see `operation`.
        [_, _, .., width] if width.dim_value.is_some_and(|width| width > 1) => false,
        _ => return None,
    };
    let mut inputs = vec![String::new(); 6];
    inputs[0].clone_from(first);
    let mut chain = Chain { places, inputs, x: first, nodes: Vec::new() };
    let shape = |tensor: &String| places.shape(tensor);
    let (epsilon, activation) = if is_in_two_axes {
        chain.combined(
            "Mul",
            1,
            |factor| matches!(shape(factor), Some([_, width]) if width.dim_value == Some(1)),
        );
        let factor = without_minimum(places, &chain.inputs[1]).to_owned();
        chain.inputs[1] = factor;
        chain.combined("Add", 2, |bias| {
            places.constant(bias).is_some_and(|constant| constant.dims.len() == 1)
        });
        let is_residual =
            |residual: &String| places.constant(residual).is_none() && shape(residual).is_some();
        chain.combined("Add", 3, |residual| {
            is_residual(residual) && shape(residual) == shape(first)
        });
        (
            chain.normalised().or_else(|| chain.normalised_by_root()).unwrap_or_default(),
            chain.activated(),
        )
    } else {
        (chain.normalised_by_root()?, Activation::Identity)
    };

    let Chain { inputs, x, nodes: mut replaced, .. } = chain;
    let rounded = rounded(places, x);
    let rounding = rounded.as_ref().map_or(&[][..], |rounded| &rounded.nodes);
    let at = *replaced.last().or(rounding.iter().min())?;
    let mut outputs = vec![String::new(); 3];
    if !replaced.is_empty()
        && (places.is_output(x)
            || places.readers(x).iter().any(|reader| !rounding.contains(reader)))
    {
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

/// Matches the product of two parts of rows; the node at `index` slices the first, which has an
/// activation.
pub(super) fn gates(places: &Places<'_>, index: usize) -> Option<Found> {
    let first = places.node(index, "Slice")?.output.first()?;
    let is_cut = |tensor: &String| {
        places.giver(tensor, "Slice").is_some() && places.shape(tensor) == places.shape(first)
    };
    if !places.has_axes(first, 2) {
        return None;
    }
    let mut chain =
        Chain { places, inputs: vec![first.clone(), String::new()], x: first, nodes: Vec::new() };
    let activation = chain.activated();
    chain.combined("Mul", 1, is_cut);
    let Chain { inputs, x, nodes, .. } = chain;
    let at = *nodes.last().filter(|_| !inputs[1].is_empty())?;
    let attributes = vec![integer("activation", activation as i64)];
    let node = own(GATE, inputs, vec![x.clone()], &places.graph.node[at].name, attributes);
    Some(Found { node, at, replaced: nodes })
}

/// A chain of operations whose outputs have no other readers.
pub(super) struct Chain<'p, 'g> {
    pub(super) places: &'p Places<'g>,
    pub(super) inputs: Vec<String>,
    /// The output of the last one.
    pub(super) x: &'g String,
    pub(super) nodes: Vec<usize>,
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

    /// Appends a normalisation if it is the first, also of rows that others read before it; returns
    /// its epsilon.
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

    /// As [`Chain::normalised`] by the root of the mean square:
    /// `x / √(mean(x²) + epsilon) · weight`.
    fn normalised_by_root(&mut self) -> Option<f32> {
        let readers = self.places.readers(self.x);
        let is_read_here =
            self.nodes.is_empty() || (readers.len() == 2 && !self.places.is_output(self.x));
        let square = |&at: &usize| {
            self.places.node(at, "Pow").filter(|pow| self.places.number(&pow.input[1]) == Some(2.0))
        };
        let (at, pow) =
            readers.iter().find_map(|at| Some((*at, square(at)?))).filter(|_| is_read_here)?;
        let (mean_at, mean) = self.places.only_reader(&pow.output[0], "ReduceMean")?;
        let is_last_axis = mean.input.get(1).and_then(|axes| self.places.integer(axes)) == Some(-1);
        let (add_at, add) =
            self.places.only_reader(&mean.output[0], "Add").filter(|_| is_last_axis)?;
        let epsilon = self.places.number(&add.input[1])?;
        let (root_at, root) = self.places.only_reader(&add.output[0], "Sqrt")?;
        let (unit_at, unit) = self
            .places
            .only_reader(&root.output[0], "Div")
            .filter(|(_, unit)| unit.input[0] == *self.x)?;
        let (last, product) = self.places.only_reader(&unit.output[0], "Mul")?;
        let weight = other(product, &unit.output[0])?;
        let constant = |tensor: &str| {
            self.places.constant(tensor).is_some_and(|constant| constant.dims.len() == 1)
        };
        let more = self
            .places
            .giver(weight, "Add")
            .filter(|(_, add)| self.places.number(&add.input[1]).is_some());
        let is_constant = constant(weight) || more.is_some_and(|(_, add)| constant(&add.input[0]));
        if !is_constant {
            return None;
        }
        self.inputs[4].clone_from(weight);
        self.nodes.extend([at, mean_at, add_at, root_at, unit_at]);
        self.go_on(last, product);
        Some(epsilon)
    }

    pub(super) fn activated(&mut self) -> Activation {
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
        if let Some((inner, (last, node))) = self.tanh_gelu() {
            self.nodes.extend(inner);
            self.go_on(last, node);
            return Activation::TanhGelu;
        }
        Activation::Identity
    }

    /// A sigmoid, and the product with its input.
    fn swish(&self) -> Option<(usize, usize, &'g NodeProto)> {
        let &[first, second] = self.places.readers(self.x) else { return None };
        let sigmoid = self.places.node(first, "Sigmoid")?;
        let mul = self
            .places
            .node(second, "Mul")
            .filter(|mul| other(mul, self.x) == Some(&sigmoid.output[0]))?;
        let is_inner = !self.places.is_output(self.x)
            && self.places.only_reader(&sigmoid.output[0], "Mul").is_some();
        is_inner.then_some((first, second, mul))
    }

    /// Whether the other input of a node is this number.
    fn is_with(&self, node: &NodeProto, x: &str, number: f32) -> bool {
        other(node, x).and_then(|other| self.places.number(other)) == Some(number)
    }

    /// `(tanh((x · 0.044715 · x + 1) · (x · √(2/π))) + 1) · (x · 0.5)`: the nodes before the last,
    /// and the last.
    fn tanh_gelu(&self) -> Option<([usize; 8], (usize, &'g NodeProto))> {
        let read = |at: usize, operation: &str| self.places.node(at, operation);
        let &[cubic, square, linear, half] = self.places.readers(self.x) else { return None };
        let first = read(cubic, "Mul").filter(|mul| self.is_with(mul, self.x, 0.044_715))?;
        let second =
            read(square, "Mul").filter(|mul| other(mul, self.x) == Some(&first.output[0]))?;
        let (add, sum) = self
            .places
            .only_reader(&second.output[0], "Add")
            .filter(|(_, sum)| self.is_with(sum, &second.output[0], 1.0))?;
        let scaled =
            read(linear, "Mul").filter(|mul| self.is_with(mul, self.x, FRAC_2_PI.sqrt()))?;
        let (inner, product) = self.places.only_reader(&scaled.output[0], "Mul")?;
        let (tanh, share) = self
            .places
            .only_reader(&product.output[0], "Tanh")
            .filter(|_| product.input.contains(&sum.output[0]))?;
        let (more, shifted) = self
            .places
            .only_reader(&share.output[0], "Add")
            .filter(|(_, shifted)| self.is_with(shifted, &share.output[0], 1.0))?;
        let halved = read(half, "Mul").filter(|mul| self.is_with(mul, self.x, 0.5))?;
        let (last, node) = self
            .places
            .only_reader(&halved.output[0], "Mul")
            .filter(|(_, node)| node.input.contains(&shifted.output[0]))?;
        let is_inner = |tensor: &String| {
            !self.places.is_output(tensor) && self.places.readers(tensor).len() == 1
        };
        let are_inner = !self.places.is_output(self.x)
            && [first, sum, shifted].iter().all(|node| is_inner(&node.output[0]));
        are_inner.then_some(([cubic, square, add, linear, inner, tanh, more, half], (last, node)))
    }

    /// `x · (erf(x / √2) + 1) · 0.5`: the nodes before the last, and the last.
    fn gelu(&self) -> Option<([usize; 4], (usize, &'g NodeProto))> {
        let with = |node: &NodeProto, x: &str, number: f32| self.is_with(node, x, number);
        let &[first, third] = self.places.readers(self.x) else { return None };
        let div = self
            .places
            .node(first, "Div")
            .filter(|div| div.input[0] == *self.x && with(div, self.x, SQRT_2))?;
        let (erf, erfs) = self.places.only_reader(&div.output[0], "Erf")?;
        let (add, sum) = self
            .places
            .only_reader(&erfs.output[0], "Add")
            .filter(|(_, add)| with(add, &erfs.output[0], 1.0))?;
        let mul = self
            .places
            .node(third, "Mul")
            .filter(|mul| other(mul, self.x) == Some(&sum.output[0]))?;
        let (half, last) = self
            .places
            .only_reader(&mul.output[0], "Mul")
            .filter(|(_, last)| with(last, &mul.output[0], 0.5))?;
        let is_inner = !self.places.is_output(self.x)
            && self.places.only_reader(&sum.output[0], "Mul").is_some();
        is_inner.then_some(([first, erf, add, third], (half, last)))
    }
}

/// The largest magnitudes of rows that a minimum keeps above zero: a row of zeros is rounded to the
/// same bytes for any divisor, and its products are zero for any factor.
fn without_minimum<'t>(places: &Places<'t>, magnitudes: &'t str) -> &'t str {
    const TINY: f32 = 1e-20;
    let max = places.giver(magnitudes, "Max").filter(|(_, max)| {
        max.input.get(1).and_then(|least| places.number(least)).is_some_and(|least| least < TINY)
    });
    max.map_or(magnitudes, |(_, max)| &max.input[0])
}

/// The operations that quantise rows to 8 bits.
struct Rounded<'g> {
    bytes: &'g String,
    largest: &'g String,
    nodes: [usize; 4],
}

fn rounded<'g>(places: &Places<'g>, x: &str) -> Option<Rounded<'g>> {
    let readers = |operation| {
        let mut found =
            places.readers(x).iter().filter_map(move |&at| Some((at, places.node(at, operation)?)));
        found.next().filter(|_| found.next().is_none())
    };
    let ((abs, sizes), (div, unit)) = (readers("Abs")?, readers("Div")?);
    let (reduce, largest) = places.only_reader(&sizes.output[0], "ReduceMax")?;
    let is_last_axis =
        largest.input.get(1).and_then(|axes| places.bytes(axes)) == Some(&(-1i64).to_le_bytes());
    let keeps = attribute(largest, "keepdims").is_some_and(|keeps| keeps.i == Some(1));
    let (quantize, bytes) = places.only_reader(&unit.output[0], "QuantizeLinear")?;
    let [_, step, zero] = bytes.input.as_slice() else { return None };
    let divisor = without_minimum(places, &unit.input[1]);
    let is_ours = places.number(step) == Some(1.0 / 127.0) && places.bytes(zero) == Some(&[128]);
    if !is_last_axis || !keeps || !is_ours || unit.input[0] != x || divisor != largest.output[0] {
        return None;
    }
    Some(Rounded {
        bytes: &bytes.output[0],
        largest: &largest.output[0],
        nodes: [abs, reduce, div, quantize],
    })
}
