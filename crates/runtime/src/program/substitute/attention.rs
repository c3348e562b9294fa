//! Finds subgraphs of attention.

use super::{Found, GROWN, MEMORY, SELF, attribute, float, integer, own, permutes};
use crate::program::{Places, other};
use cognate_export::proto::NodeProto;

/// Matches `softmax(scale · Q Kᵀ (+ mask)) V` around the softmax at `index`, from rows
/// `[batch · n, heads · d_k]` to such rows.
pub(super) fn of_memory(places: &Places<'_>, index: usize) -> Option<Found> {
    let softmax = places.node(index, "Softmax")?;
    let (scores, mask, mut inner) = match places.giver(&softmax.input[0], "Add") {
        Some((sum, add)) => {
            let [scores, mask] = add.input.as_slice() else { return None };
            (scores, Some(mask), vec![sum])
        }
        None => (&softmax.input[0], None, Vec::new()),
    };
    let (product, matmul) = places.giver(scores, "MatMul")?;
    inner.push(product);
    let [queries, keys] = matmul.input.as_slice() else { return None };
    let axes = Axes::of(places, scores)?;
    let mut path = Path { places, axes, scale: 1.0, inner };
    let queries = path.heads_of(queries)?;
    let keys = path.unscaled(keys);
    let keys = path.transposed(keys, axes.of_keys())?;

    let weights = weights(places, &softmax.output[0]);
    let (weighted, product) = weights
        .as_ref()
        .map(|weights| weights.reader)
        .or_else(|| places.only_reader(&softmax.output[0], "MatMul"))?;
    let values =
        other(product, &softmax.output[0]).filter(|values| product.input[1] == **values)?;
    let (turned, transpose) = places
        .only_reader(&product.output[0], "Transpose")
        .filter(|(_, node)| permutes(node, axes.of_heads()))?;
    let (at, reshape) = places.only_reader(&transpose.output[0], "Reshape")?;
    if mask.is_some_and(|mask| !axes.broadcasts(places, mask))
        || !places.has_axes(&reshape.output[0], 2)
    {
        return None;
    }
    let (name, mut out) = (&softmax.name, reshape.output.clone());
    let mut after = vec![index, weighted, turned];
    if weights.is_none()
        && let Some(Grown { news, pasts, nodes, path }) = path.grown(&queries, keys, values)
    {
        out.extend([keys, values].map(String::clone));
        after.extend(nodes);
        let inputs = news.into_iter().chain(pasts).chain(mask).cloned().collect();
        let node = own(GROWN, inputs, out, name, vec![float("scale", path.scale)]);
        return path.found(node, at, after);
    }
    let has_four = [keys, values].into_iter().all(|tensor| places.has_axes(tensor, 4));
    if axes != Axes::Four || !has_four {
        return None;
    }
    if let Some((rows, heads, path)) =
        path.among_rows(&queries, keys, values).filter(|_| weights.is_none())
    {
        let attributes = vec![float("scale", path.scale), integer("heads", heads)];
        let mut inputs: Vec<_> = rows.into_iter().cloned().collect();
        match mask {
            Some(mask) => inputs.push(mask.clone()),
            None => inputs.extend([String::new(), sizes_of_heads(places, keys)?.clone()]),
        }
        return path.found(own(SELF, inputs, out, name, attributes), at, after);
    }
    let Heads::Rows(queries) = queries else { return None };
    if !places.has_axes(queries, 2) {
        return None;
    }
    if let Some(weights) = weights {
        out.push(weights.output.clone());
        after.extend(weights.nodes);
    }
    let inputs = [queries, keys, values].into_iter().chain(mask).cloned().collect();
    let own = own(MEMORY, inputs, out, name, vec![float("scale", path.scale)]);
    path.found(own, at, after)
}

/// The axes of scores, and of heads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Axes {
    /// `[batch, heads, n, places]`
    Four,
    /// `[batch, beams, heads, n, places]`
    Five,
}

impl Axes {
    pub(super) fn of(places: &Places<'_>, scores: &str) -> Option<Self> {
        match places.shape(scores)?.len() {
            4 => Some(Self::Four),
            5 => Some(Self::Five),
            _ => None,
        }
    }

    /// Exchanges heads and places.
    pub(super) fn of_heads(self) -> &'static [i64] {
        match self {
            Self::Four => &[0, 2, 1, 3],
            Self::Five => &[0, 1, 3, 2, 4],
        }
    }

    /// Exchanges places and numbers.
    fn of_keys(self) -> &'static [i64] {
        match self {
            Self::Four => &[0, 1, 3, 2],
            Self::Five => &[0, 1, 2, 4, 3],
        }
    }

    /// The axis of places in keys and values.
    fn places(self) -> i64 {
        match self {
            Self::Four => 2,
            Self::Five => 3,
        }
    }

    /// Whether a mask is the same for all beams.
    fn broadcasts(self, places: &Places<'_>, mask: &str) -> bool {
        let own = match self {
            Self::Four => 4,
            Self::Five => 3,
        };
        places.shape(mask).is_some_and(|shape| {
            let (beams, _) = shape.split_at(shape.len().saturating_sub(own));
            beams.iter().all(|size| size.dim_value == Some(1))
        })
    }
}

/// The sizes `[batch, n, ...]` into which rows were reshaped for heads.
fn sizes_of_heads<'g>(places: &Places<'g>, mut tensor: &'g String) -> Option<&'g String> {
    loop {
        let node = &places.graph.node[places.source(tensor)?];
        match node.op_type.as_str() {
            "Mul" | "Transpose" | "Slice" => tensor = node.input.first()?,
            "Reshape" => return node.input.get(1),
            _ => return None,
        }
    }
}

/// Weights `[batch, n, heads, 1, places]` that the graph outputs, besides the product with values.
struct Weights<'g> {
    reader: (usize, &'g NodeProto),
    nodes: [usize; 2],
    output: &'g String,
}

fn weights<'g>(places: &Places<'g>, softmax: &str) -> Option<Weights<'g>> {
    let &[one, another] = places.readers(softmax) else { return None };
    let [reader, reshape] =
        if places.node(one, "MatMul").is_some() { [one, another] } else { [another, one] };
    let (product, reshaped) = (places.node(reader, "MatMul")?, places.node(reshape, "Reshape")?);
    let (transpose, node) = places
        .only_reader(&reshaped.output[0], "Transpose")
        .filter(|(_, node)| permutes(node, &[0, 2, 1, 3, 4]))?;
    let output = &node.output[0];
    let is_step = matches!(places.shape(output)?, [_, _, _, new, _] if new.dim_value == Some(1));
    let is_last =
        places.is_output(output) && places.readers(output).is_empty() && !places.is_output(softmax);
    (is_step && is_last).then_some(Weights {
        reader: (reader, product),
        nodes: [reshape, transpose],
        output,
    })
}

/// The source of heads `[batch, heads, n, d_k]`.
enum Heads<'g> {
    /// Rows `[batch · n, heads · d_k]`.
    Rows(&'g String),
    /// A third of rows `[batch · n, 3 · heads · d_k]`, after their split.
    Third(&'g String, usize),
}

/// Nodes before a softmax, whose outputs have no other readers; those after it were checked.
#[derive(Clone)]
struct Path<'p, 'g> {
    places: &'p Places<'g>,
    axes: Axes,
    scale: f32,
    inner: Vec<usize>,
}

impl<'g> Path<'_, 'g> {
    fn found(self, node: NodeProto, at: usize, after: Vec<usize>) -> Option<Found> {
        let nodes = &self.places.graph.node;
        let is_inner = |output: &String| {
            self.places.readers(output).len() == 1 && !self.places.is_output(output)
        };
        let all_inner = self.inner.iter().all(|&index| nodes[index].output.iter().all(is_inner));
        all_inner.then(|| Found {
            node,
            at,
            replaced: self.inner.into_iter().chain(after).collect(),
        })
    }

    /// The tensor before its multiplication by a number.
    fn unscaled(&mut self, tensor: &'g String) -> &'g String {
        match self
            .places
            .giver(tensor, "Mul")
            .and_then(|(at, mul)| Some((at, &mul.input[0], self.places.number(&mul.input[1])?)))
        {
            Some((at, tensor, scale)) => {
                self.inner.push(at);
                self.scale *= scale;
                tensor
            }
            None => tensor,
        }
    }

    fn transposed(&mut self, tensor: &str, axes: &[i64]) -> Option<&'g String> {
        let (at, node) =
            self.places.giver(tensor, "Transpose").filter(|(_, node)| permutes(node, axes))?;
        self.inner.push(at);
        Some(&node.input[0])
    }

    /// The tensor that was split into these heads.
    fn heads_of(&mut self, tensor: &'g String) -> Option<Heads<'g>> {
        let tensor = self.unscaled(tensor);
        let tensor = self.transposed(tensor, self.axes.of_heads())?;
        if let Some((at, slice)) = self.places.giver(tensor, "Slice") {
            // With a single head the slice is along the last axis.
            let is_single = self.places.shape(&slice.input[0])?.get(2)?.dim_value == Some(1);
            let third = self.third(slice, if is_single { 3 } else { 2 })?;
            let (_, reshape) = self.places.giver(&slice.input[0], "Reshape")?;
            self.inner.push(at);
            return Some(Heads::Third(&reshape.input[0], third));
        }
        let (at, reshape) = self.places.giver(tensor, "Reshape")?;
        self.inner.push(at);
        Some(Heads::Rows(self.unscaled(&reshape.input[0])))
    }

    /// Which third of an axis is sliced.
    fn third(&self, slice: &NodeProto, axis: usize) -> Option<usize> {
        let [from, start, end, axes] = slice.input.as_slice() else { return None };
        let [start, end, axes] = [start, end, axes].map(|constant| self.places.integer(constant));
        let (start, end, size) = (start?, end?, self.places.shape(from)?.get(axis)?.dim_value?);
        let third =
            (0..3).find(|&third| 3 * start == third * size && 3 * end == (third + 1) * size)?;
        (axes? == axis as i64).then_some(third as usize)
    }

    /// Returns the queries, keys and values, the number of heads and the path of all nodes from them,
    /// if they are rows of the same sentences, or thirds of the same rows.
    fn among_rows(
        &self,
        queries: &Heads<'g>,
        keys: &'g String,
        values: &'g String,
    ) -> Option<([&'g String; 3], i64, Self)> {
        let mut path = self.clone();
        let heads = self.places.shape(keys)?[1].dim_value?;
        let keys = path.heads_of(keys)?;
        let scale = path.scale;
        let values = path.heads_of(values).filter(|_| path.scale == scale)?;
        let rows = match [queries, &keys, &values] {
            [&Heads::Third(rows, 0), Heads::Third(keys, 1), Heads::Third(values, 2)]
                if [*keys, *values] == [rows; 2] =>
            {
                [rows; 3]
            }
            [&Heads::Rows(queries), Heads::Rows(keys), Heads::Rows(values)] => {
                [queries, keys, values]
            }
            _ => return None,
        };
        self.are_equally_many(rows).then_some((rows, heads, path))
    }

    /// Whether these are rows in two axes, whose number is known to be the same.
    fn are_equally_many(&self, rows: [&String; 3]) -> bool {
        let [one, others @ ..] = rows.map(|rows| match self.places.shape(rows)? {
            [n, _] if n.dim_value.is_some() || n.dim_param.is_some() => Some(n),
            _ => None,
        });
        one.is_some() && others == [one; 2]
    }

    /// Attention to keys and values that are those of a past and of the rows of the queries.
    fn grown(&self, queries: &Heads<'g>, keys: &str, values: &str) -> Option<Grown<'_, 'g>> {
        let mut path = self.clone();
        let (key_at, past_keys, keys) = path.appended(keys)?;
        let (value_at, past_values, values) = path.appended(values)?;
        let &Heads::Rows(queries) = queries else { return None };
        let news = [queries, keys, values];
        self.are_equally_many(news).then_some(Grown {
            news,
            pasts: [past_keys, past_values],
            nodes: [key_at, value_at],
            path,
        })
    }

    /// An input of the graph to which heads are appended, and their rows.
    fn appended(&mut self, tensor: &str) -> Option<(usize, &'g String, &'g String)> {
        let (at, concat) = self.places.giver(tensor, "Concat")?;
        let [past, heads] = concat.input.as_slice() else { return None };
        let is_input = self.places.graph.input.iter().any(|input| input.name == *past);
        let is_appended =
            attribute(concat, "axis").is_some_and(|axis| axis.i == Some(self.axes.places()));
        let scale = self.scale;
        let Heads::Rows(rows) = self.heads_of(heads)? else { return None };
        let is_only_read_here = self.places.readers(tensor).len() == 1;
        (is_input && is_appended && is_only_read_here && self.scale == scale)
            .then_some((at, past, rows))
    }
}

/// New rows, the past, the nodes that append them, and the path of all nodes before.
struct Grown<'p, 'g> {
    news: [&'g String; 3],
    pasts: [&'g String; 2],
    nodes: [usize; 2],
    path: Path<'p, 'g>,
}
