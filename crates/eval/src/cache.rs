//! Attention over caches that beams share, position by position.

use crate::ops::{INFERRED, float, int};
use crate::{Float, Value};
use cognate_graph::CachedAttention;
use ndarray::{Array3, Ix3, Ix4, s};

/// The cache `[rows, key_heads, capacity, d_k]` with `new: [rows, 1, key_heads · d_k]` at position
/// `at`.
pub(crate) fn write<F: Float>(cache: &Value<F>, new: &Value<F>, at: usize) -> Value<F> {
    let mut cache = float(cache).to_owned().into_dimensionality::<Ix4>().expect(INFERRED);
    let (rows, heads, _, d_k) = cache.dim();
    let new = float(new).to_shape((rows, heads, d_k)).expect(INFERRED);
    cache.slice_mut(s![.., .., at, ..]).assign(&new);
    Value::Float(cache.into_dyn().into_shared())
}

/// `query: [rows, 1, heads · d_k]`, `keys, values: [rows, key_heads, capacity, d_k]`,
/// `beams: [batch, beams, past]`, `bias: [1, heads, 1, past + 1]` -> `[rows, 1, heads · d_k]`. The
/// error is the first beam out of range, with the number of beams.
pub(crate) fn attend<F: Float>(
    attention: &CachedAttention,
    [query, keys, values]: [&Value<F>; 3],
    beams: &Value<F>,
    bias: Option<&Value<F>>,
) -> Result<Value<F>, (i64, usize)> {
    let tensor = |value| float(value).view().into_dimensionality::<Ix4>().expect(INFERRED);
    let (keys, values, bias) = (tensor(keys), tensor(values), bias.map(tensor));
    let beams = int(beams).view().into_dimensionality::<Ix3>().expect(INFERRED);
    let (_, n_beams, past) = beams.dim();
    let (rows, key_heads, _, d_k) = keys.dim();
    let (heads, first) =
        (attention.heads, attention.window.map_or(0, |window| (past + 1).saturating_sub(window)));
    let query = float(query).to_shape((rows, heads, d_k)).expect(INFERRED);
    let scale = <F as From<f32>>::from(attention.scale);
    let mut out = Array3::<F>::zeros((rows, heads, d_k));
    for row in 0..rows {
        let (sentence, beam) = (row / n_beams, row % n_beams);
        // The positions that are read, with the row that contains each.
        let mut held = Vec::new();
        for (place, &beam) in beams.slice(s![sentence, beam, ..]).iter().enumerate() {
            match usize::try_from(beam) {
                Ok(beam) if beam < n_beams => held.push((place, sentence * n_beams + beam)),
                Err(_) if attention.padded => {}
                _ => return Err((beam, n_beams)),
            }
        }
        held.push((past, row));
        held.retain(|&(place, _)| place >= first);
        for head in 0..heads {
            let (query, key_head) = (query.slice(s![row, head, ..]), head / (heads / key_heads));
            let bias =
                |place: usize| bias.as_ref().map_or(F::zero(), |bias| bias[[0, head, 0, place]]);
            let score = |&(place, holder): &(usize, usize)| {
                capped(
                    query.dot(&keys.slice(s![holder, key_head, place, ..])) * scale,
                    attention.cap,
                ) + bias(place)
            };
            let scores: Vec<F> = held.iter().map(score).collect();
            let largest =
                scores.iter().fold(F::neg_infinity(), |largest, &score| largest.max(score));
            let weights: Vec<F> = scores.iter().map(|&score| (score - largest).exp()).collect();
            let sum = weights.iter().fold(F::zero(), |sum, &weight| sum + weight);
            let mut context = out.slice_mut(s![row, head, ..]);
            for (&(place, holder), &weight) in held.iter().zip(&weights) {
                context.scaled_add(weight / sum, &values.slice(s![holder, key_head, place, ..]));
            }
        }
    }
    Ok(Value::Float(
        out.into_shape_with_order((rows, 1, heads * d_k)).expect(INFERRED).into_dyn().into_shared(),
    ))
}

/// `cap · tanh(score / cap)`, or the score without a cap.
fn capped<F: Float>(score: F, cap: Option<f32>) -> F {
    cap.map(<F as From<f32>>::from).map_or(score, |cap| cap * (score / cap).tanh())
}
