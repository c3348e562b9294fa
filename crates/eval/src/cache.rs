//! Attention over caches that beams share, place by place.

use crate::ops::{INFERRED, float, int};
use crate::{Float, Value};
use cognate_graph::CachedAttention;
use ndarray::{Array3, Ix3, Ix4, s};

/// The cache `[rows, heads, capacity, d_k]` with `new: [rows, 1, heads · d_k]` at place `at`.
pub(crate) fn write<F: Float>(cache: &Value<F>, new: &Value<F>, at: usize) -> Value<F> {
    let mut cache = float(cache).to_owned().into_dimensionality::<Ix4>().expect(INFERRED);
    let (rows, heads, _, d_k) = cache.dim();
    let new = float(new).to_shape((rows, heads, d_k)).expect(INFERRED);
    cache.slice_mut(s![.., .., at, ..]).assign(&new);
    Value::Float(cache.into_dyn().into_shared())
}

/// `query: [rows, 1, heads · d_k]`, `keys, values: [rows, heads, capacity, d_k]`, `beams: [batch, beams, past]`,
/// `bias: [1, heads, 1, past + 1]` -> `[rows, 1, heads · d_k]`. The error is the first beam that is none, with their number.
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
    let (rows, heads, _, d_k) = keys.dim();
    let query = float(query).to_shape((rows, heads, d_k)).expect(INFERRED);
    let scale = <F as From<f32>>::from(attention.scale);
    let mut out = Array3::<F>::zeros((rows, heads, d_k));
    for row in 0..rows {
        let (sentence, beam) = (row / n_beams, row % n_beams);
        let holder = |&beam: &i64| {
            let beam_of = usize::try_from(beam).ok().filter(|&beam| beam < n_beams).ok_or((beam, n_beams))?;
            Ok(sentence * n_beams + beam_of)
        };
        // For each place the row that holds it.
        let mut holders = beams.slice(s![sentence, beam, ..]).iter().map(holder).collect::<Result<Vec<_>, _>>()?;
        holders.push(row);
        for head in 0..heads {
            let query = query.slice(s![row, head, ..]);
            let bias = |place: usize| bias.as_ref().map_or(F::zero(), |bias| bias[[0, head, 0, place]]);
            let score = |(place, &holder): (usize, &usize)| query.dot(&keys.slice(s![holder, head, place, ..])) * scale + bias(place);
            let scores: Vec<F> = holders.iter().enumerate().map(score).collect();
            let largest = scores.iter().fold(F::neg_infinity(), |largest, &score| largest.max(score));
            let weights: Vec<F> = scores.iter().map(|&score| (score - largest).exp()).collect();
            let sum = weights.iter().fold(F::zero(), |sum, &weight| sum + weight);
            let mut context = out.slice_mut(s![row, head, ..]);
            for (place, (&holder, &weight)) in holders.iter().zip(&weights).enumerate().take(past + 1) {
                context.scaled_add(weight / sum, &values.slice(s![holder, head, place, ..]));
            }
        }
    }
    Ok(Value::Float(out.into_shape_with_order((rows, 1, heads * d_k)).expect(INFERRED).into_dyn().into_shared()))
}
