//! Finds convolutions over time.

use super::rows::Chain;
use super::{CONVOLUTIONS, Found, attribute, own, permutes};
use crate::program::{Places, other};
use cognate_export::proto::{AttributeProto, AttributeType, NodeProto};

pub(super) const STRIDES: &str = "strides";
pub(super) const PADDINGS: &str = "paddings";
pub(super) const ACTIVATIONS: &str = "activations";

/// Matches convolutions of the frames `[batch, channels, n]` of an input, from the node at `index`
/// to the transpose after the last, and the sum with the rows of their positions.
pub(super) fn convolutions(places: &Places<'_>, index: usize) -> Option<Found> {
    let mut node = places.node(index, "Conv")?;
    let frames = node.input.first()?;
    if !places.graph.input.iter().any(|input| input.name == *frames) {
        return None;
    }
    let (mut inputs, mut replaced, mut at) = (vec![frames.clone()], Vec::new(), index);
    let mut of_layers: [Vec<i64>; 3] = Default::default();
    let transpose = loop {
        let (stride, padding) = sizes(node)?;
        let [_, weight, bias] = node.input.as_slice() else { return None };
        let has_axes = |name: &str, axes: usize| {
            places.constant(name).is_some_and(|constant| constant.dims.len() == axes)
        };
        if !has_axes(weight, 3) || !has_axes(bias, 1) {
            return None;
        }
        inputs.extend([weight.clone(), bias.clone()]);
        let mut chain = Chain { places, inputs: Vec::new(), x: &node.output[0], nodes: vec![at] };
        let activation = chain.activated() as i64;
        let of_layer = [stride, padding, activation];
        of_layers.iter_mut().zip(of_layer).for_each(|(all, number)| all.push(number));
        let Chain { x, nodes, .. } = chain;
        replaced.extend(nodes);
        if let Some(last) = places.only_reader(x, "Transpose") {
            break last;
        }
        (at, node) = places.only_reader(x, "Conv").filter(|(_, next)| next.input[0] == *x)?;
    };
    if !permutes(transpose.1, &[0, 2, 1]) {
        return None;
    }
    replaced.push(transpose.0);
    let mut out = &transpose.1.output[0];
    if let Some((add, sum, table)) = positions(places, out) {
        replaced.push(add);
        inputs.push(table.into());
        out = &sum.output[0];
    }
    let at = *replaced.last()?;
    let names = [STRIDES, PADDINGS, ACTIVATIONS];
    let attributes = names.into_iter().zip(of_layers).map(|(name, ints)| AttributeProto {
        name: name.into(),
        r#type: AttributeType::Ints as i32,
        ints,
        ..AttributeProto::default()
    });
    let name = &places.graph.node[at].name;
    let node = own(CONVOLUTIONS, inputs, vec![out.clone()], name, attributes.collect());
    Some(Found { node, at, replaced })
}

/// Stride and padding of a convolution over one axis.
fn sizes(node: &NodeProto) -> Option<(i64, i64)> {
    let ints = |name| attribute(node, name).map(|attribute| attribute.ints.as_slice());
    let is_known = |attribute: &AttributeProto| {
        ["strides", "pads"].contains(&attribute.name.as_str())
            || attribute.name == "dilations" && attribute.ints == [1]
    };
    let (&[stride], &[before, after]) = (ints("strides")?, ints("pads")?) else { return None };
    let is_ours = node.attribute.iter().all(is_known) && before == after && stride > 0;
    is_ours.then_some((stride, before))
}

/// The only reader of rows, if it adds those of a table, from the first on.
fn positions<'g>(places: &Places<'g>, x: &str) -> Option<(usize, &'g NodeProto, &'g str)> {
    let (at, add) = places.only_reader(x, "Add")?;
    let (_, slice) = places.giver(other(add, x)?, "Slice")?;
    let [table, start, _, axis] = slice.input.as_slice() else { return None };
    let is_start = [start, axis].iter().all(|input| places.integer(input) == Some(0));
    let is_table = places.constant(table).is_some_and(|table| table.dims.len() == 2);
    let is_same = places.shape(x)?.get(1..) == places.shape(&slice.output[0]);
    (is_start && is_table && is_same).then_some((at, add, table.as_str()))
}
