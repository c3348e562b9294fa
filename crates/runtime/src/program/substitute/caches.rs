//! Finds attention to shared caches: ONNX Runtime's operator, and the equivalent standard
//! operations.

use super::{CACHED, Found, attribute, float, integer, own, permutes};
use crate::program::{Places, Size};
use cognate_export::proto::NodeProto;

/// Matches ONNX Runtime's operator, the node at `index`.
pub(super) fn of_operator(places: &Places<'_>, index: usize) -> Option<Found> {
    let node = &places.graph.node[index];
    if node.op_type != "DecoderMaskedMultiHeadAttention" || node.domain != "com.microsoft" {
        return None;
    }
    let scale = attribute(node, "scale")?.f?;
    let [query, key, value, mask, bias, keys, values, _, _, holders] = node.input.as_slice() else {
        return None;
    };
    // Padded to the capacity, as the operator needs them.
    let (_, cast) = places.giver(holders, "Cast")?;
    let (_, pad) = places.giver(&cast.input[0], "Pad")?;
    let bias = Some(bias).filter(|bias| !bias.is_empty());
    let inputs =
        [query, key, value, keys, values, &pad.input[0]].into_iter().chain(bias).cloned().collect();
    let node = own(CACHED, inputs, node.output.clone(), &node.name, vec![float("scale", scale)]);
    mask.is_empty().then(|| Found { node, at: index, replaced: vec![index] })
}

/// Matches the standard operations around the softmax at `index`, in which a mask selects for each
/// beam the caches that hold its positions.
pub(super) fn of_operations(places: &Places<'_>, index: usize) -> Option<Found> {
    let softmax = places.node(index, "Softmax")?;
    let mut path = Path { places, inner: vec![index] };
    let masked = path.before(&softmax.input[0], "Add")?;
    let (beams, window) = seen(places, &masked.input[1])?;
    let mut scores = &masked.input[0];
    let mut bias = None;
    if let Some(biased) = path.before(scores, "Add") {
        (scores, bias) = (&biased.input[0], Some(path.bias(&biased.input[1])?));
    }
    let mut cap = None;
    if let Some(capped) = path.before(scores, "Mul") {
        let bounded = path.before(&capped.input[0], "Tanh")?;
        let quotient = path.before(&bounded.input[0], "Div")?;
        let bound = places
            .number(&capped.input[1])
            .filter(|bound| places.number(&quotient.input[1]) == Some(*bound))?;
        (scores, cap) = (&quotient.input[0], Some(bound));
    }
    let product = path.before(scores, "MatMul")?;
    let scaled = path.before(&product.input[0], "Mul")?;
    let query = path.by_head(&scaled.input[0])?;
    let turned =
        path.before(&product.input[1], "Transpose").filter(|node| permutes(node, &[0, 1, 3, 2]))?;
    let keys = path.cache(&turned.input[0], beams)?;
    let weighted = path.after(&softmax.output[0], "MatMul")?;
    let values = path.cache(&weighted.input[1], beams)?;
    let merged = path
        .after(&weighted.output[0], "Transpose")
        .filter(|node| permutes(node, &[0, 2, 1, 3]))?;
    let (at, rows) = places.only_reader(&merged.output[0], "Reshape")?;

    let inputs = [query, keys.new, values.new, keys.old, values.old, beams]
        .into_iter()
        .chain(bias)
        .map(str::to_owned);
    let outputs = vec![rows.output[0].clone(), keys.written.into(), values.written.into()];
    let mut attributes = vec![float("scale", places.number(&scaled.input[1])?)];
    attributes.extend(cap.map(|cap| float("cap", cap)));
    attributes.extend(window.map(|window| integer("window", window)));
    let node = own(CACHED, inputs.collect(), outputs, &softmax.name, attributes);
    path.inner.push(at);
    path.is_closed(&node).then(|| Found { node, at, replaced: path.inner })
}

/// A cache that is written and then read.
struct Cache<'g> {
    old: &'g str,
    new: &'g str,
    written: &'g str,
}

/// Nodes of one attention.
struct Path<'p, 'g> {
    places: &'p Places<'g>,
    inner: Vec<usize>,
}

impl<'g> Path<'_, 'g> {
    /// The operation that computes `tensor`, ignoring reshapes after it.
    fn before(&mut self, tensor: &'g str, operation: &str) -> Option<&'g NodeProto> {
        let (mut reshapes, before) = self.unshaped(tensor);
        let (at, node) = self.places.giver(before, operation)?;
        self.inner.append(&mut reshapes);
        self.inner.push(at);
        Some(node)
    }

    /// The operation that alone reads `tensor`, ignoring reshapes before it.
    fn after(&mut self, tensor: &'g str, operation: &str) -> Option<&'g NodeProto> {
        match self.places.only_reader(tensor, "Reshape") {
            Some((at, reshape)) => {
                self.inner.push(at);
                self.after(&reshape.output[0], operation)
            }
            None => {
                let (at, node) = self.places.only_reader(tensor, operation)?;
                self.inner.push(at);
                Some(node)
            }
        }
    }

    /// The reshapes that compute `tensor`, and their input.
    fn unshaped(&self, mut tensor: &'g str) -> (Vec<usize>, &'g str) {
        let mut reshapes = Vec::new();
        while let Some((at, reshape)) = self.places.giver(tensor, "Reshape") {
            reshapes.push(at);
            tensor = &reshape.input[0];
        }
        (reshapes, tensor)
    }

    /// The tensor that was split into heads.
    fn by_head(&mut self, tensor: &'g str) -> Option<&'g str> {
        let turned =
            self.before(tensor, "Transpose").filter(|node| permutes(node, &[0, 2, 1, 3]))?;
        let (mut reshapes, rows) = self.unshaped(&turned.input[0]);
        self.inner.append(&mut reshapes);
        Some(rows)
    }

    /// The cache whose first positions are the heads `tensor`.
    fn cache(&mut self, tensor: &'g str, beams: &str) -> Option<Cache<'g>> {
        let sliced = self.by_head(tensor)?;
        let slice = self.before(sliced, "Slice")?;
        let [_, start, end, axis] = slice.input.as_slice() else { return None };
        let write = self.before(&slice.input[0], "ScatterElements")?;
        let (_, places) = self.places.giver(&write.input[1], "Expand")?;
        let past = |tensor| match self.places.sizes(tensor)?.as_slice() {
            [Size::Axis(input, 2)] => Some((*input, 0)),
            [Size::Sum(one, other, 1)] => match (one.as_ref(), other.as_ref()) {
                (Size::Axis(input, 2), Size::Number(more))
                | (Size::Number(more), Size::Axis(input, 2)) => Some((*input, *more)),
                _ => None,
            },
            _ => None,
        };
        let is_written =
            past(&places.input[0]) == Some((beams, 0)) && attribute(write, "axis")?.i == Some(2);
        let is_read = past(end) == Some((beams, 1))
            && [start, axis].map(|number| self.places.integer(number)) == [Some(0), Some(2)];
        let (mut reshapes, new) = self.unshaped(&write.input[2]);
        self.inner.append(&mut reshapes);
        (is_written && is_read).then_some(Cache {
            old: &write.input[0],
            new,
            written: &write.output[0],
        })
    }

    /// A bias before it was repeated for each beam.
    fn bias(&mut self, tensor: &'g str) -> Option<&'g str> {
        let expand = self.places.giver(self.unshaped(tensor).1, "Expand")?.1;
        let bias = self.unshaped(&expand.input[0]).1;
        self.places.has_axes(bias, 4).then_some(bias)
    }

    /// Whether the results of the nodes are read only by these nodes, except for the outputs of
    /// `made`.
    fn is_closed(&self, made: &NodeProto) -> bool {
        let given = self.inner.iter().flat_map(|&at| &self.places.graph.node[at].output);
        let is_own = |tensor: &String| {
            self.places.readers(tensor).iter().all(|reader| self.inner.contains(reader))
        };
        let is_context = |tensor: &String| *tensor == made.output[0];
        given.filter(|tensor| !is_context(tensor)).all(|tensor| {
            is_own(tensor) && (made.output.contains(tensor) || !self.places.is_output(tensor))
        })
    }
}

/// The input with the beam of each position, and the window, of a mask
/// `[batch, 1, beams, 1, beams · (past + 1)]`.
fn seen<'g>(places: &Places<'g>, mask: &'g str) -> Option<(&'g str, Option<i64>)> {
    let (_, reshape) = places.giver(mask, "Reshape")?;
    let (_, chosen) = places.giver(&reshape.input[0], "Where")?;
    let (_, equal) = places.giver(&chosen.input[0], "Equal")?;
    let (_, reshape) = places.giver(&equal.input[0], "Reshape")?;
    let (_, held) = places.giver(&reshape.input[0], "Concat")?;
    let beams = held
        .input
        .first()
        .filter(|beams| places.graph.input.iter().any(|input| input.name == **beams))?;
    let window = match places.giver(&chosen.input[1], "Where") {
        None if places.number(&chosen.input[1]) == Some(0.0) => None,
        None => return None,
        Some((_, near)) => {
            Some(places.integer(&places.giver(&near.input[0], "LessOrEqual")?.1.input[1])? + 1)
        }
    };
    places.has_axes(beams, 3).then_some((beams, window))
}
