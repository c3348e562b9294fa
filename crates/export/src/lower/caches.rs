//! Attention to shared caches in standard operations, for cases that ONNX Runtime's operator does
//! not support.
//!
//! The keys of a sentence are those of all its caches:
//! `[batch, key_heads, beams · (past + 1), d_k]`. The queries of a beam, of which a group of heads
//! shares a head of keys, are positions of one product. A mask selects for each beam the cache that
//! contains a position.

use cognate_graph::{
    Builder, CachedAttention, DType, Dim, Error, Graph, NodeId, Op, Tensor, Unary, concat,
};
use std::collections::HashMap;

/// Added to masked scores.
const HIDDEN: f32 = -1e9;

/// The graph with such attention in standard operations; `None` if it has none.
pub(super) fn expanded(graph: &Graph) -> Result<Option<Graph>, Error> {
    if !graph.nodes().iter().any(|node| is_special(&node.op)) {
        return Ok(None);
    }
    let builder = Builder::new(graph.name());
    let (mut values, mut masks) = (Vec::with_capacity(graph.nodes().len()), HashMap::new());
    for (_, node) in graph.iter() {
        let value = |id: NodeId| -> Tensor<'_> { values[id.index()] };
        let made = match (&node.op, node.inputs.as_slice()) {
            (Op::CachedAttention(attention), &[query, keys, memory, beams, ref bias @ ..])
                if is_special(&node.op) =>
            {
                let mask = *masks
                    .entry((beams, attention.window))
                    .or_insert_with(|| mask(value(beams), attention.window));
                let bias = bias.first().map(|&bias| value(bias));
                let _scope = builder
                    .root()
                    .at(node.name.rsplit_once('/').map_or("", |(path, _)| path))
                    .enter();
                attend(attention, [query, keys, memory].map(value), value(beams), mask, bias)
            }
            _ => builder.copy(node, value),
        };
        values.push(made);
    }
    graph
        .outputs()
        .iter()
        .for_each(|output| builder.output(&output.name, values[output.node.index()]));
    drop((values, masks));
    builder.finish().map(Some)
}

fn is_special(op: &Op) -> bool {
    matches!(op, Op::CachedAttention(attention) if *attention != CachedAttention::new(attention.heads, attention.scale))
}

/// The parts of the caches that each beam attends to, `[batch, 1, beams, 1, beams · (past + 1)]`,
/// from `holders: [batch, beams, past]`.
fn mask<'g>(holders: Tensor<'g>, window: Option<usize>) -> Tensor<'g> {
    let builder = holders.builder();
    let _scope = builder.root().at("cache_mask").enter();
    let [batch, beams, past] = [0, 1, 2].map(|axis| holders.dim(axis));
    let (zero, hidden) = (builder.scalar(0.0), builder.scalar(HIDDEN));
    let (places, each) = (&past + 1, builder.range(0, &beams));
    let own = each.reshape([&1.into(), &beams, &1.into()]).expand([&batch, &beams, &1.into()]);
    let held = concat(2, &[holders, own]).reshape([&batch, &beams, &1.into(), &places]);
    let seen = window.map_or(zero, |window| {
        let before = builder.range(&past, &places) - builder.range(0, &places);
        before
            .less_or_equal(builder.integer(i64::try_from(window).unwrap_or(i64::MAX) - 1))
            .select(zero, hidden)
    });
    let one = Dim::from(1);
    held.equal(each.reshape([&beams, &one])).select(seen, hidden).reshape([
        &batch,
        &one,
        &beams,
        &one,
        &(&beams * &places),
    ])
}

/// See [`CachedAttention`]; `mask` as above.
fn attend<'g>(
    attention: &CachedAttention,
    [query, keys, values]: [Tensor<'g>; 3],
    holders: Tensor<'g>,
    mask: Tensor<'g>,
    bias: Option<Tensor<'g>>,
) -> Tensor<'g> {
    let &CachedAttention { heads, key_heads, scale, cap, .. } = attention;
    let [batch, beams, past] = [0, 1, 2].map(|axis| holders.dim(axis));
    let (places, d_k) = (past + 1, keys.dim(3));
    let (group, key_heads) = (Dim::from(heads / key_heads), Dim::from(key_heads));
    let all_places = &beams * &places;
    let by_head = |x: Tensor<'g>, n: &Dim| {
        let by_beam = x.reshape([&batch, &beams, &key_heads, &(n * &d_k)]).transpose(&[0, 2, 1, 3]);
        by_beam.reshape([&batch, &key_heads, &(&beams * n), &d_k])
    };
    let of_sentence = |cache: Tensor<'g>| by_head(cache.slice(2, 0, &places), &places);
    let scores = (by_head(query, &group) * scale).matmul(of_sentence(keys).t());
    let scores = cap.map_or(scores, |cap| (scores / cap).map(Unary::Tanh) * cap);
    let scores = scores.reshape([&batch, &key_heads, &beams, &group, &all_places]);
    let one = &Dim::from(1);
    let biased = bias.map_or(scores, |bias| {
        let each = bias
            .reshape([one, &key_heads, one, &group, one, &places])
            .expand([one, &key_heads, one, &group, &beams, &places]);
        scores + each.reshape([one, &key_heads, one, &group, &all_places])
    });
    // In f32, which the mask's number requires.
    let weights = match biased.ty().dtype {
        DType::F16 => (biased.cast(DType::F32) + mask).softmax().cast(DType::F16),
        _ => (biased + mask).softmax(),
    };
    let weights = weights.reshape([&batch, &key_heads, &(&beams * &group), &all_places]);
    let context =
        weights.matmul(of_sentence(values)).reshape([&batch, &key_heads, &beams, &(&group * &d_k)]);
    context.transpose(&[0, 2, 1, 3]).reshape(query.ty().shape)
}
