//! Finds rotations of the queries and keys of attention to caches.

use super::read::held;
use super::{CACHED, Found, ROTATION, own, replace};
use crate::program::Places;
use cognate_export::proto::{DimensionProto, GraphProto, NodeProto, ValueInfoProto};

/// Replaces rotations whose results are read only by attention to caches, as rows
/// `[batch · beams, heads · d_k]`; returns their number.
pub(super) fn of_rotations(graph: &mut GraphProto) -> usize {
    let n = replace(graph, rotation);
    let rotated: Vec<_> = graph
        .node
        .iter()
        .filter(|node| node.op_type == ROTATION)
        .map(|node| node.output[0].clone())
        .collect();
    graph.value_info.iter_mut().filter(|info| rotated.contains(&info.name)).for_each(as_rows);
    n
}

/// Changes the shape `[rows, heads, 1, d_k]` to `[rows, heads · d_k]`.
fn as_rows(info: &mut ValueInfoProto) {
    let shape = info.r#type.as_mut().and_then(|ty| ty.tensor_type.as_mut()?.shape.as_mut());
    if let Some(shape) = shape {
        let width = shape.dim[1..].iter().filter_map(|dim| dim.dim_value).product();
        shape.dim.truncate(1);
        shape.dim.push(DimensionProto { dim_value: Some(width), dim_param: None });
    }
}

/// Matches `x · cosines + exchanged(x) · sines`; the node at `index` is the sum.
fn rotation(places: &Places<'_>, index: usize) -> Option<Found> {
    let sum = places.node(index, "Add")?;
    let [(kept_at, kept), (turned_at, turned)] =
        [places.giver(&sum.input[0], "Mul")?, places.giver(&sum.input[1], "Mul")?];
    let (concat_at, exchanged) = places.giver(&turned.input[0], "Concat")?;
    let [second, first] = exchanged.input.as_slice() else { return None };
    let [(second_at, second), (first_at, first)] =
        [places.giver(second, "Slice")?, places.giver(first, "Slice")?];
    let x = &kept.input[0];
    let d_k = places
        .shape(x)
        .filter(|shape| matches!(shape, [_, _, one, _] if one.dim_value == Some(1)))?[3]
        .dim_value?;
    let is_half = |slice: &NodeProto, from: i64| {
        let found = [1, 2, 3].map(|input| places.integer(slice.input.get(input)?));
        slice.input[0] == *x && found == [Some(from), Some(from + d_k / 2), Some(3)]
    };
    let (cosines, beams) = rows_of_positions(places, &kept.input[1])?;
    let (sines, others) = rows_of_positions(places, &turned.input[1])?;
    // A single head is not split.
    let rows = places.giver(x, "Reshape").map_or(x, |(_, reshape)| &reshape.input[0]);
    let inner = [kept_at, turned_at, concat_at, second_at, first_at];
    let is_inner = |at: &usize| {
        places.graph.node[*at].output.iter().all(|tensor| places.readers(tensor).len() == 1)
    };
    let are_read =
        places.readers(&sum.output[0]).iter().all(|&at| places.graph.node[at].op_type == CACHED);
    if !is_half(second, d_k / 2)
        || !is_half(first, 0)
        || beams != others
        || !inner.iter().all(is_inner)
        || !are_read
    {
        return None;
    }
    let inputs = [rows, cosines, sines].into_iter().cloned().chain([beams.to_owned()]).collect();
    let node = own(ROTATION, inputs, sum.output.clone(), &sum.name, Vec::new());
    Some(Found { node, at: index, replaced: inner.into_iter().chain([index]).collect() })
}

/// A table, and the beams that hold earlier positions, from the rows of positions.
fn rows_of_positions<'g>(places: &Places<'g>, tensor: &'g str) -> Option<(&'g String, &'g str)> {
    let (_, reshape) = places.giver(tensor, "Reshape")?;
    let (_, gather) = places.giver(&reshape.input[0], "Gather")?;
    let (beams, 0) = held(places, &gather.input[1])? else { return None };
    Some((&gather.input[0], beams))
}
