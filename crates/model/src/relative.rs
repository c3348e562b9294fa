//! Relative positions: a learned bias per head and bucket of distances, added to the scores of
//! self-attention.
//!
//! `scores = Q Kᵀ + b[bucket(key - query)]`   (Raffel et al. 2020, section 2.1, after
//! Shaw et al. 2018)
//!
//! Small distances have a bucket each; larger ones share buckets whose limits grow geometrically up
//! to `max_distance`. The buckets of all distances are a table in the graph, computed here.

use crate::embedding::Side;
use crate::{Config, RelativeLayers};
use cognate_graph::{Dim, Scope, Tensor};

/// The fields of [`Positions::Relative`](crate::Positions::Relative).
#[derive(Clone, Copy)]
pub(crate) struct Ranges {
    pub(crate) buckets: usize,
    pub(crate) max_distance: usize,
    pub(crate) of: RelativeLayers,
}

/// The bias of each layer's self-attention scores, for queries `past..past + tgt` and keys
/// `0..past + tgt`: `[heads, tgt, past + tgt]`, with `mask` added.
pub(crate) fn masks<'g>(
    root: &Scope<'g>,
    config: &Config,
    side: Side,
    Ranges { buckets, max_distance, of }: Ranges,
    mask: Option<Tensor<'g>>,
    [past, tgt]: [&Dim; 2],
) -> Vec<Tensor<'g>> {
    let stack = side.stack(config);
    let direction = match side {
        Side::Encoder => Direction::Both,
        Side::Decoder => Direction::Past,
    };
    let (table, distances) = {
        let _scope = side.at(root).at("relative_positions").enter();
        let table = root.builder().integers(buckets_of_distances(direction, buckets, max_distance));
        (table, nearest(root, direction, max_distance, past, tgt))
    };
    let biased = |layer_index: usize| {
        let scope =
            side.at(root).at("layers").at(layer_index).at("self_attn.relative_attention_bias");
        let _scope = scope.enter();
        let of_distance = scope.parameter("weight", [buckets, stack.heads]).gather(table);
        let bias = of_distance.gather(distances).transpose(&[2, 0, 1]);
        mask.map_or(bias, |mask| bias + mask)
    };
    match of {
        RelativeLayers::First => vec![biased(0); stack.n_layers],
        RelativeLayers::Each => (0..stack.n_layers).map(biased).collect(),
    }
}

/// The positions that a query attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// All, as in the encoder: distances `-max..=max`, stored from 0.
    Both,
    /// Preceding ones, as in the decoder: distances `0..=max`.
    Past,
}

/// The indices of distances in the table, clamped to `max`: i64 `[tgt, past + tgt]`.
fn nearest<'g>(
    root: &Scope<'g>,
    direction: Direction,
    max: usize,
    past: &Dim,
    tgt: &Dim,
) -> Tensor<'g> {
    let builder = root.builder();
    let queries = builder.range(past, past + tgt).reshape([tgt.clone(), 1.into()]);
    let keys = builder.range(0, past + tgt);
    let integer = |value: usize| builder.integer(value as i64);
    let (place, largest) = match direction {
        Direction::Both => (keys - queries + integer(max), integer(2 * max)),
        Direction::Past => (queries - keys, integer(max)),
    };
    let positive = place.less_or_equal(integer(0)).select(integer(0), place);
    positive.less_or_equal(largest).select(positive, largest)
}

/// The bucket of each distance, in the order of [`nearest`].
fn buckets_of_distances(direction: Direction, buckets: usize, max_distance: usize) -> Vec<i64> {
    let largest = max_distance as i64;
    match direction {
        // Half of the buckets are for keys after the query.
        Direction::Both => (-largest..=largest)
            .map(|distance| {
                let bucket = bucket(distance.unsigned_abs() as usize, buckets / 2, max_distance);
                (if distance > 0 { bucket + buckets / 2 } else { bucket }) as i64
            })
            .collect(),
        Direction::Past => (0..=max_distance)
            .map(|distance| bucket(distance, buckets, max_distance) as i64)
            .collect(),
    }
}

/// The bucket of one distance. The logarithm is rounded to f32 at every step, as in the code that
/// trained the models.
fn bucket(distance: usize, buckets: usize, max_distance: usize) -> usize {
    let exact = buckets / 2;
    if distance < exact {
        return distance;
    }
    let octaves =
        (distance as f32 / exact as f32).ln() / (max_distance as f64 / exact as f64).ln() as f32;
    (exact + (octaves * (buckets - exact) as f32) as usize).min(buckets - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Expected values: PyTorch's buckets, of transformers' T5 and UMT5.
    #[test]
    fn buckets_equal_transformers() {
        let text = std::fs::read_to_string(cognate_testing::testdata("golden/buckets.json"))
            .expect("it is there");
        let file: Value = serde_json::from_str(&text).expect("it is JSON");
        let integers = |value: &Value| -> Vec<i64> {
            serde_json::from_value(value.clone()).expect("integers")
        };
        let first = integers(&file["key_minus_query"])[0];
        for case in file["cases"].as_array().expect("cases") {
            let size = |field: &str| {
                usize::try_from(integers(&Value::Array(vec![case[field].clone()]))[0])
                    .expect("a size")
            };
            let (buckets, max_distance) = (size("num_buckets"), size("max_distance"));
            let direction =
                if case["side"] == "encoder" { Direction::Both } else { Direction::Past };
            let ours = buckets_of_distances(direction, buckets, max_distance);
            let max = max_distance as i64;
            for (distance, expected) in (first..).zip(integers(&case["buckets"])) {
                let place = match direction {
                    Direction::Both => distance.clamp(-max, max) + max,
                    Direction::Past => (-distance).clamp(0, max),
                };
                assert_eq!(
                    ours[place as usize], expected,
                    "{buckets} buckets to {max_distance}, {direction:?}, distance {distance}"
                );
            }
        }
    }
}
