//! Reads the operations of programs from nodes.

use super::convolution::{ACTIVATIONS, PADDINGS, STRIDES};
use super::{
    BETWEEN, CACHED, CONVOLUTIONS, DOMAIN, GATE, GROWN, MEMORY, ROTATION, SELF, attribute,
};
use crate::program::{
    Among, ConvolutionOf, ConvolutionSizes, Counted, MaskOf, Operation, Places, PositionsFrom,
    PositionsOf, Scores, Size, TableOf,
};
use cognate_export::proto::{DataType, NodeProto, TensorProto};
use cognate_kernels::{Activation, multiplies_integers};

/// The values of the attribute `activation`.
const ACTIVATION_OF: [Activation; 5] = [
    Activation::Identity,
    Activation::Relu,
    Activation::Swish,
    Activation::Gelu,
    Activation::TanhGelu,
];

/// The operation of a node, if a program computes it.
pub(super) fn operation<'g>(places: &Places<'g>, node: &'g NodeProto) -> Option<Operation<'g>> {
    let inputs: Vec<&str> = node.input.iter().map(String::as_str).collect();
    let float = |name| attribute(node, name).and_then(|attribute| attribute.f);
    let integer = |name| attribute(node, name).and_then(|attribute| attribute.i);
    let activation = || ACTIVATION_OF.get(usize::try_from(integer("activation")?).ok()?).copied();
    let out = node.output.first()?.as_str();
    let constant = |name: &str, kind: DataType| {
        places.constant(name).filter(|constant| is(constant, kind) && constant.dims.len() <= 2)
    };
    Some(match (node.domain.as_str(), node.op_type.as_str()) {
        (DOMAIN, BETWEEN) => {
            let outputs: Vec<&str> = node.output.iter().map(String::as_str).collect();
            Operation::Rows {
                inputs: inputs.try_into().ok()?,
                epsilon: float("epsilon")?,
                activation: activation()?,
                outputs: outputs.try_into().ok()?,
            }
        }
        (DOMAIN, CACHED) => {
            let outputs: Vec<&str> = node.output.iter().map(String::as_str).collect();
            let &[query, key, value, keys, values, beams, ref bias @ ..] = inputs.as_slice() else {
                return None;
            };
            let (news, caches, bias) = ([query, key, value], [keys, values], bias.first().copied());
            let window = integer("window").and_then(|window| usize::try_from(window).ok());
            let scores = Scores { scale: float("scale")?, cap: float("cap"), window };
            Operation::Cached {
                news,
                caches,
                beams,
                bias,
                scores,
                outputs: outputs.try_into().ok()?,
            }
        }
        (DOMAIN, ROTATION) => {
            let &[x, cosines, sines, positions] = inputs.as_slice() else { return None };
            let tables = [constant(cosines, DataType::Float)?, constant(sines, DataType::Float)?];
            let positions = consecutive(places, positions)
                .unwrap_or(PositionsFrom::Held { beams: positions, offset: 0 });
            Operation::Rotation { x, tables, positions, out }
        }
        (DOMAIN, CONVOLUTIONS) => convolutions(places, node)?,
        (DOMAIN, GATE) => {
            let &[x, gate] = inputs.as_slice() else { return None };
            Operation::Gate { x, gate, activation: activation()?, out }
        }
        (DOMAIN, MEMORY) => {
            let &[query, keys, values, ref mask @ ..] = inputs.as_slice() else { return None };
            let mask = mask.first().map(|mask| mask_of(places, mask));
            let weights = node.output.get(1).map(String::as_str);
            Operation::Memory {
                inputs: [query, keys, values],
                mask,
                scale: float("scale")?,
                out,
                weights,
            }
        }
        (DOMAIN, SELF) => {
            let heads = usize::try_from(integer("heads")?).ok().filter(|&heads| heads > 0)?;
            let &[query, key, value, ref among @ ..] = inputs.as_slice() else { return None };
            let among = match among {
                [mask] => Among::Masked(mask_of(places, mask)),
                ["", sizes] => Among::All(places.sizes(sizes)?.get(1)?.clone()),
                _ => return None,
            };
            let rows = [query, key, value];
            Operation::SelfAttention { rows, among, heads, scale: float("scale")?, out }
        }
        (DOMAIN, GROWN) => {
            let outputs: Vec<&str> = node.output.iter().map(String::as_str).collect();
            let &[query, key, value, keys, values, ref mask @ ..] = inputs.as_slice() else {
                return None;
            };
            Operation::Grown {
                news: [query, key, value],
                pasts: [keys, values],
                mask: mask.first().map(|mask| mask_of(places, mask)),
                scale: float("scale")?,
                outputs: outputs.try_into().ok()?,
            }
        }
        ("", "Gemm") => {
            let [x, weight, bias @ ..] = inputs.as_slice() else { return None };
            let is_plain = node.attribute.iter().all(|attribute| attribute.name == "transB")
                && integer("transB") == Some(1);
            let (x, weight) = match constant(weight, DataType::Float) {
                Some(weight) => (*x, weight),
                None => (
                    before_rounding(places, x)?,
                    constant(&cast(places, weight, DataType::Float)?.input[0], DataType::Bfloat16)?,
                ),
            };
            if !is_plain || weight.dims.len() != 2 {
                return None;
            }
            if bias.first().is_some_and(|bias| {
                constant(bias, DataType::Float).is_none_or(|bias| bias.dims.len() != 1)
            }) {
                return None;
            }
            Operation::Product { x, weight, bias: bias.first().copied(), out }
        }
        ("com.microsoft", "MatMulIntegerToFloat") => {
            let [x, weight, step, scale, zero] = inputs.as_slice() else { return None };
            let weight = constant(weight, DataType::Int8)
                .filter(|weight| weight.dims.len() == 2 && places.bytes(zero) == Some(&[128]))?;
            let scale = constant(scale, DataType::Float)
                .filter(|_| multiplies_integers())
                .filter(|scale| scale.dims.as_slice() == &weight.dims[1..])?;
            Operation::IntegerProduct {
                x,
                weight,
                step: places.number(step)?,
                scale,
                end: None,
                out,
            }
        }
        ("", "Transpose") => {
            let (_, reshape) = places.giver(inputs.first()?, "Reshape")?;
            let [x, sizes] = reshape.input.as_slice() else { return None };
            let is_heads = attribute(node, "perm").is_some_and(|perm| perm.ints == [0, 2, 1, 3])
                && places.has_axes(out, 4);
            // Constants can copy sizes of the input by a 0, which rows do not have.
            let is_computed = places.constant(sizes).is_none();
            let is_known = |sizes: &[Size<&str>]| {
                is_computed || !sizes.iter().any(|size| matches!(size, Size::Number(0)))
            };
            let sizes = places.sizes(sizes).filter(|sizes| {
                is_heads && places.has_axes(x, 2) && sizes.len() == 4 && is_known(sizes)
            })?;
            Operation::Heads { x, sizes, out, half: places.is_half_output(out) }
        }
        ("", "Reshape") => largest(places, &inputs, out)?,
        // For embeddings, whose rows have more axes.
        ("", "LayerNormalization") => {
            let &[x, weight, bias] = inputs.as_slice() else { return None };
            let is_row =
                |name| constant(name, DataType::Float).is_some_and(|row| row.dims.len() == 1);
            let fits = is_row(weight)
                && is_row(bias)
                && node.output.len() == 1
                && integer("axis") == Some(-1);
            let (inputs, outputs) = ([x, "", "", "", weight, bias], [out, "", ""]);
            fits.then_some(Operation::Rows {
                inputs,
                epsilon: float("epsilon")?,
                activation: Activation::Identity,
                outputs,
            })?
        }
        ("", "Mul" | "Gather" | "Cast") => match integer_product(places, node) {
            Some(product) => product,
            None => {
                let (ids, tokens, factor) = tokens(places, out)?;
                Operation::Embedding { ids, tokens, factor, positions: None, out }
            }
        },
        ("", "Add") => {
            let &[one, other] = inputs.as_slice() else { return None };
            let (ids, tokens, factor) = tokens(places, one)?;
            let (_, gather) = places.giver(other, "Gather")?;
            let [table, rows] = gather.input.as_slice() else { return None };
            let positions = PositionsOf {
                table: constant(table, DataType::Float)?,
                from: positions(places, ids, rows)?,
            };
            Operation::Embedding { ids, tokens, factor, positions: Some(positions), out }
        }
        _ => return None,
    })
}

/// Convolutions over time whose sizes fit each other, all above zero.
fn convolutions<'g>(places: &Places<'g>, node: &'g NodeProto) -> Option<Operation<'g>> {
    let [frames, others @ ..] = node.input.as_slice() else { return None };
    let (weights, positions) = others.as_chunks::<2>();
    let ints = |name| {
        let ints = &attribute(node, name)?.ints;
        ints.iter().map(|&number| usize::try_from(number).ok()).collect::<Option<Vec<_>>>()
    };
    let [strides, paddings, activations] = [ints(STRIDES)?, ints(PADDINGS)?, ints(ACTIVATIONS)?];
    let constant = |name: &str| places.constant(name).filter(|found| is(found, DataType::Float));
    let layer = |(index, [weight, bias]): (usize, &'g [String; 2])| {
        let (weight, bias) = (constant(weight)?, constant(bias)?);
        let [outputs, channels, kernel] = weight.dims[..] else { return None };
        let [channels, kernel] = [channels, kernel].map(|size| usize::try_from(size).ok());
        let sizes = ConvolutionSizes {
            channels: channels.filter(|size| *size > 0)?,
            kernel: kernel.filter(|size| *size > 0)?,
            stride: *strides.get(index)?,
            padding: *paddings.get(index)?,
        };
        let activation = *ACTIVATION_OF.get(*activations.get(index)?)?;
        (bias.dims == [outputs]).then_some(ConvolutionOf { weight, bias, sizes, activation })
    };
    let layers = weights.iter().enumerate().map(layer).collect::<Option<Vec<_>>>()?;
    let positions = match positions {
        [] => None,
        [table, ..] => Some(constant(table)?),
    };
    let out = node.output.first()?;
    let width = *layers.last()?.weight.dims.first()?;
    let is_chain =
        layers.windows(2).all(|pair| pair[0].weight.dims.first() == pair[1].weight.dims.get(1));
    let fits = is_chain
        && positions.is_none_or(|table| table.dims.last() == Some(&width))
        && places.shape(out)?.last()?.dim_value == Some(width);
    fits.then_some(Operation::Convolutions { frames, layers, positions, out })
}

/// Whether a constant has this type, or is to be read as f32 and stored in half precision.
fn is(constant: &TensorProto, kind: DataType) -> bool {
    let widened = DataType::Float16 as i32;
    constant.data_type == kind as i32 || kind == DataType::Float && constant.data_type == widened
}

/// The product of rows and weights in 8 bits by standard operators, times the step sizes of columns
/// and of rows, of which the node is the last.
fn integer_product<'g>(places: &Places<'g>, node: &'g NodeProto) -> Option<Operation<'g>> {
    let [scaled, step] = node.input.as_slice() else { return None };
    let (_, scaling) = places.giver(scaled, "Mul")?;
    let [counts, scale] = scaling.input.as_slice() else { return None };
    let (_, product) =
        places.giver(&cast(places, counts, DataType::Float)?.input[0], "MatMulInteger")?;
    let [x, weight, zero] = product.input.as_slice() else { return None };
    let constant = |name: &str, kind: DataType, axes: usize| {
        places
            .constant(name)
            .filter(|constant| constant.data_type == kind as i32 && constant.dims.len() == axes)
    };
    let weight = constant(weight, DataType::Int8, 2)
        .filter(|_| multiplies_integers() && places.bytes(zero) == Some(&[128]))?;
    let scale = constant(scale, DataType::Float, 1)
        .filter(|scale| scale.dims.as_slice() == &weight.dims[1..])?;
    let (step, out) = (places.number(step)?, node.output.first()?);
    Some(Operation::IntegerProduct { x, weight, step, scale, end: None, out })
}

/// The conversion that computes a tensor, if it is to this type.
fn cast<'g>(places: &Places<'g>, tensor: &str, to: DataType) -> Option<&'g NodeProto> {
    let (_, cast) = places.giver(tensor, "Cast")?;
    Some(cast).filter(|cast| attribute(cast, "to").and_then(|to| to.i) == Some(to as i64))
}

/// The rows that were rounded to bfloat16 to compute `rows`, in any axes.
fn before_rounding<'g>(places: &Places<'g>, mut rows: &'g str) -> Option<&'g str> {
    for to in [DataType::Float, DataType::Bfloat16] {
        while let Some((_, reshape)) = places.giver(rows, "Reshape") {
            rows = &reshape.input[0];
        }
        rows = &cast(places, rows, to)?.input[0];
    }
    Some(rows)
}

/// Rows of tokens times a number: the ids, the table and the factor.
fn tokens<'g>(places: &Places<'g>, tensor: &'g str) -> Option<(&'g str, TableOf<'g>, f32)> {
    let table = |name: &str, kind: DataType| {
        places.constant(name).filter(|table| is(table, kind) && table.dims.len() == 2)
    };
    if let Some((_, gather)) = places.giver(tensor, "Gather") {
        let tokens = TableOf { table: table(&gather.input[0], DataType::Float)?, steps: None };
        return Some((ids(places, &gather.input[1])?, tokens, 1.0));
    }
    if let Some(cast) = cast(places, tensor, DataType::Float) {
        let (_, gather) = places.giver(&cast.input[0], "Gather")?;
        let tokens = TableOf { table: table(&gather.input[0], DataType::Bfloat16)?, steps: None };
        return Some((ids(places, &gather.input[1])?, tokens, 1.0));
    }
    let (_, mul) = places.giver(tensor, "Mul")?;
    let [one, other] = mul.input.as_slice() else { return None };
    if let Some(number) = places.number(other) {
        return tokens(places, one).map(|(ids, table, factor)| (ids, table, factor * number));
    }
    let (_, cast) = places.giver(one, "Cast")?;
    let [(_, integers), (_, steps)] =
        [places.giver(&cast.input[0], "Gather")?, places.giver(other, "Gather")?];
    let found = TableOf {
        table: table(&integers.input[0], DataType::Int8)?,
        steps: Some(table(&steps.input[0], DataType::Float)?),
    };
    (integers.input[1] == steps.input[1]).then_some((ids(places, &integers.input[1])?, found, 1.0))
}

/// The location of the rows of positions, one for each id.
fn positions<'g>(places: &Places<'g>, ids: &str, rows: &'g str) -> Option<PositionsFrom<&'g str>> {
    if let Some((beams, offset)) = held(places, rows) {
        return Some(PositionsFrom::Held { beams, offset });
    }
    consecutive(places, rows).or_else(|| {
        let (range, counted) = counted(places, ids, rows)?;
        Some(PositionsFrom::Sizes { sizes: sizes_of(places, range)?, counted: Some(counted) })
    })
}

/// Positions that are a range.
pub(super) fn consecutive<'g>(places: &Places<'g>, rows: &str) -> Option<PositionsFrom<&'g str>> {
    let (_, range) = places.giver(rows, "Range")?;
    Some(PositionsFrom::Sizes { sizes: sizes_of(places, range)?, counted: None })
}

/// The first size of a range, and the one behind its last.
fn sizes_of<'g>(places: &Places<'g>, range: &'g NodeProto) -> Option<[Size<&'g str>; 2]> {
    let [start, end, step] = range.input.as_slice() else { return None };
    let [start, end] = [start, end].map(|size| places.sizes(size)?.pop());
    (places.integer(step) == Some(1)).then_some([start?, end?])
}

/// Positions that equal the number of positions that a beam holds before them,
/// `Σ (0 <= beam) + offset`: the input of beams, and the offset.
pub(super) fn held<'g>(places: &Places<'g>, rows: &'g str) -> Option<(&'g str, usize)> {
    if let Some((_, add)) = places.giver(rows, "Add") {
        let (beams, 0) = held(places, &add.input[0])? else { return None };
        return Some((beams, usize::try_from(places.integer(&add.input[1])?).ok()?));
    }
    let (_, sum) = places.giver(rows, "ReduceSum")?;
    let (_, held) = places.giver(&sum.input[0], "Where")?;
    let (_, compared) = places.giver(&held.input[0], "LessOrEqual")?;
    let [zero, beams] = compared.input.as_slice() else { return None };
    let is_count = [zero, &held.input[1], &held.input[2], &sum.input[1]]
        .map(|number| places.integer(number))
        == [0, 1, 0, 2].map(Some);
    let is_input = places.graph.input.iter().any(|input| input.name == *beams);
    (is_count && is_input && places.has_axes(beams, 3)).then_some((beams, 0))
}

/// Positions that count the tokens of `tokens` except padding: `(count + first) · is_token + pad`,
/// and the range of `first`.
fn counted<'g>(
    places: &Places<'g>,
    tokens: &str,
    positions: &str,
) -> Option<(&'g NodeProto, Counted)> {
    let (_, sum) = places.giver(positions, "Add")?;
    let (_, product) = places.giver(&sum.input[0], "Mul")?;
    let (_, count) = places.giver(&product.input[0], "Add")?;
    let (_, cumulative) = places.giver(&count.input[0], "CumSum")?;
    let (_, range) = places.giver(&count.input[1], "Range")?;
    let (_, is_token) = places.giver(&product.input[1], "Where")?;
    let (_, equal) = places.giver(&is_token.input[0], "Equal")?;
    let pad = places.integer(&sum.input[1])?;
    let is_counted =
        cumulative.input[0] == product.input[1] && places.integer(&equal.input[1]) == Some(pad);
    let is_token = [&is_token.input[1], &is_token.input[2]]
        .map(|constant| places.integer(constant))
        == [Some(0), Some(1)];
    let given = &equal.input[0];
    let is_single = places.shape(given)?.last()?.dim_value == Some(1);
    let is_whole = is_single || given == tokens;
    (is_counted && is_token && is_whole && ids(places, given)? == tokens)
        .then_some((range, Counted { pad, is_single }))
}

/// Token ids that are an input of the graph, before reshapes.
fn ids<'g>(places: &Places<'g>, mut tensor: &'g str) -> Option<&'g str> {
    while let Some((_, reshape)) = places.giver(tensor, "Reshape") {
        tensor = &reshape.input[0];
    }
    places.graph.input.iter().any(|input| input.name == tensor).then_some(tensor)
}

/// The mask, or the input that it is computed from: `(1 - mask) · hidden`, for all heads and
/// queries.
fn mask_of<'g>(places: &Places<'g>, tensor: &'g str) -> MaskOf<'g> {
    let padding = || {
        let (_, reshape) = places.giver(tensor, "Reshape")?;
        let (_, mul) = places.giver(&reshape.input[0], "Mul")?;
        let (_, sub) = places.giver(&mul.input[0], "Sub")?;
        let (_, cast) = places.giver(&sub.input[1], "Cast")?;
        let is_shared = matches!(places.shape(tensor)?, [_, heads, queries, _] if [heads.dim_value, queries.dim_value] == [Some(1); 2]);
        let is_mask = is_shared
            && places.number(&sub.input[0]) == Some(1.0)
            && places.has_axes(&cast.input[0], 2);
        let is_input = places.graph.input.iter().any(|input| input.name == cast.input[0]);
        (is_mask && is_input).then_some(MaskOf {
            tensor: &cast.input[0],
            hidden: Some(places.number(&mul.input[1])?),
        })
    };
    padding().unwrap_or(MaskOf { tensor, hidden: None })
}

/// The largest magnitudes of rows, with a positive minimum, in another shape.
fn largest<'g>(places: &Places<'g>, inputs: &[&'g str], out: &'g str) -> Option<Operation<'g>> {
    let &[mut x, sizes] = inputs else { return None };
    while let Some((_, identity)) = places.giver(x, "Identity") {
        x = &identity.input[0];
    }
    let (_, max) = places.giver(x, "Max")?;
    let [x, least] = max.input.as_slice() else { return None };
    let sizes = places
        .sizes(sizes)
        .filter(|_| places.constant(sizes).is_none() && places.has_axes(x, 2))?;
    Some(Operation::Largest { x, least: places.number(least)?, sizes, out })
}
