//! Finds rotations of queries and keys.

use super::attention::Axes;
use super::read::{consecutive, held};
use super::{CACHED, Found, ROTATION, own, permutes, prune, replace};
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

/// Rotates rows before they are split into heads, whose numbers are those of the rows: what reads
/// heads of rows then finds them; returns the number of rotations.
pub(super) fn before_heads(graph: &mut GraphProto) -> usize {
    let places = Places::new(graph);
    let found: Vec<_> =
        (0..graph.node.len()).filter_map(|index| of_heads(&places, index)).collect();
    for RotatedHeads { nodes, infos, at } in found.iter().rev() {
        graph.node.splice(at..=at, nodes.iter().cloned());
        graph.value_info.extend(infos.iter().cloned());
    }
    prune(graph);
    found.len()
}

/// Rotated rows, their heads, and these in the order in which they were rotated.
struct RotatedHeads {
    nodes: [NodeProto; 3],
    /// The types of the rows and of their heads.
    infos: [ValueInfoProto; 2],
    /// The last node of the rotation.
    at: usize,
}

fn of_heads(places: &Places<'_>, index: usize) -> Option<RotatedHeads> {
    let Parts { x, factors, out, .. } = parts(places, index)?;
    let (_, transpose) = places.giver(x, "Transpose")?;
    let (_, reshape) = places.giver(&transpose.input[0], "Reshape")?;
    let rows = &reshape.input[0];
    let is_split = permutes(transpose, Axes::of(places, x)?.of_heads());
    // Each row of the tables is that of a position of the sequence.
    let follow_rows = factors.iter().all(|factor| places.has_axes(factor, 2));
    let [cosines, sines] = factors.map(|tensor| factor(places, tensor));
    let (cosines, sines) = (cosines?, sines?);
    let are_same = follow_rows && cosines.from == sines.from;
    let broadcasts = places.shape(out)? != places.shape(x)?;
    if !is_split || !are_same || broadcasts || !places.has_axes(rows, 2) {
        return None;
    }
    let [rotated, heads] = ["rows", "heads"].map(|what| format!("{out}.rotated_{what}"));
    let inputs = [rows, cosines.table, sines.table, cosines.positions].map(str::to_owned).into();
    let rotation = own(ROTATION, inputs, vec![rotated.clone()], &rotated, Vec::new());
    let (mut split, mut turned) = (reshape.clone(), transpose.clone());
    (split.input[0], split.output[0], split.name) = (rotated.clone(), heads.clone(), heads.clone());
    (turned.input[0], turned.output[0], turned.name) = (heads.clone(), out.clone(), out.clone());
    let info = |of: &String, name: String| {
        let known = places.graph.value_info.iter().find(|info| info.name == *of)?;
        Some(ValueInfoProto { name, ..known.clone() })
    };
    let infos = [info(rows, rotated)?, info(&reshape.output[0], heads)?];
    Some(RotatedHeads { nodes: [rotation, split, turned], infos, at: index })
}

/// `x · cosines + exchanged(x) · sines`.
struct Parts<'g> {
    x: &'g String,
    /// The cosines and the sines.
    factors: [&'g String; 2],
    /// The nodes before the sum.
    inner: [usize; 5],
    out: &'g String,
}

/// Matches a rotation; the node at `index` is the sum.
fn parts<'g>(places: &Places<'g>, index: usize) -> Option<Parts<'g>> {
    let sum = places.node(index, "Add")?;
    let [(kept_at, kept), (turned_at, turned)] =
        [places.giver(&sum.input[0], "Mul")?, places.giver(&sum.input[1], "Mul")?];
    let (concat_at, exchanged) = places.giver(&turned.input[0], "Concat")?;
    let [second, first] = exchanged.input.as_slice() else { return None };
    let [(second_at, second), (first_at, first)] =
        [places.giver(second, "Slice")?, places.giver(first, "Slice")?];
    let x = &kept.input[0];
    let shape = places.shape(x)?;
    let (d_k, axis) = (shape.last()?.dim_value?, shape.len() as i64 - 1);
    let is_half = |slice: &NodeProto, from: i64| {
        let found = [1, 2, 3].map(|input| places.integer(slice.input.get(input)?));
        slice.input[0] == *x && found == [Some(from), Some(from + d_k / 2), Some(axis)]
    };
    (is_half(second, d_k / 2) && is_half(first, 0)).then_some(Parts {
        x,
        factors: [&kept.input[1], &turned.input[1]],
        inner: [kept_at, turned_at, concat_at, second_at, first_at],
        out: &sum.output[0],
    })
}

/// Matches a rotation of one position in each row; the node at `index` is its sum.
fn rotation(places: &Places<'_>, index: usize) -> Option<Found> {
    let Parts { x, factors: [cosines, sines], inner, out } = parts(places, index)?;
    let is_single = matches!(places.shape(out)?, [_, _, one, _] if one.dim_value == Some(1));
    let (cosines, sines) = (factor(places, cosines)?, factor(places, sines)?);
    // A single head is not split.
    let rows = places.giver(x, "Reshape").map_or(x, |(_, reshape)| &reshape.input[0]);
    let is_inner = |at: &usize| {
        places.graph.node[*at].output.iter().all(|tensor| places.readers(tensor).len() == 1)
    };
    let are_same = cosines.from == sines.from;
    if !is_single || !are_same || !inner.iter().all(is_inner) || !is_for_caches(places, out) {
        return None;
    }
    let inputs = [rows, cosines.table, sines.table, cosines.positions].map(str::to_owned).into();
    let name = &places.graph.node[index].name;
    let node = own(ROTATION, inputs, vec![out.clone()], name, Vec::new());
    Some(Found { node, at: index, replaced: inner.into_iter().chain([index]).collect() })
}

/// Rows of a table of cosines or sines.
struct Factor<'g> {
    table: &'g String,
    /// The positions in a range, or the beams that hold earlier ones.
    positions: &'g str,
    /// What they are computed from.
    from: Vec<&'g str>,
}

fn factor<'g>(places: &Places<'g>, tensor: &'g str) -> Option<Factor<'g>> {
    let rows = places.giver(tensor, "Reshape").map_or(tensor, |(_, reshape)| &reshape.input[0]);
    let (_, gather) = places.giver(rows, "Gather")?;
    let [table, rows] = gather.input.as_slice() else { return None };
    places.constant(table).filter(|table| table.dims.len() == 2)?;
    if let Some((beams, offset)) = held(places, rows) {
        return (offset == 0).then(|| Factor { table, positions: beams, from: vec![beams] });
    }
    consecutive(places, rows)?;
    let (_, range) = places.giver(rows, "Range")?;
    let from = range.input.iter().map(String::as_str).collect();
    Some(Factor { table, positions: rows, from })
}

/// Whether only attention to caches reads a tensor, perhaps in another shape.
fn is_for_caches(places: &Places<'_>, tensor: &str) -> bool {
    places.readers(tensor).iter().all(|&reader| {
        let node = &places.graph.node[reader];
        let is_reshape = || {
            let reshape = places.node(reader, "Reshape")?;
            Some(reshape.input[0] == tensor && is_for_caches(places, &reshape.output[0]))
        };
        node.op_type == CACHED || is_reshape() == Some(true)
    })
}
