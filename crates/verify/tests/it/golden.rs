//! `testdata/golden`: PyTorch's own numbers, on every engine.

use crate::engines::{everywhere, output};
use cognate_model::{Model, Names};
use cognate_testing::{Array, Golden, golden, golden_models};
use ndarray::{ArrayD, ArrayViewD, Axis, Slice};

/// The largest absolute difference of an engine's f32 to PyTorch's f32.
const SINGLE_BOUND: f64 = 1e-4;

/// The same for the models whose logits are three times larger.
const LARGE_LOGITS_BOUND: f64 = 2e-4;

/// The largest absolute difference of the reference's f64 to PyTorch's float64. Scales such as `d_k^-1/2` are f32 in our
/// graphs, as in every export.
const DOUBLE_BOUND: f64 = 1e-5;

pub(crate) fn array<T: Clone>(array: &Array<T>) -> ArrayD<T> {
    ArrayD::from_shape_vec(array.shape.as_slice(), array.data.clone()).unwrap()
}

/// The numbers of `states: [batch, src, ...]` at positions that `mask` shows.
pub(crate) fn unpadded(states: &ArrayD<f64>, mask: &ArrayD<i64>) -> Vec<f64> {
    let row = |(states, mask): (ArrayViewD<'_, f64>, ArrayViewD<'_, i64>)| {
        states.slice_axis(Axis(0), Slice::from(..mask.sum() as usize)).iter().copied().collect::<Vec<_>>()
    };
    states.outer_iter().zip(mask.outer_iter()).flat_map(row).collect()
}

/// The largest absolute difference.
pub(crate) fn distance(ours: &[f64], theirs: &[f64]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let differences = ours.iter().zip(theirs).map(|(ours, theirs)| (ours - theirs).abs());
    differences.fold(0.0, |worst, difference| if worst.is_nan() || difference.is_nan() { f64::NAN } else { worst.max(difference) })
}

pub(crate) fn all(array: &ArrayD<f64>) -> Vec<f64> {
    array.iter().copied().collect()
}

#[test]
fn every_family_agrees_with_pytorch() {
    let failures: Vec<_> = golden_models().iter().flat_map(|name| differences(name)).collect();
    assert!(failures.is_empty(), "from PyTorch:\n{}", failures.join("\n"));
}

/// What of the model differs by more than its bound, a line each.
fn differences(name: &str) -> Vec<String> {
    let expected = Golden::open(name);
    let model = Model::open(&golden(name)).unwrap();
    let mask = array(expected.ids("attention_mask"));
    let inputs = ["input_ids", "attention_mask", "decoder_input_ids"].map(|name| (name, array(expected.ids(name))));
    let mut failures = Vec::new();
    for mut session in everywhere(&model.teacher_forced().unwrap()) {
        let outputs = session.run(&inputs.clone().into_iter().collect()).unwrap();
        let attentions =
            (0..model.config().decoder.n_layers).map(|layer_index| all(&output(&outputs, &Names::cross_attentions(layer_index))));
        let is_double = session.engine().ends_with("f64");
        let compared = [
            ("encoder_last_hidden_state", unpadded(&output(&outputs, "encoder_hidden_states"), &mask)),
            ("logits", all(&output(&outputs, "logits"))),
            ("cross_attentions", attentions.flatten().collect()),
        ];
        for (what, ours) in compared {
            let read = |theirs: ArrayD<f64>| if what.starts_with("encoder") { unpadded(&theirs, &mask) } else { all(&theirs) };
            let single = read(array(expected.floats(what)).mapv(f64::from));
            let double = read(array(expected.doubles(what)));
            let single_bound = if ["t5-gated", "mt5"].contains(&name) { LARGE_LOGITS_BOUND } else { SINGLE_BOUND };
            let (bound, worst) = if is_double {
                (DOUBLE_BOUND, distance(&ours, &double))
            } else if 2.0 * distance(&single, &double) > single_bound {
                // PyTorch's own rounding is of the bound's order, and two roundings may differ by twice as much: an engine may
                // round as PyTorch does, or be nearer to the truth.
                (single_bound, distance(&ours, &single).min(distance(&ours, &double)))
            } else {
                (single_bound, distance(&ours, &single))
            };
            eprintln!("{name:30} {:45} {what:26} {worst:.1e}", session.engine());
            if worst.is_nan() || worst > bound {
                failures.push(format!("{name}, {}: {what}: {worst:e}, at most {bound:e} is allowed", session.engine()));
            }
        }
    }
    failures
}
